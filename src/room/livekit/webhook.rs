//! Webhooks of a LiveKit server: JSON whose `Authorization` is a token, signed with the account's secret, that has the
//! SHA-256 of the body. Source: `livekit/protocol`, `webhook/verifier.go` and `livekit_webhook.proto`.

use data_encoding::BASE64;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::grant::Account;
use crate::jwt;
use crate::room::reception::{Happening, News};

/// Tolerance for clocks that differ, in seconds.
const CLOCKS_DIFFER: u64 = 60;

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("the request is not signed by the LiveKit server")]
    NotSigned,
    #[error("the event is no JSON of LiveKit's form")]
    Form,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    /// In base64.
    sha256: String,
    exp: u64,
    #[serde(default)]
    nbf: u64,
}

#[derive(Deserialize)]
struct Event {
    event: String,
    room: Option<Room>,
    participant: Option<Participant>,
}

#[derive(Deserialize)]
struct Room {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Participant {
    /// The name of the kind, or its number.
    kind: Name,
    #[serde(alias = "disconnect_reason")]
    disconnect_reason: Name,
}

/// A value of an enumeration, which its JSON names or numbers. None is the first.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(i64),
    #[default]
    None,
}

impl Name {
    fn is(&self, name: &str, number: i64) -> bool {
        match self {
            Self::Text(text) => text == name,
            Self::Number(given) => *given == number,
            Self::None => number == 0,
        }
    }
}

/// The event of a webhook with this `Authorization`; none if it is of no interest. `now`: seconds of Unix time.
pub fn read(
    account: &Account,
    authorization: &str,
    body: &[u8],
    now: u64,
) -> Result<Option<News>, WebhookError> {
    let token = authorization.strip_prefix("Bearer ").unwrap_or(authorization).trim();
    let claims: Option<Claims> = jwt::check(account.secret.expose().as_bytes(), token);
    let claims = claims.ok_or(WebhookError::NotSigned)?;
    let is_current = now < claims.exp.saturating_add(CLOCKS_DIFFER) && claims.nbf <= now + CLOCKS_DIFFER;
    // No secret: the signature is over it.
    let is_whole = BASE64.encode(&Sha256::digest(body)) == claims.sha256;
    if claims.iss != account.key || !is_current || !is_whole {
        return Err(WebhookError::NotSigned);
    }
    let Event { event, room, participant } = serde_json::from_slice(body).map_err(|_| WebhookError::Form)?;
    let Some(room) = room.map(|room| room.name).filter(|name| !name.is_empty()) else { return Ok(None) };
    let participant = participant.unwrap_or_default();
    let is_phone = participant.kind.is("SIP", 3);
    let is_caller = is_phone || participant.kind.is("STANDARD", 0);
    let happening = match event.as_str() {
        "room_finished" => Happening::Finished,
        // A connection that was lost may come back.
        "participant_left" if is_phone => Happening::HungUp,
        "participant_left" if is_caller && participant.disconnect_reason.is("CLIENT_INITIATED", 1) => {
            Happening::Left
        }
        _ => return Ok(None),
    };
    Ok(Some(News { room, happening }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn account() -> Account {
        Account { key: "devkey".into(), secret: "secret".into() }
    }

    fn signed(body: &str, exp: u64) -> String {
        let sha256 = BASE64.encode(&Sha256::digest(body.as_bytes()));
        jwt::sign(b"secret", &json!({"iss": "devkey", "sha256": sha256, "exp": exp, "nbf": 100}))
    }

    fn happening(body: &str) -> Option<Happening> {
        let news = read(&account(), &signed(body, 400), body.as_bytes(), 200).expect("signed");
        news.map(|news| {
            assert_eq!(news.room, "sts-1");
            news.happening
        })
    }

    #[test]
    fn who_leaves_and_rooms_that_end_are_told() {
        let left = |kind: &str, reason: &str| {
            happening(&format!(
                r#"{{"event":"participant_left","room":{{"sid":"RM_1","name":"sts-1"}},
                    "participant":{{"sid":"PA_1","kind":"{kind}","disconnectReason":"{reason}"}},"id":"EV_1"}}"#
            ))
        };
        assert_eq!(left("STANDARD", "CLIENT_INITIATED"), Some(Happening::Left));
        assert_eq!(left("STANDARD", "CONNECTION_TIMEOUT"), None);
        assert_eq!(left("SIP", "CONNECTION_TIMEOUT"), Some(Happening::HungUp));
        assert_eq!(left("AGENT", "CLIENT_INITIATED"), None);
        let finished = r#"{"event":"room_finished","room":{"name":"sts-1"}}"#;
        assert_eq!(happening(finished), Some(Happening::Finished));
        for other in [
            r#"{"event":"room_started","room":{"name":"sts-1"}}"#,
            r#"{"event":"participant_left","room":{"name":"sts-1"},"participant":{"kind":4}}"#,
            r#"{"event":"egress_ended"}"#,
        ] {
            assert_eq!(happening(other), None, "{other}");
        }
    }

    #[test]
    fn only_whole_bodies_signed_by_the_account_are_believed() {
        let body = r#"{"event":"room_finished","room":{"name":"sts-1"}}"#;
        let token = signed(body, 400);
        let ok = |account: &Account, token: &str, body: &str, now| {
            read(account, token, body.as_bytes(), now).is_ok()
        };
        assert!(ok(&account(), &token, body, 399 + CLOCKS_DIFFER));
        assert!(ok(&account(), &format!("Bearer {token}"), body, 200));
        assert!(!ok(&account(), &token, body, 400 + CLOCKS_DIFFER));
        assert!(!ok(&account(), &token, body, 10));
        assert!(!ok(&account(), &token, &body.replace("sts-1", "sts-2"), 200));
        assert!(!ok(&Account { key: "other".into(), secret: "secret".into() }, &token, body, 200));
        assert!(!ok(&Account { key: "devkey".into(), secret: "other".into() }, &token, body, 200));
        for other in ["", "x", "Bearer", "a.b.c"] {
            assert!(!ok(&account(), other, body, 200), "{other}");
        }
        let form = read(&account(), &signed("{", 400), b"{", 200);
        assert!(matches!(form, Err(WebhookError::Form)));
    }
}
