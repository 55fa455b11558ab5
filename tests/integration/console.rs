//! The console's routes through the real door: pages and their policy, signing in and out, requests of other origins.

use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::keys::{KeyId, Store};

use crate::program::Program;
use crate::server::{client, new_key};

const SMALL_MODEL: [&str; 6] = ["--model", "synthetic:tiny", "--tokens", "8", "--device", "cpu"];
const PATIENCE: Duration = Duration::from_secs(30);
/// Half a second until the server notices, and what a busy machine adds.
const NOTICE: Duration = Duration::from_millis(500);

struct Desk {
    state: TempDir,
    program: Program,
    /// The id of the admin's key, and its text.
    admin: (KeyId, String),
}

impl Desk {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let state = TempDir::new().expect("a directory");
        let store = Store::open(state.path()).expect("keys");
        let (key, secret) = store.create_admin("Ada").expect("a key");
        let program = Program::serve(state.path(), &SMALL_MODEL.map(OsStr::new), settings).await;
        Self { state, program, admin: (key.id, secret.expose().to_owned()) }
    }

    fn store(&self) -> Store {
        Store::open(self.state.path()).expect("keys")
    }

    /// A request as a page of the console sends it, but for `fields`.
    fn ask(&self, method: Method, path: &str, fields: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let own = format!("http://{}", self.program.address);
        let mut headers = HeaderMap::new();
        let usual = [("origin", &*own), ("sec-fetch-site", "same-origin"), ("x-verbatim-console", "1")];
        for (name, value) in usual.into_iter().chain(fields.iter().copied()) {
            let name = HeaderName::try_from(name).expect("a name");
            match value {
                "" => drop(headers.remove(name)),
                value => drop(headers.insert(name, HeaderValue::try_from(value).expect("a value"))),
            }
        }
        client().request(method, self.program.url(path)).headers(headers)
    }

    async fn sign_in(&self, body: &Value) -> Response {
        self.ask(Method::POST, "/console/session", &[]).json(body).send().await.expect("an answer")
    }

    /// The cookie of a new session.
    async fn cookie(&self) -> String {
        let answer = self.sign_in(&json!({ "key": self.admin.1 })).await;
        assert_eq!(answer.status(), 200);
        let set = answer.headers()["set-cookie"].to_str().expect("text");
        set.split(';').next().expect("a cookie").to_owned()
    }

    async fn status(&self, method: Method, path: &str, cookie: &str, fields: &[(&str, &str)]) -> u16 {
        let fields: Vec<_> = [("cookie", cookie)].into_iter().chain(fields.iter().copied()).collect();
        self.ask(method, path, &fields).send().await.expect("an answer").status().as_u16()
    }

    async fn get(&self, path: &str, cookie: &str) -> Value {
        self.send(Method::GET, path, cookie, None, 200).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        cookie: &str,
        body: Option<Value>,
        expected: u16,
    ) -> Value {
        let mut request = self.ask(method, path, &[("cookie", cookie)]);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        assert_eq!(answer.headers()["cache-control"], "no-store", "{path}");
        assert!(status != 200 || answer.headers().contains_key("content-security-policy"), "{path}");
        let body = answer.text().await.expect("text");
        assert_eq!(status, expected, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body}"))
    }
}

fn header<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

/// The addresses in a page, by `src` and `href`.
fn addresses(page: &str) -> Vec<&str> {
    let parts = page.split(['"', '\'']).filter(|part| part.starts_with('/'));
    parts.collect()
}

