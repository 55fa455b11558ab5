//! Limits of keys over HTTP: the account that a request is counted on, the headers that tell how much is left, and the
//! refusal of a request beyond them.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use uuid::Uuid;

use super::failure::{Failure, whole_seconds};
use crate::keys::{Exceeded, Limit, Permit, Verifier};
use crate::usage::{self, Figures};

/// The account of a request's key, as the request's entry in the log holds it.
struct Account(Permit);

impl usage::Account for Account {
    fn charge(&self, audio_seconds: f64) {
        self.0.charge(audio_seconds);
    }

    /// Under the names that OpenAI's clients read, and others like them.
    fn figures(&self) -> Figures {
        let standing = self.0.standing();
        let mut figures = Vec::new();
        if let Some((most, left, clear)) = standing.requests {
            figures.push(("x-ratelimit-limit-requests", most.to_string()));
            figures.push(("x-ratelimit-remaining-requests", left.to_string()));
            figures.push(("x-ratelimit-reset-requests", format!("{clear}s")));
        }
        if let Some((most, left)) = standing.concurrent {
            figures.push(("x-ratelimit-limit-concurrent", most.to_string()));
            figures.push(("x-ratelimit-remaining-concurrent", left.to_string()));
        }
        if let Some((most, left)) = standing.day {
            figures.push(("x-ratelimit-limit-audio-seconds-day", most.to_string()));
            figures.push(("x-ratelimit-remaining-audio-seconds-day", left.to_string()));
        }
        if let Some((most, left)) = standing.month {
            figures.push(("x-ratelimit-limit-audio-seconds-month", most.to_string()));
            figures.push(("x-ratelimit-remaining-audio-seconds-month", left.to_string()));
        }
        figures
    }
}

/// The account of work that goes on after its request: of the key with this public id, if that has limits.
pub fn account_of_key(keys: &Verifier, key: Uuid) -> Option<Box<dyn usage::Account>> {
    let permit = keys.ledger().charge(key)?;
    Some(Box::new(Account(permit)))
}

/// The account with this id.
pub fn account(keys: &Verifier, id: Uuid) -> Box<dyn usage::Account> {
    Box::new(Account(keys.ledger().account(id)))
}

pub(super) fn of_permit(permit: Permit) -> Box<dyn usage::Account> {
    Box::new(Account(permit))
}

/// Headers that tell how much is left.
pub(super) fn headers(figures: Figures) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    figures.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(&value).ok()?))
    })
}

/// 429 with the time after which the request would be within its limit.
pub(super) fn refusal(exceeded: &Exceeded) -> Failure {
    let Exceeded { limit, most, retry_after } = exceeded;
    let (about, name) = match limit {
        Limit::RequestsPerMinute => (format!("This key may make {most} requests per minute."), "requests"),
        Limit::Concurrent => {
            (format!("This key may have {most} requests in progress at once."), "concurrent")
        }
        Limit::AudioSecondsPerDay => {
            (format!("This key has used its {most} seconds of audio of today (UTC)."), "audio-seconds-day")
        }
        Limit::AudioSecondsPerMonth => (
            format!("This key has used its {most} seconds of audio of this month (UTC)."),
            "audio-seconds-month",
        ),
    };
    let after = whole_seconds(*retry_after);
    let message = format!("Too many requests. {about} Please try again later");
    let mut failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", message)
        .header(RETRY_AFTER, after)
        .because(exceeded);
    for (kind, value) in [("limit", most.to_string()), ("remaining", "0".to_owned())] {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(format!("x-ratelimit-{kind}-{name}")), HeaderValue::try_from(value))
        {
            failure = failure.header(name, value);
        }
    }
    failure
}
