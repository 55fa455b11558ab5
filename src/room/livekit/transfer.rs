//! Handing a SIP caller of a room over to a number: `livekit.SIP/TransferSIPParticipant`, by Twirp
//! (<https://docs.livekit.io/reference/telephony/sip-api/>). The server asks the caller's trunk to refer the call.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde::Serialize;

use super::server::{CallError, LiveKit};
use crate::clock::now;
use crate::jwt;

/// The server answers once the trunk has taken the call, or has not: by default within 30 s.
const TIMEOUT: Duration = Duration::from_secs(45);
const TOKEN_SECONDS: u64 = 120;

#[derive(Serialize)]
struct Transfer<'a> {
    participant_identity: &'a str,
    play_dialtone: bool,
    room_name: &'a str,
    transfer_to: String,
}

/// The rights that the server asks for: its `EnsureSIPCallPermission` and `EnsureAdminPermission`.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    exp: u64,
    sip: Sip,
    video: Video<'a>,
}

#[derive(Serialize)]
struct Sip {
    call: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Video<'a> {
    room_admin: bool,
    room: &'a str,
}

impl LiveKit {
    /// Connects the SIP caller `identity` with `number`, in E.164 form.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn transfer(&self, room: &str, identity: &str, number: &str) -> Result<(), CallError> {
        let account = self.account();
        let (sip, video) = (Sip { call: true }, Video { room_admin: true, room });
        let claims = Claims { iss: &account.key, exp: now() / 1000 + TOKEN_SECONDS, sip, video };
        let token = jwt::sign(account.secret.expose().as_bytes(), &claims);
        let transfer_to = format!("tel:{number}");
        let body =
            Transfer { participant_identity: identity, play_dialtone: true, room_name: room, transfer_to };
        let body = serde_json::to_vec(&body).expect("names are strings; this is a bug");
        let request = self
            .client()
            .post(self.address("twirp/livekit.SIP/TransferSIPParticipant"))
            .bearer_auth(token)
            .header(CONTENT_TYPE, "application/json")
            .timeout(TIMEOUT)
            .body(body);
        let status = request.send().await.map_err(CallError::Unreachable)?.status();
        if status.is_success() { Ok(()) } else { Err(CallError::Refused { status: status.as_u16() }) }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::room::config::Config;

    /// Answers one request with `status`, and returns its head and body.
    async fn asked(listener: TcpListener, status: &str) -> (String, Value) {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        let head = String::from_utf8(head).expect("text");
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.expect("a length")];
        stream.read_exact(&mut body).await.expect("a body");
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).await.expect("a client");
        (head, serde_json::from_slice(&body).expect("JSON"))
    }

    #[tokio::test]
    async fn the_server_is_asked_with_the_rights_that_it_wants() {
        for (status, is_done) in [("200 OK", true), ("403 Forbidden", false)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let config = Config {
                url: Some(format!("ws://{}", listener.local_addr().expect("bound"))),
                api_key: Some("devkey".into()),
                api_secret: Some("secret".into()),
                ..Config::default()
            };
            let livekit = LiveKit::open(&config).expect("an address").expect("configured");
            let transfer = livekit.transfer("sts-1", "sip_1", "+14155550100");
            let ((head, body), done) = tokio::join!(asked(listener, status), transfer);
            assert_eq!(done.is_ok(), is_done, "{status}");
            assert!(head.starts_with("POST /twirp/livekit.SIP/TransferSIPParticipant "), "{head}");
            let expected = json!({"participant_identity": "sip_1", "play_dialtone": true, "room_name": "sts-1",
                "transfer_to": "tel:+14155550100"});
            assert_eq!(body, expected);
            let token =
                head.split("Bearer ").nth(1).or_else(|| head.split("bearer ").nth(1)).expect("a token");
            let claims = token.split('.').nth(1).expect("claims");
            let claims: Value =
                serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("base64")).expect("JSON");
            assert_eq!(
                (&claims["sip"], &claims["video"]),
                (&json!({"call": true}), &json!({"roomAdmin": true, "room": "sts-1"}))
            );
        }
    }
}
