//! Text messages through the telephony provider's REST interface (Twilio's `Messages` resource, API
//! 2010-04-01, or one that speaks it).
//!
//! A message is marked as being sent, on disk, before the provider is asked. So it goes out once at
//! most, whatever breaks in between; what is found so after a restart is shown as failed.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::Value;
use url::Url;
use url::form_urlencoded::Serializer;

use super::Error;
use super::config::{Secret, Twilio};
use super::event::Event;
use super::outbound;
use super::session::{Sms, SmsStatus, sms_body};
use super::sessions::Live;

const TIMEOUT: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: u32 = 3;
const RETRY_WAIT: Duration = Duration::from_secs(1);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);
/// The provider takes no longer ones.
const BODY_CHARACTERS_MAX: usize = 1600;

#[derive(Debug, thiserror::Error)]
pub enum SmsError {
    #[error("`sts.twilio.base_url` and `sts.twilio.account_sid` make no address")]
    Address,
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}

/// Brings messages to the provider; without one they stay where they are.
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

/// What the provider said.
enum Answer {
    Sent {
        sid: Option<String>,
    },
    Refused {
        error: String,
    },
    /// It has not taken the message, for sure.
    Later(Duration),
}

impl Courier {
    /// # Errors
    /// [`SmsError`].
    pub fn new(config: &Twilio) -> Result<Self, SmsError> {
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

    /// For the snapshot.
    pub fn provider(&self) -> &'static str {
        if self.provider.is_some() { "twilio" } else { "none" }
    }

    /// Sends all that is queued in a session, one after the other.
    pub async fn deliver(&self, live: &Live) {
        let Some(provider) = &self.provider else { return };
        loop {
            match take(live).await {
                Ok(Some(message)) => {
                    let answer = provider.send_patiently(live, &message).await;
                    if let Err(error) = note(live, &message.id, answer).await {
                        tracing::error!(session = live.id, %error, "what became of a message is not noted");
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(session = live.id, %error, "a message could not be marked as being sent");
                    return;
                }
            }
        }
    }
}

/// Takes the next queued message, for this caller alone.
async fn take(live: &Live) -> Result<Option<Sms>, Error> {
    if !live.read(|session| session.messages.iter().any(|message| message.status == SmsStatus::Queued)) {
        return Ok(None);
    }
    live.change(|session, _, events| {
        let queued = session.messages.iter_mut().find(|message| message.status == SmsStatus::Queued);
        Ok(queued.map(|message| {
            message.status = SmsStatus::Sending;
            events.push(Event::SmsUpdated(Box::new(message.clone())));
            message.clone()
        }))
    })
    .await
}

async fn note(live: &Live, id: &str, answer: Answer) -> Result<(), Error> {
    live.change(|session, _, events| {
        if let Some(message) = session.messages.iter_mut().find(|message| message.id == id) {
            match answer {
                Answer::Sent { sid } => (message.status, message.sid) = (SmsStatus::Sent, sid),
                Answer::Refused { error } => {
                    (message.status, message.error) = (SmsStatus::Failed, Some(error));
                }
                Answer::Later(_) => {
                    (message.status, message.error) =
                        (SmsStatus::Failed, Some("the provider could not be reached".into()));
                }
            }
            events.push(Event::SmsUpdated(Box::new(message.clone())));
        }
        Ok(())
    })
    .await
}

impl Provider {
    async fn send_patiently(&self, live: &Live, message: &Sms) -> Answer {
        let Some(link) = live.setup.link_catalog.get(&message.sms_catalog_key) else {
            return Answer::Refused { error: "the link is not in the catalogue".into() };
        };
        let body: String = sms_body(link).chars().take(BODY_CHARACTERS_MAX).collect();
        let to = message.to.as_deref().unwrap_or_default();
        let mut answer = self.send(to, &body).await;
        for _ in 1..ATTEMPTS_MAX {
            let Answer::Later(wait) = answer else { break };
            tokio::time::sleep(wait).await;
            answer = self.send(to, &body).await;
        }
        answer
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
            // Nothing was sent where there was no connection to send it over.
            Err(error) if error.is_connect() => return Answer::Later(RETRY_WAIT),
            Err(_) => return Answer::Refused { error: "no answer: it may have been sent".into() },
        };
        let status = response.status();
        if status.as_u16() == 429 {
            let wait =
                response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let wait = wait.map_or(RETRY_WAIT, Duration::from_secs);
            return Answer::Later(wait.min(RETRY_WAIT_MAX));
        }
        let reply = outbound::read_json(response).await.unwrap_or(Value::Null);
        if status.is_success() {
            return Answer::Sent { sid: reply.get("sid").and_then(Value::as_str).map(str::to_owned) };
        }
        // Its texts quote the number; its codes do not.
        let code = reply.get("code").and_then(Value::as_u64);
        Answer::Refused {
            error: code.map_or(format!("status {}", status.as_u16()), |code| format!("code {code}")),
        }
    }
}
