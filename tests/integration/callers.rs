//! Keys: which requests are admitted.

use std::time::Duration;

use serde_json::json;
use verbatim::http::auth;
use verbatim::keys::{REFRESH_INTERVAL, Secret, Store};

use crate::server::{RAW, Setup, TestServer, answer, client, read, refusal, say};
use crate::socket::connect;

#[tokio::test]
async fn only_a_valid_key_opens() {
    let server = TestServer::start(Setup::default()).await;
    let key = server.key.clone();
    let stranger = Secret::generate();
    let post = |authorization: &[&str]| {
        let mut request = client().post(server.url(&format!("/v1/listen?{RAW}"))).body(say(1));
        for value in authorization {
            request = request.header("authorization", *value);
        }
        request
    };
    for scheme in ["Bearer", "bearer", "BEARER", "Token", "token"] {
        assert_eq!(answer(post(&[&format!("{scheme} {key}")])).await.0, 200, "{scheme}");
    }
    let (mut changed, bare) = (key.clone(), key.replacen("org_", "", 1));
    changed.replace_range(20..21, if &key[20..21] == "a" { "b" } else { "a" });
    let good = format!("Bearer {key}");
    for authorization in [
        &[][..],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &[key.as_str()],
        &[&format!("Basic {key}")],
        &[&format!("Bearer {changed}")],
        &[&format!("Bearer {bare}")],
        &[&format!("Bearer sk_{bare}")],
        &[&format!("Bearer {}", stranger.expose())],
        &[&format!("Bearer {} {key}", stranger.expose())],
        &[&format!("Bearer {}", key.to_uppercase())],
        &[&good, &good],
        &["Bearer org_"],
        &["Bearer org_'; DROP TABLE keys; --"],
    ] {
        let response = post(authorization).send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        let (status, body) = read(response).await;
        assert_eq!(
            (status, &body["err_code"], &body["err_msg"]),
            (401, &json!("INVALID_AUTH"), &json!("Invalid credentials.")),
            "{authorization:?}"
        );
    }
    let in_query =
        client().post(server.url(&format!("/v1/listen?{RAW}&api_key={key}&token={key}"))).body(say(1));
    assert_eq!(refusal(in_query).await.0, 401);
}

#[tokio::test]
async fn the_token_scheme_can_be_turned_off() {
    let auth = auth::Config { accept_token_scheme: false };
    let server = TestServer::start(Setup { auth, ..Setup::default() }).await;
    let token = client()
        .post(server.url(&format!("/v1/listen?{RAW}")))
        .header("authorization", format!("Token {}", server.key))
        .body(say(1));
    assert_eq!(refusal(token).await, (401, "INVALID_AUTH".into()));
    assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
    // A WebSocket's key arrives as the contract says: after `token`, in the subprotocol only.
    let path = format!("/v1/listen?{RAW}");
    for (header, value, status) in [
        ("sec-websocket-protocol", format!("token, {}", server.key), 101),
        ("sec-websocket-protocol", "token, org_nobody".to_owned(), 401),
        ("authorization", format!("Bearer {}", server.key), 101),
        ("authorization", format!("Token {}", server.key), 401),
    ] {
        let handshake = connect(server.address, &path, &[(header, &value)]).await;
        assert_eq!(handshake.status, status, "{header}: {value}");
    }
}

#[tokio::test]
async fn keys_are_made_and_revoked_while_the_server_runs() {
    let server = TestServer::start(Setup::default()).await;
    let store = Store::open(server.state.path()).unwrap();
    let (key, secret) = store.create("late").unwrap();
    let with = |secret: &Secret| {
        client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(secret.expose()).body(say(1))
    };
    let turned = async |wanted: u16| {
        let begun = std::time::Instant::now();
        while answer(with(&secret)).await.0 != wanted {
            assert!(begun.elapsed() < 2 * REFRESH_INTERVAL + Duration::from_secs(5), "never {wanted}");
        }
    };
    turned(200).await;
    store.revoke(&key.id).unwrap();
    turned(401).await;
    assert_eq!(answer(server.listen(RAW, say(1))).await.0, 200);
}