#[tokio::test]
async fn pages_are_small_kept_by_hash_and_run_nothing_of_others() {
    let desk = Desk::new(&[]).await;
    let get = |path: &str| client().get(desk.program.url(path));
    let answer = get("/").header("accept-encoding", "gzip").send().await.expect("an answer");
    assert_eq!((answer.status(), header(&answer, "content-encoding")), (StatusCode::OK, "gzip"));
    assert_eq!(header(&answer, "content-type"), "text/html; charset=utf-8");
    assert_eq!(header(&answer, "cache-control"), "no-cache");
    let policy = header(&answer, "content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.split("; ").any(|known| known == part), "{part}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
    for (name, expected) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(header(&answer, name), expected, "{name}");
    }
    assert!(header(&answer, "permissions-policy").starts_with("microphone=(self), camera=()"));
    assert!(answer.headers().get("set-cookie").is_none());
    let etag = header(&answer, "etag").to_owned();
    let again = get("/").header("accept-encoding", "gzip").header("if-none-match", &etag).send().await;
    assert_eq!(again.expect("an answer").status(), StatusCode::NOT_MODIFIED);

    let page = get("/").send().await.expect("an answer").text().await.expect("text");
    // Nothing in it is code, and nothing comes from elsewhere.
    assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onload"), "{page}");
    assert!(page.matches("<script").count() == page.matches("<script type=\"module\" src=\"/").count());
    assert!(!page.contains("://") && !page.contains("{assets}"), "{page}");
    let files = addresses(&page);
    assert!(files.iter().any(|file| file.ends_with("/app.js")), "{page}");
    let folder = files.iter().find_map(|file| file.strip_suffix("app.js")).expect("a folder");
    assert!(folder.starts_with("/console/") && folder.len() == "/console//".len() + 16, "{folder}");
    let mut seen: Vec<String> =
        files.iter().filter(|file| file.starts_with(folder)).map(|file| (*file).into()).collect();
    let (mut at, mut bytes) = (0, 0);
    while let Some(path) = seen.get(at).cloned() {
        at += 1;
        let answer = get(&path).header("accept-encoding", "gzip").send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(header(&answer, "cache-control"), "public, max-age=31536000, immutable", "{path}");
        assert!(header(&answer, "content-security-policy").contains("frame-ancestors 'none'"), "{path}");
        bytes += answer.bytes().await.expect("bytes").len();
        if !path.ends_with(".js") {
            continue;
        }
        let code = get(&path).send().await.expect("an answer").text().await.expect("text");
        for line in
            code.lines().filter(|line| line.trim_start().starts_with("import ") || line.contains(" from \""))
        {
            let Some(name) = line.split('"').nth(1) else { continue };
            let here = path.rsplit_once('/').expect("a folder").0;
            let named = match name.strip_prefix("../") {
                Some(rest) => format!("{}/{rest}", here.rsplit_once('/').expect("a folder").0),
                None => {
                    format!("{here}/{}", name.strip_prefix("./").unwrap_or_else(|| panic!("{path}: {name}")))
                }
            };
            if !seen.contains(&named) {
                seen.push(named);
            }
        }
    }
    assert!((1000..150 << 10).contains(&bytes), "{bytes} bytes in {} files: {seen:?}", seen.len());
    for path in ["/console/0123456789abcdef/app.js", "/console/app.js", "/console/", "/console"] {
        assert_eq!(get(path).send().await.expect("an answer").status(), 404, "{path}");
    }
    assert_eq!(get(&format!("{folder}../../etc/passwd")).send().await.expect("an answer").status(), 404);
    // Clients that send other methods to the root learn what it has.
    let head = client().head(desk.program.url("/")).send().await.expect("an answer");
    assert_eq!((head.status(), head.bytes().await.expect("bytes").len()), (StatusCode::OK, 0));
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        let answer = client().request(method, desk.program.url("/")).send().await.expect("an answer");
        assert_eq!(
            (answer.status(), header(&answer, "allow")),
            (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD")
        );
    }
    desk.program.stop().await;
}

