//! Management by the wire format's clients: projects, keys, the log of requests and the sums of use.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::keys::{NewKey, Scopes, Store, public_id};

use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::sdks::{go, node, printed, python, rust};
use crate::server::{FAILS, RAW, Setup, TestServer, answer, client, refusal, say, until_known};
use crate::socket::connect;
use crate::speech::{cache, word_errors};

const PATIENCE: Duration = Duration::from_secs(60);

/// A key that manages, and its organisation.
struct Manager {
    key: String,
    project: String,
    url: String,
}

impl Manager {
    async fn of(server: &TestServer, scopes: &str) -> Self {
        let scopes = Scopes::parse(scopes.split(' ')).expect("scopes");
        let store = Store::open(server.state.path()).expect("keys");
        let (key, secret) = store.insert(NewKey { scopes, ..NewKey::of_a_client("boss") }).expect("a key");
        let project = public_id::of_organisation(key.tenant).to_string();
        until_known(&server.url(""), secret.expose()).await;
        Self { key: secret.expose().to_owned(), url: server.url(""), project }
    }

    fn ask(&self, method: Method, rest: &str) -> reqwest::RequestBuilder {
        let url = format!("{}/v1/projects/{}{rest}", self.url, self.project);
        client().request(method, url).header("authorization", format!("Token {}", self.key))
    }

    async fn get(&self, rest: &str) -> Value {
        let (status, body) = answer(self.ask(Method::GET, rest)).await;
        assert_eq!(status, 200, "{rest}: {body}");
        body
    }

    fn create(&self, body: &Value) -> reqwest::RequestBuilder {
        self.ask(Method::POST, "/keys").body(body.to_string())
    }

    async fn listen(&self, query: &str, body: Vec<u8>) -> u16 {
        let url = format!("{}/v1/listen?{RAW}{query}", self.url);
        answer(client().post(url).bearer_auth(&self.key).body(body)).await.0
    }
}

async fn server() -> TestServer {
    TestServer::start(Setup::default()).await
}

