//! Access tokens of a LiveKit server: JSON Web Tokens signed with HMAC-SHA256 whose claim `video` lists rights.

use serde::Serialize;

use crate::jwt;
use crate::secret::Secret;

/// The account at the server.
pub struct Account {
    pub key: String,
    pub secret: Secret,
}

/// Lifetime of a token for one call.
const CALL_SECONDS: u64 = 60;
/// Lifetime of the agent's token. It is needed only while joining.
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
    video: Video<'a>,
}

/// The rights of a token. Only granted rights are listed.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Video<'a> {
    #[serde(skip_serializing_if = "is_not")]
    agent: bool,
    /// None means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    can_publish: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    can_publish_data: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    can_publish_sources: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "is_not")]
    can_subscribe: bool,
    #[serde(skip_serializing_if = "is_not")]
    can_update_own_metadata: bool,
    #[serde(skip_serializing_if = "is_not")]
    hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    room: Option<&'a str>,
    #[serde(skip_serializing_if = "is_not")]
    room_admin: bool,
    #[serde(skip_serializing_if = "is_not")]
    room_create: bool,
    #[serde(skip_serializing_if = "is_not")]
    room_join: bool,
    #[serde(skip_serializing_if = "is_not")]
    room_list: bool,
}

fn is_not(right: &bool) -> bool {
    !right
}

/// Tolerance for clocks that differ.
const EARLY_SECONDS: u64 = 10;

impl Account {
    fn sign(
        &self,
        sub: Option<&str>,
        kind: Option<&str>,
        now: u64,
        seconds: u64,
        video: Video<'_>,
    ) -> String {
        let nbf = now.saturating_sub(EARLY_SECONDS);
        let claims = Claims { iss: &self.key, sub, nbf, exp: now + seconds, kind, video };
        jwt::sign(self.secret.expose().as_bytes(), &claims)
    }

    /// A caller's token: the right to speak and hear. `now`: seconds of Unix time, here and below.
    pub fn caller(&self, room: &str, identity: &str, now: u64, seconds: u64) -> String {
        let video = Video {
            room_join: true,
            room: Some(room),
            can_publish: Some(true),
            can_publish_sources: Some(["microphone"]),
            can_subscribe: true,
            can_publish_data: Some(true),
            ..Video::default()
        };
        self.sign(Some(identity), Some("standard"), now, seconds, video)
    }

    /// The token of someone who listens in: the others do not see them.
    pub fn observer(&self, room: &str, identity: &str, now: u64, seconds: u64) -> String {
        let video = Video {
            room_join: true,
            room: Some(room),
            can_publish: Some(false),
            can_publish_data: Some(false),
            can_subscribe: true,
            hidden: true,
            ..Video::default()
        };
        self.sign(Some(identity), Some("standard"), now, seconds, video)
    }

    /// The agent's token: clients see that it is the agent.
    pub fn agent(&self, room: &str, identity: &str, now: u64) -> String {
        let video = Video {
            room_join: true,
            room: Some(room),
            agent: true,
            can_publish: Some(true),
            can_subscribe: true,
            can_publish_data: Some(true),
            can_update_own_metadata: true,
            ..Video::default()
        };
        self.sign(Some(identity), Some("agent"), now, JOIN_SECONDS, video)
    }

    /// A token to take agents' jobs.
    pub fn worker(&self, now: u64) -> String {
        self.sign(None, None, now, CALL_SECONDS, Video { agent: true, ..Video::default() })
    }

    /// A token to look into one room.
    pub fn admin(&self, room: &str, now: u64) -> String {
        self.sign(
            None,
            None,
            now,
            CALL_SECONDS,
            Video { room: Some(room), room_admin: true, ..Video::default() },
        )
    }

    /// A token to create, find and delete rooms.
    pub fn rooms(&self, now: u64) -> String {
        let video = Video { room_create: true, room_list: true, ..Video::default() };
        self.sign(None, None, now, CALL_SECONDS, video)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

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
        let observer = claims(&account.observer("sts-1", "observer-1", 1000, 900));
        assert_eq!(
            observer["video"],
            json!({
                "roomJoin": true, "room": "sts-1", "hidden": true, "canSubscribe": true,
                "canPublish": false, "canPublishData": false,
            })
        );
        let agent = claims(&account.agent("sts-1", "agent-1", 1000));
        assert_eq!((&agent["kind"], &agent["video"]["agent"]), (&json!("agent"), &json!(true)));
        assert_eq!(claims(&account.rooms(1000))["video"], json!({"roomCreate": true, "roomList": true}));
    }
}
