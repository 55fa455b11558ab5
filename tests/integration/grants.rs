//! Tokens: what a browser gets instead of a key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Sha256, Sha512};
use uuid::Uuid;
use verbatim::keys::{NewKey, Scopes, Store, public_id};

use crate::server::{RAW, Setup, TestServer, answer, client, read, refusal, say, until_known};
use crate::socket::connect;

const PATIENCE: Duration = Duration::from_secs(30);
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

async fn server() -> TestServer {
    TestServer::start(Setup { organisations: 2, ..Setup::default() }).await
}

fn ask_for_token(server: &TestServer, key: &str, body: &str) -> reqwest::RequestBuilder {
    client().post(server.url("/v1/auth/grant")).bearer_auth(key).body(body.to_owned())
}

async fn granted(server: &TestServer, key: &str) -> String {
    let (status, body) = answer(ask_for_token(server, key, "")).await;
    assert_eq!(status, 200, "{body}");
    body["access_token"].as_str().expect("text").to_owned()
}

fn listen(server: &TestServer, authorization: &str) -> reqwest::RequestBuilder {
    let url = server.url(&format!("/v1/listen?{RAW}"));
    client().post(url).header("authorization", authorization).body(say(1))
}

/// A key of the server's first organisation.
async fn key_with(server: &TestServer, scopes: &[&str], expires: Option<SystemTime>) -> String {
    let store = Store::open(server.state.path()).expect("keys");
    let tenant = store.list().expect("keys").first().map(|key| key.tenant);
    let scopes = Scopes::parse(scopes.iter().copied()).expect("scopes");
    let new = NewKey { tenant, scopes, expires, ..NewKey::of_a_client("scoped") };
    let key = store.insert(new).expect("a key").1.expose().to_owned();
    until_known(&server.url(""), &key).await;
    key
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// The claims of a token that the server made.
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).expect("base64url")).expect("JSON")
}

fn unsigned(header: &str, claims: &Value) -> String {
    let claims = claims.to_string();
    format!("{}.{}", BASE64URL_NOPAD.encode(header.as_bytes()), BASE64URL_NOPAD.encode(claims.as_bytes()))
}