#[tokio::test]
async fn an_organisation_manages_its_own_keys() {
    let server = server().await;
    let manager = Manager::of(&server, "member").await;
    let (status, projects) = answer(client().get(server.url("/v1/projects")).bearer_auth(&manager.key)).await;
    assert_eq!((status, &projects["projects"][0]["project_id"]), (200, &json!(manager.project)));
    assert_eq!(projects["projects"].as_array().expect("a list").len(), 1);
    assert_eq!(manager.get("").await["name"], "boss");
    let (status, _) = answer(manager.ask(Method::PATCH, "").body(r#"{"name": "Acme"}"#)).await;
    assert_eq!((status, &manager.get("").await["name"]), (200, &json!("Acme")));
    assert_eq!(refusal(manager.ask(Method::PATCH, "").body(r#"{"name": ""}"#)).await.0, 400);

    let asked = json!({"comment": "field team", "scopes": ["usage:write"], "tags": ["x"], "time_to_live_in_seconds": 60});
    let (status, made) = answer(manager.create(&asked)).await;
    assert_eq!(status, 200, "{made}");
    let (key, id) = (made["key"].as_str().expect("text"), made["api_key_id"].as_str().expect("text"));
    // It works at once, and belongs to the organisation.
    let listen =
        |key: &str| client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth(key).body(say(1));
    assert_eq!(answer(listen(key)).await.0, 200);
    let listed = manager.get("/keys?status=active").await;
    let comments: Vec<_> = listed["api_keys"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|held| &held["api_key"]["comment"])
        .collect();
    assert_eq!(comments, ["boss", "field team"]);
    assert!(!listed.to_string().contains(key));
    assert_eq!(manager.get("/keys?status=expired").await["api_keys"], json!([]));
    assert_eq!(refusal(manager.ask(Method::GET, "/keys?status=old")).await.0, 400);
    let one = manager.get(&format!("/keys/{id}")).await;
    let api_key = &one["item"]["member"]["api_key"];
    assert_eq!((&api_key["scopes"], &api_key["tags"]), (&json!(["usage:write"]), &json!(["x"])));
    assert!(api_key["expiration_date"].is_string() && one["api_key"] == *api_key);

    let (status, _) = answer(manager.ask(Method::DELETE, &format!("/keys/{id}"))).await;
    assert_eq!(status, 200);
    assert_eq!(refusal(listen(key)).await.0, 401);
    assert_eq!(refusal(manager.ask(Method::DELETE, &format!("/keys/{id}"))).await.0, 404);
}

#[tokio::test]
async fn a_key_that_cannot_be_is_not_made() {
    let server = server().await;
    let manager = Manager::of(&server, "keys:write keys:read usage:write").await;
    for (body, code) in [
        (json!({}), (400, "INVALID_JSON")),
        (json!({"comment": "a"}), (400, "INVALID_JSON")),
        (json!({"comment": "a", "scopes": []}), (400, "INVALID_JSON")),
        (json!({"comment": "a", "scopes": ["root"]}), (400, "INVALID_JSON")),
        (json!({"comment": "a", "scopes": "member"}), (400, "INVALID_JSON")),
        (json!({"comment": "\u{7}", "scopes": ["usage:write"]}), (400, "INVALID_JSON")),
        // It would be shown in another order than it is.
        (json!({"comment": "a\u{202e}b", "scopes": ["usage:write"]}), (400, "INVALID_JSON")),
        (json!({"comment": "x".repeat(101), "scopes": ["usage:write"]}), (400, "INVALID_JSON")),
        (json!({"comment": "a", "scopes": ["usage:write"], "tags": vec!["x"; 21]}), (400, "INVALID_JSON")),
        (
            json!({"comment": "a", "scopes": ["usage:write"], "expiration_date": "2020-01-01"}),
            (400, "INVALID_JSON"),
        ),
        (
            json!({"comment": "a", "scopes": ["usage:write"], "time_to_live_in_seconds": -1}),
            (400, "INVALID_JSON"),
        ),
        // More than the key that makes it.
        (json!({"comment": "a", "scopes": ["member"]}), (403, "INSUFFICIENT_PERMISSIONS")),
        (json!({"comment": "a", "scopes": ["usage:read"]}), (403, "INSUFFICIENT_PERMISSIONS")),
    ] {
        let (status, refused) = refusal(manager.create(&body)).await;
        assert_eq!((status, refused.as_str()), code, "{body}");
    }
    assert_eq!(refusal(manager.ask(Method::POST, "/keys")).await.0, 400);
    assert_eq!(refusal(manager.ask(Method::POST, "/keys").body(vec![b' '; 1 << 20])).await.0, 413);
    let own = manager.get("/keys").await["api_keys"][0]["api_key"]["api_key_id"].clone();
    let last = manager.ask(Method::DELETE, &format!("/keys/{}", own.as_str().expect("text")));
    assert_eq!(refusal(last).await, (409, "LAST_MANAGING_KEY".into()));
}

#[tokio::test]
async fn another_organisations_anything_does_not_exist() {
    let server = server().await;
    let (own, other) = (Manager::of(&server, "owner").await, Manager::of(&server, "owner").await);
    assert_eq!(other.listen("", say(1)).await, 200);
    let request = other.get("/requests").await["requests"][0]["request_id"].clone();
    let key = other.get("/keys").await["api_keys"][0]["api_key"]["api_key_id"].clone();
    let (request, key) = (request.as_str().expect("text"), key.as_str().expect("text"));
    let stranger = Manager { key: own.key.clone(), project: other.project.clone(), url: own.url.clone() };
    for (method, rest) in [
        (Method::GET, String::new()),
        (Method::PATCH, String::new()),
        (Method::DELETE, String::new()),
        (Method::GET, "/keys".into()),
        (Method::GET, format!("/keys/{key}")),
        (Method::DELETE, format!("/keys/{key}")),
        (Method::POST, "/keys".into()),
        (Method::GET, "/requests".into()),
        (Method::GET, format!("/requests/{request}")),
        (Method::GET, "/usage".into()),
        (Method::GET, "/models".into()),
        (Method::GET, "/members".into()),
        (Method::GET, "/balances".into()),
    ] {
        let refused = refusal(stranger.ask(method.clone(), &rest)).await;
        assert_eq!(refused, (404, "PROJECT_NOT_FOUND".into()), "{method} {rest}");
    }
    // Within the own project, their things do not exist either.
    for (method, rest) in [
        (Method::GET, format!("/keys/{key}")),
        (Method::DELETE, format!("/keys/{key}")),
        (Method::GET, format!("/requests/{request}")),
    ] {
        assert_eq!(
            refusal(own.ask(method.clone(), &rest)).await,
            (404, "NOT_FOUND".into()),
            "{method} {rest}"
        );
    }
    assert_eq!(own.get("/requests").await["requests"], json!([]));
    assert_eq!(own.get("/usage").await["results"], json!([]));
    assert_eq!(answer(other.ask(Method::GET, &format!("/keys/{key}"))).await.0, 200);
}

#[tokio::test]
async fn each_endpoint_asks_for_its_scope() {
    let server = server().await;
    let nobody = Manager::of(&server, "owners:read").await;
    for (method, rest, scope) in [
        (Method::GET, "", "project:read"),
        (Method::PATCH, "", "project:write"),
        (Method::DELETE, "", "project:write"),
        (Method::DELETE, "/leave", "project:read"),
        (Method::GET, "/keys", "keys:read"),
        (Method::POST, "/keys", "keys:write"),
        (Method::GET, "/keys/x", "keys:read"),
        (Method::DELETE, "/keys/x", "keys:write"),
        (Method::GET, "/members", "members:read"),
        (Method::DELETE, "/members/x", "members:write"),
        (Method::GET, "/members/x/scopes", "members:read"),
        (Method::PUT, "/members/x/scopes", "members:write"),
        (Method::GET, "/invites", "members:read"),
        (Method::POST, "/invites", "members:write"),
        (Method::DELETE, "/invites/x", "members:write"),
        (Method::GET, "/requests", "usage:read"),
        (Method::GET, "/requests/x", "usage:read"),
        (Method::GET, "/usage", "usage:read"),
        (Method::GET, "/usage/breakdown", "usage:read"),
        (Method::GET, "/usage/fields", "usage:read"),
        (Method::GET, "/balances", "billing:read"),
        (Method::GET, "/balances/x", "billing:read"),
        (Method::GET, "/purchases", "billing:read"),
        (Method::GET, "/billing/breakdown", "billing:read"),
        (Method::GET, "/billing/fields", "billing:read"),
        (Method::GET, "/models", "project:read"),
        (Method::GET, "/models/x", "project:read"),
    ] {
        let (status, body) = answer(nobody.ask(method.clone(), rest)).await;
        let message = body["err_msg"].as_str().expect("text");
        assert_eq!(status, 403, "{method} {rest}: {body}");
        assert!(message.contains(&format!("`{scope}`")), "{method} {rest}: {message}");
    }
    let everyone = Manager::of(&server, "owner").await;
    for (rest, list) in [
        ("/members", "members"),
        ("/invites", "invites"),
        ("/balances", "balances"),
        ("/purchases", "orders"),
        ("/billing/breakdown", "results"),
    ] {
        assert_eq!(everyone.get(rest).await[list], json!([]), "{rest}");
    }
    for (method, rest, status) in [
        (Method::DELETE, "", 501),
        (Method::DELETE, "/leave", 501),
        (Method::POST, "/invites", 501),
        (Method::DELETE, "/members/x", 404),
        (Method::GET, "/members/x/scopes", 404),
        (Method::DELETE, "/invites/x", 404),
        (Method::GET, "/balances/x", 404),
        (Method::GET, "/models/x", 404),
        (Method::GET, "/requests/x", 404),
    ] {
        assert_eq!(refusal(everyone.ask(method.clone(), rest)).await.0, status, "{method} {rest}");
    }
    let models = everyone.get("/models").await;
    assert_eq!((&models["stt"][0]["name"], &models["tts"]), (&json!("reader"), &json!([])));
    let model = client()
        .get(server.url("/v1/models/reader"))
        .header("authorization", format!("Token {}", everyone.key));
    assert_eq!(answer(model).await.1["uuid"], models["stt"][0]["uuid"]);
}

#[tokio::test]
async fn requests_are_logged_and_summed() {
    let server = server().await;
    let manager = Manager::of(&server, "member").await;
    assert_eq!(manager.listen("&tag=a&tag=b&smart_format=true", say(1)).await, 200);
    assert_eq!(manager.listen("&tag=b&multichannel=true", say(2)).await, 200);
    assert_eq!(manager.listen("", say(FAILS)).await, 500);
    assert_eq!(manager.listen("&language=zz", say(3)).await, 400);
    // Management is no use of the server, and a stranger no organisation.
    let stranger = client().post(server.url(&format!("/v1/listen?{RAW}"))).bearer_auth("org_x").body(say(1));
    assert_eq!(refusal(stranger).await.0, 401);

    let page = manager.get("/requests").await;
    assert_eq!((&page["page"], &page["limit"]), (&json!(0), &json!(10)));
    let codes = |page: &Value| -> Vec<u64> {
        let requests = page["requests"].as_array().expect("a list").iter();
        requests.map(|request| request["code"].as_u64().expect("a status")).collect()
    };
    assert_eq!(codes(&page), [400, 500, 200, 200]);
    let first = &page["requests"][3];
    assert_eq!((&first["path"], &first["project_uuid"]), (&json!("/v1/listen"), &json!(manager.project)));
    let details = &first["response"]["details"];
    assert_eq!((&details["duration"], &details["method"]), (&json!(1.0), &json!("sync")));
    assert_eq!(details["tags"], json!(["a", "b"]));
    assert_eq!(details["features"], json!(["encoding", "sample_rate", "smart_format"]));
    for (query, expected) in [
        ("status=succeeded", vec![200, 200]),
        ("status=failed", vec![400, 500]),
        ("limit=1&page=1", vec![500]),
        ("limit=1.0&page=3.0", vec![200]),
        ("method=streaming", vec![]),
        ("endpoint=listen&deployment=self-hosted", vec![400, 500, 200, 200]),
        ("endpoint=speak", vec![]),
        ("deployment=hosted", vec![]),
        ("start=2020-01-01&end=2020-12-31", vec![]),
        ("start=2020-01-01T00:00:00Z", vec![400, 500, 200, 200]),
    ] {
        assert_eq!(codes(&manager.get(&format!("/requests?{query}")).await), expected, "{query}");
    }
    for wrong in ["limit=x", "limit=1001", "page=-1", "status=200", "start=soon", "accessor=me", "endpoint=x"]
    {
        let refused = refusal(manager.ask(Method::GET, &format!("/requests?{wrong}"))).await;
        assert_eq!(refused, (400, "INVALID_QUERY_PARAMETER".into()), "{wrong}");
    }
    let one = manager.get(&format!("/requests/{}", first["request_id"].as_str().expect("text"))).await;
    assert_eq!((&one["request"], &one["request_id"]), (first, &first["request_id"]));

    let usage = manager.get("/usage").await;
    assert_eq!(usage["resolution"], json!({"units": "day", "amount": 1}));
    let sum = |usage: &Value, name: &str| -> f64 {
        usage["results"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|result| result[name].as_f64().expect("a number"))
            .sum()
    };
    // What failed is no use, though it counts as a request.
    assert_eq!((sum(&usage, "requests"), (sum(&usage, "hours") * 3600.0).round()), (4.0, 2.0));
    for (query, requests) in [
        ("tag=b", 2.0),
        ("tag=a", 1.0),
        ("smart_format=true", 1.0),
        ("smart_format=false", 3.0),
        ("model=reader", 3.0),
    ] {
        assert_eq!(
            sum(&manager.get(&format!("/usage/breakdown?{query}")).await, "requests"),
            requests,
            "{query}"
        );
    }
    let by_tags = manager.get("/usage/breakdown?grouping=tags&status=succeeded").await;
    let groups: Vec<_> = by_tags["results"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|result| &result["grouping"]["tags"])
        .collect();
    assert_eq!(groups, [&json!(["a", "b"]), &json!(["b"])]);
    assert_eq!(refusal(manager.ask(Method::GET, "/usage/breakdown?grouping=moon")).await.0, 400);
    let fields = manager.get("/usage/fields").await;
    assert_eq!((&fields["tags"], &fields["processing_methods"]), (&json!(["a", "b"]), &json!(["sync"])));
    assert_eq!(fields["models"][0]["name"], "reader");
}

#[tokio::test]
async fn streams_and_jobs_are_logged_with_their_audio() {
    let mut receiver = Receiver::start(&[]).await;
    let fetch =
        verbatim::fetch::Config { allow: vec![receiver.allowed()], ..verbatim::fetch::Config::default() };
    let server = TestServer::start(Setup { fetch, ..Setup::default() }).await;
    let manager = Manager::of(&server, "member").await;
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/done", receiver.port));
    assert_eq!(manager.listen(&format!("&{callback}"), say(1)).await, 200);
    receiver.next().await;

    let handshake = crate::socket::listen(server.address, &manager.key, &format!("{RAW}&tag=live")).await;
    let mut socket = handshake.socket.expect("a stream");
    socket.audio(&say(2)).await;
    socket.control("CloseStream").await;
    socket.rest().await;
    drop(socket);

    let seconds = async |method: &str| {
        let begun = Instant::now();
        loop {
            // A stream is logged when its connection has ended, a job's audio when it has run.
            let page = manager.get(&format!("/requests?method={method}")).await;
            let details = page["requests"][0]["response"]["details"].clone();
            match details["duration"].as_f64() {
                Some(seconds) if seconds > 0.0 => {
                    return (seconds, page["requests"][0]["code"].clone(), details);
                }
                _ => assert!(begun.elapsed() < PATIENCE, "{method} is not logged: {page}"),
            }
        }
    };
    let (duration, code, _) = seconds("async").await;
    assert_eq!((duration, code), (1.0, json!(200)));
    let (duration, code, details) = seconds("streaming").await;
    assert_eq!((duration, code), (1.0, json!(101)));
    assert_eq!((&details["tags"], &details["streams"]), (&json!(["live"]), &json!(1)));
}

#[tokio::test]
async fn a_time_after_the_year_9999_is_refused_and_breaks_no_list() {
    let server = server().await;
    let manager = Manager::of(&server, "member keys:write keys:read").await;
    let far = "9999-12-31T23:59:59-05:00";
    let asked = json!({"comment": "far", "scopes": ["usage:write"], "expiration_date": far});
    assert_eq!(refusal(manager.create(&asked)).await, (400, "INVALID_JSON".into()));
    let last =
        json!({"comment": "last", "scopes": ["usage:write"], "expiration_date": "9999-12-31T23:59:59Z"});
    let (status, made) = answer(manager.create(&last)).await;
    assert_eq!((status, &made["expiration_date"]), (200, &json!("9999-12-31T23:59:59.000Z")));
    assert_eq!(manager.get("/keys").await["api_keys"].as_array().expect("a list").len(), 2);
    for path in ["usage", "requests", "usage/fields"] {
        let refused = refusal(manager.ask(Method::GET, &format!("/{path}?end={far}"))).await;
        assert_eq!(refused, (400, "INVALID_QUERY_PARAMETER".into()), "{path}");
    }
    assert_eq!(manager.get("/usage?end=9999-12-31").await["results"], json!([]));
}

#[tokio::test]
async fn a_stream_that_fails_is_logged_as_failed() {
    let server = server().await;
    let manager = Manager::of(&server, "member").await;
    let token = format!("Token {}", manager.key);
    for path in ["/v1/listen", "/v2/listen"] {
        let path = format!("{path}?{RAW}");
        let handshake = connect(server.address, &path, &[("authorization", &token)]).await;
        let mut socket = handshake.socket.expect("a stream");
        socket.audio(&say(1)).await;
        // A reserved opcode.
        socket.frame(0x83, b"x").await;
        socket.rest().await;
    }
    let begun = Instant::now();
    loop {
        let page = manager.get("/requests?method=streaming&status=failed").await;
        let failed = page["requests"].as_array().expect("a list");
        if failed.len() == 2 {
            assert!(failed.iter().all(|request| request["code"] == 400), "{page}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "they are not logged as failed: {page}");
    }
}

#[tokio::test]
async fn sdks_manage_with_another_address_and_key() {
    let state = TempDir::new().expect("a folder");
    let audio = cache("speech/austen_0930.wav");
    let program = Program::start(state.path(), &cache("models/tiny.en"), "").await;
    for (name, client) in [("Python", Some(python("python", "manage.py"))), ("Node", node("manage.js"))] {
        let Some(mut client) = client else { continue };
        let scopes = Scopes::parse(["member", "members:read", "billing:read"]).expect("scopes");
        let new = NewKey { scopes, ..NewKey::of_a_client(name) };
        let (key, secret) = Store::open(state.path()).and_then(|store| store.insert(new)).expect("a key");
        let server = format!("http://{}", program.address);
        until_known(&server, secret.expose()).await;
        client.env("SERVER", server).env("KEY", secret.expose()).env("AUDIO", &audio);
        let told = printed(client).await;
        for transcript in told["transcripts"].as_array().expect("a list") {
            let transcript = transcript.as_str().expect("text");
            assert!(
                word_errors("He might even have been made amiable himself.", transcript) <= 1,
                "{name}: {transcript}"
            );
        }
        assert_eq!(told["expires_in"], 60, "{name}");
        assert_eq!(told["keys"], json!([1, 2, 1]), "{name}");
        assert_eq!(told["made"], json!([format!("from {name}"), ["usage:write"], ["a"], true]), "{name}");
        let refused = json!({
            "other lists": 403, "token lists": 403, "token grants": 403, "deleted key": 401, "unknown project": 404,
            "last key": 409,
        });
        assert_eq!(told["refused"], refused, "{name}");
        assert_eq!((&told["name"], &told["logged"]), (&json!("renamed"), &json!(true)), "{name}");
        let requests = told["requests"].as_array().expect("a list");
        // The SDKs differ in the kind of number.
        let is_ours = |request: &Value| request[0] == "/v1/listen" && request[1].as_f64() == Some(200.0);
        assert!(requests.len() == 3 && requests.iter().all(is_ours), "{name}: {requests:?}");
        // A token's use is its key's.
        let accessors = told["accessors"].as_array().expect("a list");
        assert!(
            accessors.contains(&json!(public_id::of_key(&key.id))) && accessors.len() == 2,
            "{name}: {told}"
        );
        assert_eq!(
            (&told["usage"], &told["filtered"], &told["fields"]),
            (&json!(3), &json!(3), &json!(["sdk"])),
            "{name}"
        );
        assert!(told["hours"].as_f64().is_some_and(|hours| hours > 0.002), "{name}: {told}");
        assert_eq!((&told["models"], &told["model"]), (&json!(["tiny.en"]), &json!("tiny.en")), "{name}");
        assert_eq!((&told["project models"], &told["none"]), (&json!(1), &json!([0, 0, 0, 0, 0])), "{name}");
    }
    let manager = {
        let scopes = Scopes::parse(["member"]).expect("scopes");
        let new = NewKey { scopes, ..NewKey::of_a_client("Rust and Go") };
        Store::open(state.path()).and_then(|store| store.insert(new)).expect("a key").1
    };
    until_known(&program.url(""), manager.expose()).await;
    for client in [Some(rust("manage-client")), go("manage")] {
        let Some(mut client) = client else { continue };
        client.arg(format!("http://{}", program.address)).arg(manager.expose());
        let output = client.output().await.expect("it runs");
        assert!(output.status.success(), "{client:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1 2 1", "{client:?}");
    }
}
