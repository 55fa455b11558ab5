//! Text messages through the telephony provider's REST interface (Twilio's `Messages` resource, API
//! 2010-04-01, or one that speaks it).
//!
//! A message is marked on disk as being sent before the provider is asked, so it is sent at most once whatever
//! fails in between; a message found in that state after a restart counts as failed. If the provider says that it
//! did not accept a message, the message is queued again with the time of its next attempt, which also survives a
//! restart.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::Client;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::clock::{Millis, millis, now};
use crate::fetch::retry_after;
use crate::outbound;
use crate::secret::Secret;
use crate::session::{Error, Event, Handle, Sms, SmsStatus, sms_text};

/// The telephony provider, or a service with the same interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base address of its REST interface. Default `https://api.twilio.com`.
    pub base_url: String,
    pub account_sid: Option<String>,
    /// Authenticates requests in both directions. Without it, the provider's requests are not checked and no
    /// message is sent.
    pub auth_token: Option<Secret>,
    /// The number or messaging service (`MG…`) that messages are sent from.
    pub from: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self { base_url: "https://api.twilio.com".into(), account_sid: None, auth_token: None, from: None }
    }
}

const TIMEOUT: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: u32 = 5;
/// Pause after the first refused attempt; it doubles with each further one.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// If the provider asks for a longer pause, the message fails.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, thiserror::Error)]
pub enum SmsError {
    #[error("`sts.twilio.base_url` and `sts.twilio.account_sid` make no address")]
    Address,
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Sends queued messages through the provider. Without a provider they stay queued.
#[derive(Clone)]
pub struct Courier {
    provider: Option<Arc<Provider>>,
}

struct Provider {
    client: Client,
    messages: Url,
    account: String,
    token: Secret,
    from: String,
}

/// The provider's answer.
enum Answer {
    Sent {
        sid: Option<String>,
    },
    Refused {
        error: String,
    },
    /// It did not accept the message, and may say when to try again.
    Later {
        error: String,
        retry_after: Option<Duration>,
    },
}

impl Courier {
    /// # Errors
    /// [`SmsError`].
    pub fn new(config: &Config) -> Result<Self, SmsError> {
        let (Some(account), Some(token), Some(from)) =
            (&config.account_sid, &config.auth_token, &config.from)
        else {
            return Ok(Self { provider: None });
        };
        let mut messages = Url::parse(&config.base_url).map_err(|_| SmsError::Address)?;
        messages.path_segments_mut().map_err(|()| SmsError::Address)?.pop_if_empty().extend([
            "2010-04-01",
            "Accounts",
            account,
            "Messages.json",
        ]);
        let provider = Provider {
            client: outbound::client()?,
            messages,
            account: account.clone(),
            token: token.clone(),
            from: from.clone(),
        };
        Ok(Self { provider: Some(Arc::new(provider)) })
    }

    /// Whether there is a provider.
    pub fn can_send(&self) -> bool {
        self.provider.is_some()
    }

    /// The provider's name for snapshots: `twilio` or `none`.
    pub fn provider(&self) -> &'static str {
        if self.provider.is_some() { "twilio" } else { "none" }
    }

    /// Sends all queued messages of a session one after another, each when it is due.
    pub async fn deliver(&self, handle: &Handle) {
        let Some(provider) = &self.provider else { return };
        while let Some(due) = handle.read(|session| next_due(&session.messages)) {
            let wait = Duration::from_millis(due.saturating_sub(now()));
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
                continue;
            }
            match take(handle).await {
                Ok(Some(message)) => {
                    let answer = provider.bring(handle, &message).await;
                    if let Err(error) = note(handle, &message.id, answer).await {
                        tracing::error!(session = handle.id, %error, "what became of a message is not noted");
                        return;
                    }
                }
                // Another task has taken it.
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(session = handle.id, %error, "a message could not be marked as being sent");
                    return;
                }
            }
        }
    }
}

/// When the next queued message is due.
fn next_due(messages: &[Sms]) -> Option<Millis> {
    let queued = messages.iter().filter(|message| message.status == SmsStatus::Queued);
    queued.map(|message| message.retry_at_ms.unwrap_or(0)).min()
}

/// Claims the next due message, so that no other task sends it.
async fn take(handle: &Handle) -> Result<Option<Sms>, Error> {
    handle
        .change(|session, now, events| {
            let is_due = |message: &Sms| {
                message.status == SmsStatus::Queued && message.retry_at_ms.is_none_or(|at| at <= now)
            };
            let queued = session.messages.iter_mut().find(|message| is_due(message));
            Ok(queued.map(|message| {
                (message.status, message.retry_at_ms) = (SmsStatus::Sending, None);
                message.attempts += 1;
                events.push(Event::SmsUpdated(Box::new(message.clone())));
                message.clone()
            }))
        })
        .await
}