fn signed(header: &str, claims: &Value, key: &[u8]) -> String {
    let unsigned = unsigned(header, claims);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(unsigned.as_bytes());
    format!("{unsigned}.{}", BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
}

#[tokio::test]
async fn a_token_opens_what_a_key_opens() {
    let server = server().await;
    let (status, body) = answer(ask_for_token(&server, &server.key, r#"{"ttl_seconds": 60.0}"#)).await;
    assert_eq!((status, &body["expires_in"]), (200, &json!(60)));
    let token = body["access_token"].as_str().expect("text");
    for scheme in ["Bearer", "bearer", "Token"] {
        let (status, body) = answer(listen(&server, &format!("{scheme} {token}"))).await;
        assert_eq!(status, 200, "{scheme}: {body}");
        // Only clients of the wire format have tokens, and they expect words.
        assert!(body["results"]["channels"][0]["alternatives"][0]["words"].is_array(), "{scheme}");
    }
    let path = format!("/v1/listen?{RAW}");
    for (name, value, agreed) in [
        ("sec-websocket-protocol", format!("bearer, {token}"), Some("bearer")),
        ("sec-websocket-protocol", format!("token, {token}"), Some("token")),
        ("authorization", format!("Bearer {token}"), None),
    ] {
        let handshake = connect(server.address, &path, &[(name, &value)]).await;
        assert_eq!((handshake.status, handshake.header("sec-websocket-protocol")), (101, agreed), "{value}");
    }
    // What is in no header is no credential.
    let in_query = client().post(server.url(&format!("{path}&access_token={token}"))).body(say(1));
    assert_eq!(refusal(in_query).await.0, 401);
}

#[tokio::test]
async fn a_token_says_when_it_ends() {
    let server = server().await;
    for (body, seconds) in
        [("", 30), ("{}", 30), (r#"{"ttl_seconds": 1}"#, 1), (r#"{"ttl_seconds": 3600}"#, 3600)]
    {
        let before = unix_now();
        let (status, body) = answer(ask_for_token(&server, &server.key, body)).await;
        assert_eq!((status, &body["expires_in"]), (200, &json!(seconds)));
        let claims = claims(body["access_token"].as_str().expect("text"));
        let (made, ends) = (claims["iat"].as_u64().expect("a time"), claims["exp"].as_u64().expect("a time"));
        assert!(made >= before && made <= unix_now());
        assert_eq!(ends - made, seconds);
    }
    for body in [
        r#"{"ttl_seconds": 0}"#,
        r#"{"ttl_seconds": 3601}"#,
        r#"{"ttl_seconds": -1}"#,
        r#"{"ttl_seconds": 1e308}"#,
        r#"{"ttl_seconds": "60"}"#,
        r#"{"ttl_seconds": [60]}"#,
        "{",
        "[]",
        "null x",
    ] {
        assert_eq!(
            refusal(ask_for_token(&server, &server.key, body)).await,
            (400, "INVALID_JSON".into()),
            "{body}"
        );
    }
    let (status, body) = answer(client().get(server.url("/v1/auth/token")).bearer_auth(&server.key)).await;
    assert_eq!((status, &body["kind"], &body["expiration_date"]), (200, &json!("key"), &Value::Null));
    let token = granted(&server, &server.key).await;
    let (status, of_token) = answer(client().get(server.url("/v1/auth/token")).bearer_auth(&token)).await;
    assert_eq!(
        (status, &of_token["kind"], &of_token["scopes"]),
        (200, &json!("token"), &json!(["usage:write"]))
    );
    assert_eq!(of_token["api_key_id"], body["api_key_id"]);
    assert!(of_token["expiration_date"].is_string());
}

#[tokio::test]
async fn a_token_that_is_not_the_servers_own_is_refused() {
    let server = server().await;
    let token = granted(&server, &server.key).await;
    let signing_key = std::fs::read(server.state.path().join("keys.signing")).expect("a signing key");
    let good = claims(&token);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        signed(HEADER, &claims, &signing_key)
    };
    // The forger of these tests can sign.
    assert_eq!(
        answer(listen(&server, &format!("Bearer {}", signed(HEADER, &good, &signing_key)))).await.0,
        200
    );

    let keys = Store::open(server.state.path()).and_then(|store| store.list()).expect("keys");
    let own = good["sub"].as_str().expect("text");
    let others =
        keys.iter().find(|key| key.id.as_str() != own && !key.is_operator).expect("another organisation's");
    let now = unix_now();
    let without_claim = {
        let mut claims = good.clone();
        claims.as_object_mut().expect("an object").remove("exp");
        signed(HEADER, &claims, &signing_key)
    };
    let sha512 = {
        let unsigned = unsigned(r#"{"alg":"HS512","typ":"JWT"}"#, &good);
        let mut mac = Hmac::<Sha512>::new_from_slice(&signing_key).expect("any length");
        mac.update(unsigned.as_bytes());
        format!("{unsigned}.{}", BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
    };
    for (problem, token) in [
        ("expired", with("exp", json!(now - 1))),
        ("expires now", with("exp", json!(now))),
        ("from the future", with("iat", json!(now + 3600))),
        ("too long a life", with("exp", json!(now + 7200))),
        ("never expires", without_claim),
        ("of a key of another organisation", with("sub", json!(others.id.as_str()))),
        ("for another organisation", with("aud", json!(public_id::of_organisation(others.tenant)))),
        ("for no organisation", with("aud", json!(Uuid::nil()))),
        ("of no key", with("sub", json!("aaaaaaaa"))),
        ("signed with another key", signed(HEADER, &good, &[7; 32])),
        ("signed with no key", signed(HEADER, &good, b"")),
        ("signed with the key as the client sees it", signed(HEADER, &good, server.key.as_bytes())),
        ("alg none, unsigned", format!("{}.", unsigned(r#"{"alg":"none","typ":"JWT"}"#, &good))),
        ("alg none, signed", signed(r#"{"alg":"none","typ":"JWT"}"#, &good, &signing_key)),
        ("alg RS256", signed(r#"{"alg":"RS256","typ":"JWT"}"#, &good, &signing_key)),
        ("alg HS512", sha512),
        ("another spelling of the header", signed(r#"{"typ":"JWT","alg":"HS256"}"#, &good, &signing_key)),
        (
            "a header that names a key",
            signed(r#"{"alg":"HS256","typ":"JWT","kid":"/dev/null"}"#, &good, &signing_key),
        ),
        ("without a signature", token.rsplit_once('.').expect("three parts").0.to_owned()),
        ("with an empty signature", format!("{}.", token.rsplit_once('.').expect("three parts").0)),
        ("truncated", token[..token.len() - 1].to_owned()),
        ("truncated in its claims", token[..80].to_owned()),
        ("padded", format!("{token}=")),
        ("with a fourth part", format!("{token}.x")),
        ("too long", format!("{token}{}", "A".repeat(4096))),
        ("its header alone", token.split('.').next().expect("three parts").to_owned()),
    ] {
        let response = listen(&server, &format!("Bearer {token}")).send().await.expect("an answer");
        let (status, body) = read(response).await;
        assert_eq!((status, &body["err_code"]), (401, &json!("INVALID_AUTH")), "{problem}");
        // The same words as for any other invalid credentials.
        assert_eq!(body["err_msg"], "Invalid credentials.", "{problem}");
    }
}

#[tokio::test]
async fn a_token_ends_with_its_key() {
    let server = server().await;
    let key = key_with(&server, &["usage:write"], None).await;
    let token = granted(&server, &key).await;
    let authorization = format!("Bearer {token}");
    assert_eq!(answer(listen(&server, &authorization)).await.0, 200);
    let id = verbatim::keys::KeyId::parse(&key).expect("a key");
    let revoked = Store::open(server.state.path()).and_then(|store| store.revoke(&id)).expect("keys");
    assert!(revoked.is_some());
    let begun = std::time::Instant::now();
    while answer(listen(&server, &authorization)).await.0 != 401 {
        assert!(begun.elapsed() < PATIENCE, "it outlives its key");
    }
}

#[tokio::test]
async fn a_key_that_expires_ends_and_so_do_its_tokens() {
    let server = server().await;
    let end = SystemTime::now() + Duration::from_secs(8);
    let key = key_with(&server, &["usage:write"], Some(end)).await;
    let (status, body) = answer(ask_for_token(&server, &key, r#"{"ttl_seconds": 600}"#)).await;
    assert_eq!(status, 200);
    // A token does not promise more time than its key has.
    assert!(body["expires_in"].as_u64().expect("seconds") <= 8, "{body}");
    let token = body["access_token"].as_str().expect("text").to_owned();
    for credentials in [key, token] {
        let begun = std::time::Instant::now();
        while answer(listen(&server, &format!("Bearer {credentials}"))).await.0 != 401 {
            assert!(begun.elapsed() < PATIENCE, "it does not expire");
        }
        assert!(SystemTime::now() >= end - Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_token_manages_nothing_and_makes_no_token() {
    let server = server().await;
    let operator = server.operator.clone();
    for key in [&server.key, &operator] {
        let token = granted(&server, key).await;
        let get = |path: &str| client().get(server.url(path)).bearer_auth(&token);
        let project = public_id::of_organisation(1);
        for request in [
            ask_for_token(&server, &token, ""),
            get("/v1/projects"),
            get(&format!("/v1/projects/{project}/keys")),
            get(&format!("/v1/projects/{project}/requests")),
            client().post(server.url("/v1/speakers?name=a")).bearer_auth(&token).body(say(1)),
            get("/v1/speakers"),
            client().delete(server.url(&format!("/v1/speakers/{project}"))).bearer_auth(&token),
        ] {
            assert_eq!(refusal(request).await, (403, "INSUFFICIENT_PERMISSIONS".into()));
        }
        assert_eq!(refusal(get("/metrics")).await, (403, "FORBIDDEN".into()));
    }
}

#[tokio::test]
async fn a_door_is_for_those_with_its_scope() {
    let server = server().await;
    let names_scope = async |request: reqwest::RequestBuilder, scope: &str| {
        let (status, body) = answer(request).await;
        assert_eq!((status, &body["err_code"]), (403, &json!("INSUFFICIENT_PERMISSIONS")), "{body}");
        let message = body["err_msg"].as_str().expect("text");
        assert!(message.contains(&format!("`{scope}`")), "{message}");
    };
    let reader = key_with(&server, &["usage:read", "keys:read", "project:read"], None).await;
    names_scope(listen(&server, &format!("Token {reader}")), "usage:write").await;
    names_scope(ask_for_token(&server, &reader, ""), "usage:write").await;
    names_scope(client().get(server.url("/v1/speakers")).bearer_auth(&reader), "usage:write").await;
    let path = format!("/v1/listen?{RAW}");
    for (name, value) in
        [("authorization", format!("Token {reader}")), ("sec-websocket-protocol", format!("token, {reader}"))]
    {
        let handshake = connect(server.address, &path, &[(name, &value)]).await;
        assert_eq!(
            (handshake.status, &handshake.body["err_code"]),
            (403, &json!("INSUFFICIENT_PERMISSIONS"))
        );
    }
    let writer = key_with(&server, &["usage:write"], None).await;
    assert_eq!(answer(listen(&server, &format!("Token {writer}"))).await.0, 200);
    names_scope(client().get(server.url("/v1/projects")).bearer_auth(&writer), "project:read").await;
    // A role stands for its permissions.
    for role in ["member", "admin", "owner"] {
        let key = key_with(&server, &[role], None).await;
        assert_eq!(answer(listen(&server, &format!("Token {key}"))).await.0, 200, "{role}");
        assert_eq!(answer(client().get(server.url("/v1/projects")).bearer_auth(&key)).await.0, 200, "{role}");
    }
}