#[tokio::test]
async fn a_session_needs_an_admin_key_and_ends_with_it() {
    let desk = Desk::new(&[]).await;
    let (_, operator) = desk.store().create_operator("scraper").expect("a key");
    let client_key = new_key(desk.state.path());
    for body in [
        json!({ "key": client_key }),
        json!({ "key": operator.expose() }),
        json!({ "key": "org_wrong" }),
        json!({ "key": "" }),
        json!({ "link": "wrong" }),
    ] {
        let answer = desk.sign_in(&body).await;
        assert_eq!(answer.status(), 401, "{body}");
        assert!(
            answer.headers().get("set-cookie").is_none()
                && answer.headers().get("www-authenticate").is_none()
        );
    }
    for body in
        [json!({}), json!([]), json!({ "key": 1 }), json!({ "key": "a", "link": "b" }), json!({ "x": "a" })]
    {
        assert_eq!(desk.sign_in(&body).await.status(), 400, "{body}");
    }
    let answer = desk.sign_in(&json!({ "key": desk.admin.1 })).await;
    let set = header(&answer, "set-cookie").to_owned();
    let port = desk.program.address.port();
    assert!(set.starts_with(&format!("verbatim-console-{port}=")), "{set}");
    for part in ["Path=/", "HttpOnly", "SameSite=Strict"] {
        assert!(set.split("; ").any(|known| known == part), "{set}");
    }
    assert!(!set.contains("Secure") && !set.contains("Domain") && !set.contains(&desk.admin.1), "{set}");
    let known: Value = answer.json().await.expect("JSON");
    assert_eq!((&known["label"], &known["key_id"]), (&json!("Ada"), &json!(desk.admin.0.as_str())));
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    assert_eq!(desk.get("/console/session", &cookie).await["label"], "Ada");

    // Over TLS, at least in the browser's eyes, only TLS carries the cookie.
    let address = desk.program.address;
    let secure = desk.ask(Method::POST, "/console/session", &[("origin", &format!("https://{address}"))]);
    let secure = secure.json(&json!({ "key": desk.admin.1 })).send().await.expect("an answer");
    let set = header(&secure, "set-cookie");
    assert!(set.starts_with("__Host-verbatim-console-") && set.ends_with("; Secure"), "{set}");

    // The public API knows no cookies, and pages use it with a token of the admin's own organisation.
    assert_eq!(desk.status(Method::GET, "/v1/auth/token", &cookie, &[]).await, 401);
    let token = desk.send(Method::POST, "/console/api/token", &cookie, None, 200).await;
    let text = token["access_token"].as_str().expect("a token");
    assert!((1..=300).contains(&token["expires_in"].as_u64().expect("seconds")));
    let by_token = client().get(desk.program.url("/v1/auth/token")).bearer_auth(text).send().await;
    let by_token: Value = by_token.expect("an answer").json().await.expect("JSON");
    assert_eq!((&by_token["kind"], &by_token["project_id"]), (&json!("token"), &known["project_id"]));
    assert_eq!(desk.sign_in(&json!({ "key": text })).await.status(), 401, "a token signs nobody in");

    // Signing out ends this session alone.
    let other = desk.cookie().await;
    let out =
        desk.ask(Method::DELETE, "/console/session", &[("cookie", &cookie)]).send().await.expect("an answer");
    assert_eq!(out.status(), 204);
    assert!(header(&out, "set-cookie").contains("Max-Age=0"));
    assert_eq!(desk.status(Method::GET, "/console/session", &cookie, &[]).await, 401);
    assert_eq!(desk.status(Method::GET, "/console/session", &other, &[]).await, 200);
    for cookie in ["", "verbatim-console=x", &format!("{other}; {other}"), &format!("{other}x")] {
        assert_eq!(desk.status(Method::GET, "/console/api/keys", cookie, &[]).await, 401, "{cookie}");
    }

    desk.store().revoke(&desk.admin.0).expect("revoked");
    let began = Instant::now();
    while desk.status(Method::GET, "/console/api/keys", &other, &[]).await == 200 {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(began.elapsed() < NOTICE + Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(desk.sign_in(&json!({ "key": desk.admin.1 })).await.status(), 401);
    assert!(!desk.program.log().contains(&desk.admin.1) && !desk.program.log().contains(text));
    desk.program.stop().await;
}

#[tokio::test]
async fn sessions_end_by_themselves() {
    let settings = [("VERBATIM_CONSOLE__SESSION_MAX_SECONDS", "1")];
    let desk = Desk::new(&settings).await;
    let cookie = desk.cookie().await;
    let began = Instant::now();
    while desk.status(Method::GET, "/console/session", &cookie, &[]).await == 200 {
        assert!(began.elapsed() < PATIENCE);
    }
    desk.program.stop().await;
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let desk = Desk::new(&[("VERBATIM_HTTP__CORS_ORIGINS", "https://app.example")]).await;
    let cookie = desk.cookie().await;
    let neighbour = "http://127.0.0.1:9";
    let foreign: [&[(&str, &str)]; 9] = [
        // Another site; the same host with another port, which browsers call the same site; a listed origin.
        &[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")],
        &[("origin", neighbour), ("sec-fetch-site", "same-site")],
        &[("origin", "https://app.example"), ("sec-fetch-site", "cross-site")],
        // What older browsers send.
        &[("origin", "https://evil.example"), ("sec-fetch-site", "")],
        &[("origin", neighbour), ("sec-fetch-site", "")],
        &[("origin", "null"), ("sec-fetch-site", "")],
        // A link, an image or a form: no header of their own.
        &[("x-verbatim-console", "")],
        &[("x-verbatim-console", ""), ("origin", "https://evil.example")],
        &[("origin", ""), ("sec-fetch-site", "none")],
    ];
    for fields in foreign {
        for (method, path) in [
            (Method::GET, "/console/session"),
            (Method::GET, "/console/api/keys"),
            (Method::GET, "/console/api/config"),
            (Method::POST, "/console/api/token"),
            (Method::POST, "/console/session"),
            (Method::DELETE, "/console/session"),
            (Method::DELETE, "/console/api/keys/aaaaaaaa"),
        ] {
            assert_eq!(
                desk.status(method.clone(), path, &cookie, fields).await,
                403,
                "{method} {path} {fields:?}"
            );
        }
    }
    // Nothing but the browser's word would tell whose request it is.
    let silent = [("origin", ""), ("sec-fetch-site", "")];
    assert_eq!(desk.status(Method::POST, "/console/api/token", &cookie, &silent).await, 403);
    assert_eq!(desk.status(Method::GET, "/console/session", &cookie, &silent).await, 200);
    // A form in the names of the console's own page.
    let form = desk.ask(Method::POST, "/console/session", &[]).form(&[("key", &desk.admin.1)]);
    assert_eq!(form.send().await.expect("an answer").status(), 415);
    // No preflight allows it, not even for an origin that may read the API.
    let preflight = client()
        .request(Method::OPTIONS, desk.program.url("/console/api/token"))
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "x-verbatim-console");
    let preflight = preflight.send().await.expect("an answer");
    assert_eq!(header(&preflight, "access-control-allow-credentials"), "");
    // A page of another origin gets no page either, and no frame shows one.
    let framed = client().get(desk.program.url("/")).header("origin", "https://evil.example").send().await;
    assert_eq!(framed.expect("an answer").status(), 403);
    assert_eq!(
        desk.status(Method::GET, "/console/session", &cookie, &[]).await,
        200,
        "and the session goes on"
    );
    desk.program.stop().await;
}

#[tokio::test]
async fn too_many_wrong_keys_have_to_wait() {
    let desk = Desk::new(&[]).await;
    let wrong = json!({ "key": "org_wrong" });
    for _ in 0..10 {
        assert_eq!(desk.sign_in(&wrong).await.status(), 401);
    }
    let answer = desk.sign_in(&wrong).await;
    assert_eq!(answer.status(), 429);
    let seconds: u64 = header(&answer, "retry-after").parse().expect("seconds");
    assert!((1..=6).contains(&seconds), "{seconds}");
    // Right keys wait too, so that nothing tells them from wrong ones; other paths go on.
    assert_eq!(desk.sign_in(&json!({ "key": desk.admin.1 })).await.status(), 429);
    let health = client().get(desk.program.url("/health")).send().await.expect("an answer");
    assert_eq!(health.status(), 200);
    let began = Instant::now();
    while desk.sign_in(&json!({ "key": desk.admin.1 })).await.status() != 200 {
        assert!(began.elapsed() < PATIENCE);
    }
    desk.program.stop().await;
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let state = TempDir::new().expect("a directory");
    let output = state.path().join("output");
    // Its standard output is a file: without the flag, it prints no link.
    let started = |link: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--threads", "1"]).args(SMALL_MODEL);
        command.args(link.then_some("--console-link"));
        command.env("VERBATIM_STATE_DIR", state.path()).env("XDG_CONFIG_HOME", state.path());
        command.env("VERBATIM_SHUTDOWN__GRACE_SECONDS", "0");
        command.stdout(std::fs::File::create(&output).expect("a file"));
        command.stderr(std::fs::File::create(state.path().join("log")).expect("a file"));
        command.spawn().expect("it starts")
    };
    let log = || std::fs::read_to_string(state.path().join("log")).expect("a log");
    let printed = || std::fs::read_to_string(&output).expect("an output");
    let until = async |is_there: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_there() {
            assert!(began.elapsed() < PATIENCE, "{}", log());
            tokio::task::yield_now().await;
        }
    };
    let mut silent = started(false);
    until(&|| log().contains("\"listening\"") || log().contains(" listening ")).await;
    assert_eq!(printed(), "");
    silent.kill().expect("it runs");
    silent.wait().expect("it ends");

    let mut server = started(true);
    until(&|| printed().contains("#sign-in=")).await;
    let text = printed();
    let link = text.split_whitespace().find(|word| word.contains("#sign-in=")).expect("a link");
    let (base, secret) = link.split_once("/#sign-in=").expect("a link");
    assert!(base.starts_with("http://127.0.0.1:"), "{link}");
    let sign_in = async |secret: &str| {
        let request = client().post(format!("{base}/console/session")).json(&json!({ "link": secret }));
        let request = request.header("origin", base).header("x-verbatim-console", "1");
        request.send().await.expect("an answer")
    };
    assert_eq!(sign_in("wrong").await.status(), 401);
    let first = sign_in(secret).await;
    assert_eq!(first.status(), 200);
    assert_eq!(first.json::<Value>().await.expect("JSON")["label"], "console link");
    assert_eq!(sign_in(secret).await.status(), 401);
    assert!(!log().contains(secret));
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

#[tokio::test]
async fn an_admin_manages_the_keys_of_all() {
    let desk = Desk::new(&[]).await;
    let client_key = new_key(desk.state.path());
    let cookie = desk.cookie().await;
    let listed = desk.get("/console/api/keys", &cookie).await;
    let keys = listed["keys"].as_array().expect("keys");
    assert_eq!(keys.len(), 2);
    let own = keys.iter().find(|key| key["is_own"] == true).expect("this session's");
    assert_eq!((&own["role"], &own["label"]), (&json!("admin"), &json!("Ada")));
    let text = listed.to_string();
    assert!(!text.contains(&client_key) && !text.contains(&desk.admin.1));

    let asked = json!({ "label": "field team", "scopes": ["usage:write"], "expires_in_seconds": 3600 });
    let made = desk.send(Method::POST, "/console/api/keys", &cookie, Some(asked), 201).await;
    let key = made["key"].as_str().expect("a key").to_owned();
    assert_eq!((&made["role"], &made["scopes"]), (&json!("caller"), &json!(["usage:write"])));
    let used = || client().get(desk.program.url("/v1/auth/token")).bearer_auth(&key).send();
    assert_eq!(used().await.expect("an answer").status(), 200, "it works at once");
    let another = json!({ "label": "same team", "organisation": made["organisation"] });
    let another = desk.send(Method::POST, "/console/api/keys", &cookie, Some(another), 201).await;
    assert_eq!(another["organisation"], made["organisation"]);
    for wrong in [
        json!({ "label": "" }),
        json!({ "label": "x", "scopes": ["root"] }),
        json!({ "label": "x", "expires_in_seconds": 0 }),
        json!({ "label": "x", "organisation": "1" }),
        json!({ "label": "x", "organisation": "one" }),
        // Admins are made where the server runs.
        json!({ "label": "x", "admin": true }),
    ] {
        desk.send(Method::POST, "/console/api/keys", &cookie, Some(wrong), 400).await;
    }
    let id = made["id"].as_str().expect("an id");
    let revoked = desk.send(Method::DELETE, &format!("/console/api/keys/{id}"), &cookie, None, 200).await;
    assert_eq!(revoked["state"], "revoked");
    assert_eq!(used().await.expect("an answer").status(), 401, "at once");
    desk.send(Method::DELETE, "/console/api/keys/aaaaaaaa", &cookie, None, 404).await;

    // An admin's key cannot give itself away through the API of organisations.
    let project =
        desk.get("/console/session", &cookie).await["project_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/projects/{project}/keys");
    let asked = json!({ "comment": "child", "scopes": ["owner"], "admin": true, "is_admin": true });
    let child = client().post(desk.program.url(&path)).bearer_auth(&desk.admin.1).json(&asked);
    let child: Value = child.send().await.expect("an answer").json().await.expect("JSON");
    let child = child["key"].as_str().expect("a key");
    assert_eq!(desk.sign_in(&json!({ "key": child })).await.status(), 401);
    desk.program.stop().await;
}

#[tokio::test]
async fn operations_show_figures_and_no_secret() {
    let secret = "do-not-show-this";
    let settings = [
        ("VERBATIM_STS__LIVEKIT__API_SECRET", secret),
        ("VERBATIM_MODELS__HUB__PACKAGE_INDEX", "https://me:do-not-show-this@packages.example/simple"),
    ];
    let desk = Desk::new(&settings).await;
    let cookie = desk.cookie().await;
    let began = Instant::now();
    let figures = loop {
        let figures = desk.get("/console/api/operations", &cookie).await;
        if figures["samples"]["unix_ms"].as_array().expect("times").len() > 1 {
            break figures;
        }
        assert!(began.elapsed() < PATIENCE);
    };
    assert_eq!((&figures["engine"], &figures["interval_seconds"]), (&json!("working"), &json!(5)));
    assert_eq!(figures["models"][0]["name"], "synthetic:tiny");
    let slots = &figures["samples"]["series"]["slots"];
    assert!(slots[0].as_f64().expect("a number") > 0.0, "{figures}");
    assert!(figures["samples"]["series"]["memory_bytes"][0].as_f64().expect("a number") > 1e6);
    let next = figures["samples"]["next"].as_u64().expect("a number");
    let newer = desk.get(&format!("/console/api/operations?from={next}"), &cookie).await;
    assert!(newer["samples"]["unix_ms"].as_array().expect("times").len() < 2);

    let config = desk.get("/console/api/config", &cookie).await;
    let settings = config["settings"].as_array().expect("settings");
    let named = |name: &str| settings.iter().find(|setting| setting["name"] == name).expect("it is there");
    assert_eq!(named("models.model")["source"], "the flag --model");
    let hidden = named("sts.livekit.api_secret");
    assert_eq!(hidden["value"], Value::Null);
    assert_eq!(hidden["source"], "the environment variable VERBATIM_STS__LIVEKIT__API_SECRET");
    assert!(!config.to_string().contains(secret), "{config}");

    let errors = desk.get("/console/api/errors", &cookie).await;
    let events = errors["errors"].as_array().expect("events");
    // A server of random weights warns of them.
    assert!(events.iter().any(|event| event["level"] == "WARN"), "{errors}");
    assert!(!errors.to_string().contains(secret) && !errors.to_string().contains(&desk.admin.1));
    let jobs = desk.get("/console/api/jobs?state=dead&limit=5", &cookie).await;
    assert_eq!(jobs["jobs"], json!([]));
    for path in
        ["/console/api/jobs?state=lost", "/console/api/jobs?limit=0", "/console/api/operations?from=x"]
    {
        desk.send(Method::GET, path, &cookie, None, 400).await;
    }
    let unknown = "/console/api/jobs/00000000-0000-4000-8000-000000000000";
    desk.send(Method::GET, unknown, &cookie, None, 404).await;
    desk.send(Method::POST, &format!("{unknown}/retry"), &cookie, None, 404).await;
    desk.program.stop().await;
}

#[tokio::test]
async fn the_console_can_be_off() {
    let desk = Desk::new(&[("VERBATIM_CONSOLE__ENABLED", "false")]).await;
    for path in ["/", "/console/session"] {
        assert_eq!(desk.status(Method::GET, path, "", &[]).await, 404, "{path}");
    }
    assert_eq!(desk.sign_in(&json!({ "key": desk.admin.1 })).await.status(), 404);
    desk.program.stop().await;
}
