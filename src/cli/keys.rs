//! `verbatim keys …`: API keys of the state directory.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;

use super::output::{note, print, state_dir};
use crate::config::Config;
use crate::keys::{KeyId, Store};

#[derive(Subcommand)]
pub enum Command {
    /// Create a key and print it, this one time.
    Create {
        /// Who will use it; shown by `list`.
        #[arg(long, value_name = "NAME")]
        label: String,
        /// For an operator: the key also reads `/metrics`, which covers all organisations.
        #[arg(long)]
        operator: bool,
    },
    /// List keys; the keys themselves are not stored.
    List,
    /// Refuse a key from now on.
    Revoke {
        /// As `list` shows it.
        id: String,
    },
}

pub fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    let store = Store::open(&config.state_dir)?;
    match command {
        Command::Create { label, operator } => {
            let (key, secret) =
                if operator { store.create_operator(&label)? } else { store.create(&label)? };
            let id = key.id.as_str();
            // If the key could not be printed, its owner can never use it: revoke it.
            print(&format!("{}\n", secret.expose())).map_err(|error| {
                anyhow::anyhow!("{error:#}: key {id} was made and not shown; `verbatim keys revoke {id}`")
            })?;
            note(&format!("Key {id} for {label:?}, in {}. It is not shown again.", state_dir(config)));
        }
        Command::List => {
            let mut lines = format!(
                "{:<16} {:<12} {:<8} {:<8} {:<20} LABEL\n",
                "ID", "CREATED", "STATE", "ROLE", "ORGANISATION"
            );
            for key in store.list()? {
                let state = if key.revoked.is_some() { "revoked" } else { "active" };
                let role = if key.is_operator { "operator" } else { "caller" };
                let (id, created) = (key.id.as_str(), date(key.created));
                lines += &format!(
                    "{id:<16} {created:<12} {state:<8} {role:<8} {:<20} {}\n",
                    key.tenant, key.label
                );
            }
            print(&lines)?;
        }
        Command::Revoke { id } => {
            let known = KeyId::parse(&id).map(|id| store.revoke(&id)).transpose()?.flatten();
            let Some(key) = known else { anyhow::bail!("there is no key {id:?}; see `verbatim keys list`") };
            note(&format!("Key {} for {:?} is revoked.", key.id.as_str(), key.label));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Days since 1970 to year-month-day (Howard Hinnant, `civil_from_days`).
fn date(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
