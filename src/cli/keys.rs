//! `verbatim keys …`: API keys of the state directory.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;

use super::output::{note, print, state_dir};
use crate::clock::is_writable;
use crate::config::Config;
use crate::keys::{KeyId, NewKey, Scopes, Store};

#[derive(Subcommand)]
pub enum Command {
    /// Create a key and print it, this one time.
    Create {
        /// Who will use it; shown by `list`.
        #[arg(long, value_name = "NAME")]
        label: String,
        /// For an operator: the key also reads `/metrics`, which covers all organisations.
        #[arg(long, conflicts_with_all = ["scopes", "organisation"])]
        operator: bool,
        /// For an admin: the key opens the console in the browser, which manages the keys, jobs and settings of all
        /// organisations. It belongs to an organisation of its own.
        #[arg(long, conflicts_with_all = ["operator", "scopes", "organisation"])]
        admin: bool,
        /// What it may do, in the wire format's words: `usage:write`, `keys:read`, …, or a role, `member`, `admin` or
        /// `owner`. A member also makes keys for its organisation. Default: project:read, usage:read and usage:write.
        #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
        scopes: Vec<String>,
        /// When it expires: after a time (`30d`, `12h`), or at one (`2027-01-31T12:00:00Z`). Default: never.
        #[arg(long, value_name = "TIME", value_parser = expiry)]
        expires: Option<SystemTime>,
        /// The organisation of other keys, as `list` shows it. Default: a new one.
        #[arg(long, value_name = "ID")]
        organisation: Option<u64>,
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
        Command::Create { label, operator, admin, scopes, expires, organisation } => {
            let scopes = match scopes.as_slice() {
                _ if operator || admin => Scopes::of_an_owner(),
                [] => Scopes::of_a_client(),
                scopes => Scopes::parse(scopes.iter().map(String::as_str))?,
            };
            let (is_operator, is_admin, tenant) = (operator, admin, organisation);
            let new =
                NewKey { scopes, expires, is_operator, is_admin, tenant, ..NewKey::of_a_client(&label) };
            let (key, secret) = store.insert(new)?;
            let id = key.id.as_str();
            // If the key could not be printed, its owner can never use it: revoke it.
            print(&format!("{}\n", secret.expose())).map_err(|error| {
                anyhow::anyhow!("{error:#}: key {id} was made and not shown; `verbatim keys revoke {id}`")
            })?;
            note(&format!("Key {id} for {label:?}, in {}. It is not shown again.", state_dir(config)));
        }
        Command::List => {
            let mut lines = format!(
                "{:<16} {:<12} {:<8} {:<8} {:<20} {:<12} {:<36} LABEL\n",
                "ID", "CREATED", "STATE", "ROLE", "ORGANISATION", "EXPIRES", "SCOPES"
            );
            let now = SystemTime::now();
            for key in store.list()? {
                let state = match key.revoked {
                    Some(_) => "revoked",
                    None if key.is_active(now) => "active",
                    None => "expired",
                };
                let role = key.role();
                let (id, created) = (key.id.as_str(), date(key.created));
                let expires = key.expires.map_or("never".to_owned(), date);
                let scopes = key.scopes.words().collect::<Vec<_>>().join(",");
                lines += &format!(
                    "{id:<16} {created:<12} {state:<8} {role:<8} {:<20} {expires:<12} {scopes:<36} {}\n",
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

/// A time from now on, or one itself.
fn expiry(text: &str) -> Result<SystemTime, String> {
    let after = humantime::parse_duration(text).ok().and_then(|after| SystemTime::now().checked_add(after));
    let at = || humantime::parse_rfc3339_weak(text.trim_end_matches('Z')).ok();
    let time = after.or_else(at).filter(|time| is_writable(*time));
    time.ok_or("must be a time from now on, such as 30d, or one in UTC, such as 2027-01-31T12:00:00Z".into())
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
