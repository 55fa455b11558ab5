//! Leave to do something at a LiveKit server: its access tokens (a JSON Web Token, HMAC-SHA256, with the
//! claim `video`).

use serde::Serialize;
use serde_json::{Value, json};

use super::Account;
use crate::sts::token::jwt;

/// For one call of the server's interface.
const CALL_SECONDS: u64 = 60;
/// To come in with; who is in stays.
const JOIN_SECONDS: u64 = 600;

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    nbf: u64,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    video: Value,
}

/// Clocks differ a little.
const EARLY_SECONDS: u64 = 10;

impl Account {
    fn sign(&self, sub: Option<&str>, kind: Option<&str>, now: u64, seconds: u64, video: Value) -> String {
        let nbf = now.saturating_sub(EARLY_SECONDS);
        let claims = Claims { iss: &self.key, sub, nbf, exp: now + seconds, kind, video };
        jwt(self.secret.expose().as_bytes(), &claims)
    }

    /// A caller's: speaks and hears. `now` in seconds of Unix time, as everywhere here.
    pub fn caller(&self, room: &str, identity: &str, now: u64, seconds: u64) -> String {
        let video = json!({
            "roomJoin": true, "room": room, "canPublish": true, "canPublishSources": ["microphone"],
            "canSubscribe": true, "canPublishData": true,
        });
        self.sign(Some(identity), Some("standard"), now, seconds, video)
    }

    /// Our own participant's: clients see that it is the agent.
    pub fn agent(&self, room: &str, identity: &str, now: u64) -> String {
        let video = json!({
            "roomJoin": true, "room": room, "agent": true, "canPublish": true, "canSubscribe": true,
            "canPublishData": true, "canUpdateOwnMetadata": true,
        });
        self.sign(Some(identity), Some("agent"), now, JOIN_SECONDS, video)
    }

    /// To make, find and delete rooms.
    pub fn rooms(&self, now: u64) -> String {
        self.sign(None, None, now, CALL_SECONDS, json!({"roomCreate": true, "roomList": true}))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn claims(token: &str) -> Value {
        let part = token.split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn a_caller_may_speak_in_one_room_and_the_agent_is_known_as_one() {
        let account = Account { key: "devkey".into(), secret: "secret".into() };
        let caller = claims(&account.caller("sts-1", "web-1", 1000, 900));
        assert_eq!(caller["iss"], "devkey");
        assert_eq!((&caller["sub"], &caller["exp"]), (&json!("web-1"), &json!(1900)));
        assert_eq!(caller["video"]["room"], "sts-1");
        assert_eq!(caller["video"]["canPublishSources"], json!(["microphone"]));
        for right in ["roomCreate", "roomAdmin", "canUpdateOwnMetadata", "agent"] {
            assert!(caller["video"][right].is_null(), "{right}");
        }
        let agent = claims(&account.agent("sts-1", "agent-1", 1000));
        assert_eq!((&agent["kind"], &agent["video"]["agent"]), (&json!("agent"), &json!(true)));
        assert_eq!(claims(&account.rooms(1000))["video"], json!({"roomCreate": true, "roomList": true}));
    }
}