async fn note(handle: &Handle, id: &str, answer: Answer) -> Result<(), Error> {
    handle
        .change(|session, now, events| {
            if let Some(message) = session.messages.iter_mut().find(|message| message.id == id) {
                settle(message, answer, now);
                events.push(Event::SmsUpdated(Box::new(message.clone())));
            }
            Ok(())
        })
        .await
}

/// Updates a message after the provider's answer.
fn settle(message: &mut Sms, answer: Answer, now: Millis) {
    match answer {
        Answer::Sent { sid } => {
            (message.status, message.sid, message.error) = (SmsStatus::Sent, sid, None);
        }
        Answer::Refused { error } => (message.status, message.error) = (SmsStatus::Failed, Some(error)),
        Answer::Later { error, retry_after } => {
            let backoff = RETRY_WAIT * 2_u32.pow(message.attempts.saturating_sub(1).min(ATTEMPTS_MAX));
            let wait = retry_after.unwrap_or_default().max(backoff);
            message.error = Some(error);
            if message.attempts >= ATTEMPTS_MAX || wait > RETRY_AFTER_MAX {
                message.status = SmsStatus::Failed;
            } else {
                let retry_at = now.saturating_add(millis(wait));
                (message.status, message.retry_at_ms) = (SmsStatus::Queued, Some(retry_at));
            }
        }
    }
}

impl Provider {
    async fn bring(&self, handle: &Handle, message: &Sms) -> Answer {
        let Some(body) = handle.setup().link_catalog.get(&message.sms_catalog_key).map(sms_text) else {
            return Answer::Refused { error: "the link is not in the catalogue".into() };
        };
        self.send(message.to.as_deref().unwrap_or_default(), &body).await
    }

    async fn send(&self, to: &str, body: &str) -> Answer {
        let sender = if self.from.starts_with("MG") { "MessagingServiceSid" } else { "From" };
        let form = Serializer::new(String::new())
            .append_pair("To", to)
            .append_pair(sender, &self.from)
            .append_pair("Body", body)
            .finish();
        let request = self
            .client
            .post(self.messages.clone())
            .basic_auth(&self.account, Some(self.token.expose()))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .timeout(TIMEOUT)
            .body(form);
        let response = match request.send().await {
            Ok(response) => response,
            // Without a connection nothing was sent.
            Err(error) if error.is_connect() => {
                let error = "the provider could not be reached".into();
                return Answer::Later { error, retry_after: None };
            }
            Err(_) => return Answer::Refused { error: "no answer: it may have been sent".into() },
        };
        let status = response.status();
        if status.as_u16() == 429 || status.is_server_error() {
            let retry_after = retry_after(response.headers(), SystemTime::now());
            return Answer::Later { error: format!("status {}", status.as_u16()), retry_after };
        }
        let reply = outbound::read_json(response).await.unwrap_or(Value::Null);
        // The provider's texts quote the number; its codes do not.
        let code = |name: &str| reply.get(name).and_then(Value::as_u64);
        if !status.is_success() {
            let error =
                code("code").map_or(format!("status {}", status.as_u16()), |code| format!("code {code}"));
            return Answer::Refused { error };
        }
        // An accepted message may have failed already.
        let fate = reply.get("status").and_then(Value::as_str).unwrap_or_default();
        if matches!(fate, "failed" | "undelivered" | "canceled") {
            let error = code("error_code").map_or_else(|| fate.to_owned(), |code| format!("code {code}"));
            return Answer::Refused { error };
        }
        Answer::Sent { sid: reply.get("sid").and_then(Value::as_str).map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Sms {
        Sms {
            id: "c:forms".into(),
            category: "c".into(),
            sms_catalog_key: "forms".into(),
            status: SmsStatus::Queued,
            sid: None,
            error: None,
            to: None,
            attempts: 0,
            retry_at_ms: None,
        }
    }

    #[test]
    fn a_message_that_is_not_taken_waits_longer_each_time_and_not_forever() {
        let mut message = message();
        let mut waits = Vec::new();
        while message.status == SmsStatus::Queued {
            message.attempts += 1;
            let later = Answer::Later { error: "status 503".into(), retry_after: None };
            settle(&mut message, later, 1000);
            waits.extend(message.retry_at_ms.take());
        }
        assert_eq!(waits, [2000, 3000, 5000, 9000]);
        assert_eq!((message.status, message.error.as_deref()), (SmsStatus::Failed, Some("status 503")));
    }

    #[test]
    fn what_the_provider_asks_for_is_waited_for_within_reason() {
        let settled = |seconds| {
            let mut message = Sms { attempts: 1, ..message() };
            let retry_after = Some(Duration::from_secs(seconds));
            settle(&mut message, Answer::Later { error: "status 429".into(), retry_after }, 0);
            (message.status, message.retry_at_ms)
        };
        assert_eq!(settled(0), (SmsStatus::Queued, Some(1000)));
        assert_eq!(settled(120), (SmsStatus::Queued, Some(120_000)));
        assert_eq!(settled(3600), (SmsStatus::Failed, None));
    }
}
