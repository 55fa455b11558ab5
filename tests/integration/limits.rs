//! Limits of keys through the doors that their holders use: files, streams, jobs, conversations; and the record of changes.

use std::time::Duration;

use serde_json::json;
use verbatim::keys::{Actor, Limits, NewKey, Scopes, Store};

use crate::server::{RAW, Setup, TestServer, answer, client, read, refusal, say, say_for, until_known};
use crate::socket::{self, Said};

/// A key with these limits, of an organisation of its own, which the server knows.
async fn limited(server: &TestServer, limits: Limits) -> String {
    let scopes = Scopes::parse(["member"]).expect("a role");
    let new = NewKey { limits, scopes, ..NewKey::of_a_client("limited") };
    let (_, secret) = Store::open(server.state.path()).and_then(|store| store.insert(new)).expect("a key");
    until_known(&server.url(""), secret.expose()).await;
    secret.expose().to_owned()
}

fn listen(server: &TestServer, key: &str, body: Vec<u8>) -> reqwest::RequestBuilder {
    client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(key).body(body)
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().expect("text").to_owned())
}

#[tokio::test]
async fn a_key_may_make_so_many_requests_per_minute() {
    let server = TestServer::start(Setup::default()).await;
    let key = limited(&server, Limits { requests_per_minute: Some(2), ..Limits::NONE }).await;
    for left in ["1", "0"] {
        let response = listen(&server, &key, say(1)).send().await.expect("an answer");
        assert_eq!(header(&response, "x-ratelimit-limit-requests").as_deref(), Some("2"));
        assert_eq!(header(&response, "x-ratelimit-remaining-requests").as_deref(), Some(left));
        let reset = header(&response, "x-ratelimit-reset-requests").expect("a time");
        assert!(reset.ends_with('s') && reset.trim_end_matches('s').parse::<u64>().expect("a number") <= 61);
        assert_eq!(read(response).await.0, 200);
    }
    let response = listen(&server, &key, say(1)).send().await.expect("an answer");
    let wait: u64 = header(&response, "retry-after").expect("a time").parse().expect("a number");
    assert!((50..=61).contains(&wait), "{wait}: the first request is a minute old then");
    assert_eq!(header(&response, "x-ratelimit-remaining-requests").as_deref(), Some("0"));
    let (status, body) = read(response).await;
    assert_eq!((status, &body["err_code"]), (429, &json!("TOO_MANY_REQUESTS")));
    assert!(body["err_msg"].as_str().expect("text").contains("2 requests per minute"), "{body}");
    // The same holds at every door; requests that do no work do not count.
    let refused = socket::listen(server.address, &key, RAW).await;
    assert_eq!((refused.status, &refused.body["err_code"]), (429, &json!("TOO_MANY_REQUESTS")));
    let spoken = client().post(server.url("/v1/audio/transcriptions")).bearer_auth(&key).body("");
    let spoken =
        spoken.header("content-type", "multipart/form-data; boundary=x").send().await.expect("an answer");
    assert_eq!(spoken.status(), 429);
    assert_eq!(answer(client().get(server.url("/v1/models")).bearer_auth(&key)).await.0, 200);
    // Others are not concerned.
    assert_eq!(answer(server.listen(RAW, say(3))).await.0, 200);
}

#[tokio::test]
async fn a_key_may_have_so_many_requests_and_streams_at_once() {
    let server = TestServer::start(Setup::default()).await;
    let key = limited(&server, Limits { concurrent: Some(2), ..Limits::NONE }).await;
    let open = async || socket::listen(server.address, &key, RAW).await;
    let (first, second) = (open().await, open().await);
    assert_eq!((first.status, second.status), (101, 101));
    let refused = open().await;
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").expect("a time").parse::<u64>().expect("a number") >= 1);
    assert_eq!(refusal(listen(&server, &key, say(1))).await, (429, "TOO_MANY_REQUESTS".into()));
    let mut socket = first.socket.expect("agreed");
    socket.control("CloseStream").await;
    while !matches!(socket.said().await, Said::Close(..) | Said::Gone) {}
    // Its place is free a moment after its last message.
    let served = async { while answer(listen(&server, &key, say(1))).await.0 != 200 {} };
    tokio::time::timeout(Duration::from_secs(30), served).await.expect("the place is free again");
}

#[tokio::test]
async fn a_key_has_so_much_audio_a_day_and_what_it_makes_counts_too() {
    let server = TestServer::start(Setup::default()).await;
    let key = limited(&server, Limits { audio_seconds_per_day: Some(5), ..Limits::NONE }).await;
    let response = listen(&server, &key, say_for(1, 2.0)).send().await.expect("an answer");
    assert_eq!(header(&response, "x-ratelimit-remaining-audio-seconds-day").as_deref(), Some("3"));
    assert_eq!(read(response).await.0, 200);
    // A key that the holder makes has the same account.
    let asked = json!({"comment": "more", "scopes": ["usage:write"]});
    let project = answer(client().get(server.url("/v1/projects")).bearer_auth(&key)).await.1;
    let project = project["projects"][0]["project_id"].as_str().expect("an id").to_owned();
    let url = server.url(&format!("/v1/projects/{project}/keys"));
    let (status, made) = answer(client().post(url).bearer_auth(&key).body(asked.to_string())).await;
    assert_eq!((status, &made["limits"]["audio_seconds_per_day"]), (200, &json!(5)), "{made}");
    let child = made["key"].as_str().expect("a key").to_owned();
    // A stream is charged, too.
    let mut socket = socket::listen(server.address, &child, RAW).await.socket.expect("agreed");
    socket.audio(&say_for(2, 4.0)).await;
    socket.control("CloseStream").await;
    while !matches!(socket.said().await, Said::Close(..) | Said::Gone) {}
    let used_up = async {
        loop {
            let response = listen(&server, &key, say(1)).send().await.expect("an answer");
            if response.status() == 429 {
                break response;
            }
        }
    };
    let response =
        tokio::time::timeout(Duration::from_secs(30), used_up).await.expect("6 of 5 seconds are used");
    let wait: u64 = header(&response, "retry-after").expect("a time").parse().expect("a number");
    assert!((1..=86_400).contains(&wait), "{wait}: until midnight");
    assert_eq!(refusal(listen(&server, &child, say(1))).await.0, 429);
}

#[tokio::test]
async fn limits_are_changed_while_the_server_runs_and_recorded() {
    let server = TestServer::start(Setup::default()).await;
    let key = limited(&server, Limits { requests_per_minute: Some(0), ..Limits::NONE }).await;
    assert_eq!(refusal(listen(&server, &key, say(1))).await.0, 429);
    let store = Store::open(server.state.path()).expect("keys");
    let id =
        store.list().expect("keys").into_iter().find(|key| key.label == "limited").expect("it is there").id;
    store.limit(&Actor::Machine, &id, Limits::NONE).expect("limited").expect("known");
    let served = async { while answer(listen(&server, &key, say(1))).await.0 != 200 {} };
    tokio::time::timeout(Duration::from_secs(30), served).await.expect("no limits any more");
    let changes: Vec<_> =
        store.audit(100).expect("a record").into_iter().filter(|entry| entry.key == id).collect();
    let told: Vec<&str> = changes.iter().map(|entry| entry.change.as_str()).collect();
    assert_eq!(told, ["created", "limited"]);
    assert!(changes[0].about.contains("requests-per-minute=0") && !changes[1].about.contains("per-minute"));
    assert!(changes.iter().all(|entry| !entry.about.contains(&key[12..])), "no secret");
}
