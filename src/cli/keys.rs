//! `verbatim keys …`: API keys of the state directory.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

use super::output::{note, print, state_dir};
use crate::clock::{is_writable, rfc3339_seconds};
use crate::config::Config;
use crate::keys::{Actor, KeyId, LIMIT_MAX, Limits, NewKey, Scopes, Store};

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
        #[command(flatten)]
        limits: Given,
    },
    /// List keys; the keys themselves are not stored.
    List,
    /// Bound what the holder of a key may use. Limits that are not named are taken away; with none, the key has none. They
    /// are those of all keys that were made with it.
    Limit {
        /// As `list` shows it.
        id: String,
        #[command(flatten)]
        limits: Given,
    },
    /// Show who made, limited and revoked which key, and when; oldest first.
    Audit {
        /// The newest so many changes.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        last: u32,
    },
    /// Refuse a key from now on.
    Revoke {
        /// As `list` shows it.
        id: String,
    },
}

/// Limits of a key.
#[derive(Args)]
pub struct Given {
    /// Requests that do work in any 60 seconds; further ones get 429.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LIMIT_MAX))]
    requests_per_minute: Option<u64>,
    /// Requests, streams and conversations at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LIMIT_MAX))]
    concurrent: Option<u64>,
    /// Seconds of audio from midnight to midnight (UTC). What begins within it is finished.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LIMIT_MAX))]
    audio_seconds_per_day: Option<u64>,
    /// Seconds of audio in a month of the calendar (UTC).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=LIMIT_MAX))]
    audio_seconds_per_month: Option<u64>,
}

impl From<Given> for Limits {
    fn from(given: Given) -> Self {
        Self {
            requests_per_minute: given.requests_per_minute,
            concurrent: given.concurrent,
            audio_seconds_per_day: given.audio_seconds_per_day,
            audio_seconds_per_month: given.audio_seconds_per_month,
        }
    }
}

/// Limits in a line; `none` without any.
fn shown(limits: &Limits) -> String {
    let named = limits.named().into_iter().filter_map(|(name, limit)| Some(format!("{name}={}", limit?)));
    let shown: Vec<String> = named.collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(",") }
}

/// # Errors
/// There is no such key.
fn known<T>(id: &str, key: Option<T>) -> anyhow::Result<T> {
    key.ok_or_else(|| anyhow::anyhow!("there is no key {id:?}; see `verbatim keys list`"))
}

pub fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    let store = Store::open(&config.state_dir)?;
    match command {
        Command::Create { label, operator, admin, scopes, expires, organisation, limits } => {
            let scopes = match scopes.as_slice() {
                _ if operator || admin => Scopes::of_an_owner(),
                [] => Scopes::of_a_client(),
                scopes => Scopes::parse(scopes.iter().map(String::as_str))?,
            };
            let (is_operator, is_admin, tenant, limits) = (operator, admin, organisation, limits.into());
            let new = NewKey {
                scopes,
                expires,
                is_operator,
                is_admin,
                tenant,
                limits,
                ..NewKey::of_a_client(&label)
            };
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
                "{:<16} {:<12} {:<8} {:<8} {:<20} {:<12} {:<36} {:<24} LABEL\n",
                "ID", "CREATED", "STATE", "ROLE", "ORGANISATION", "EXPIRES", "SCOPES", "LIMITS"
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
                    "{id:<16} {created:<12} {state:<8} {role:<8} {:<20} {expires:<12} {scopes:<36} {:<24} {}\n",
                    key.tenant,
                    shown(&key.limits),
                    key.label
                );
            }
            print(&lines)?;
        }
        Command::Revoke { id } => {
            let key = known(&id, KeyId::parse(&id).map(|id| store.revoke(&id)).transpose()?.flatten())?;
            note(&format!("Key {} for {:?} is revoked.", key.id.as_str(), key.label));
        }
        Command::Limit { id, limits } => {
            let limit = |id| store.limit(&Actor::Machine, &id, limits.into());
            let key = known(&id, KeyId::parse(&id).map(limit).transpose()?.flatten())?;
            let (id, limits) = (key.id.as_str(), shown(&key.limits));
            note(&format!("Key {id} for {:?} has these limits: {limits}.", key.label));
        }
        Command::Audit { last } => {
            let mut lines = format!(
                "{:<20} {:<20} {:<8} {:<16} {:<20} KEY AFTER IT\n",
                "TIME", "BY", "CHANGE", "ID", "ORGANISATION"
            );
            for entry in store.audit(last)? {
                let (at, id) = (rfc3339_seconds(entry.at), entry.key.as_str());
                lines += &format!(
                    "{at:<20} {:<20} {:<8} {id:<16} {:<20} {}\n",
                    entry.actor, entry.change, entry.tenant, entry.about
                );
            }
            print(&lines)?;
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
