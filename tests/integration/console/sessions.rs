//! Signing in by key and by link, out, and requests of other origins.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use super::{Desk, NOTICE, PATIENCE, SMALL_MODEL, header, json_of, with_json};
use crate::protocol::certified;
use crate::server::{client, new_key};

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
    let known = json_of(answer).await;
    assert_eq!((&known["label"], &known["key_id"]), (&json!("Ada"), &json!(desk.admin.0.as_str())));
    let cookie = set.split(';').next().expect("a cookie").to_owned();
    assert_eq!(desk.get("/console/session", &cookie).await["label"], "Ada");

    // Signing in again in the same browser ends what it had.
    let again = desk.ask(Method::POST, "/console/session", &[("cookie", &cookie)]);
    let again = with_json(again, &json!({ "key": desk.admin.1 })).send().await.expect("an answer");
    let renewed = header(&again, "set-cookie").split(';').next().expect("a cookie").to_owned();
    assert_ne!(renewed, cookie, "never the id that the browser came with");
    assert_eq!(desk.status(Method::GET, "/console/session", &cookie, &[]).await, 401);
    let cookie = renewed;

    // Over TLS, at least in the browser's eyes, only TLS carries the cookie.
    let address = desk.program.address;
    let secure = desk.ask(Method::POST, "/console/session", &[("origin", &format!("https://{address}"))]);
    let secure = with_json(secure, &json!({ "key": desk.admin.1 })).send().await.expect("an answer");
    let set = header(&secure, "set-cookie");
    assert!(set.starts_with("__Host-verbatim-console-") && set.ends_with("; Secure"), "{set}");

    // The public API knows no cookies, and pages use it with a token of the admin's own organisation.
    assert_eq!(desk.status(Method::GET, "/v1/auth/token", &cookie, &[]).await, 401);
    let token = desk.send(Method::POST, "/console/api/token", &cookie, None, 200).await;
    let text = token["access_token"].as_str().expect("a token");
    assert!((1..=300).contains(&token["expires_in"].as_u64().expect("seconds")));
    let by_token = client().get(desk.program.url("/v1/auth/token")).bearer_auth(text).send().await;
    let by_token = json_of(by_token.expect("an answer")).await;
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
    assert!(began.elapsed() < NOTICE, "{:?}", began.elapsed());
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
            (Method::PUT, "/console/api/keys/aaaaaaaa/limits"),
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
    let form = desk
        .ask(Method::POST, "/console/session", &[])
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("key={}", desk.admin.1));
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
    let mut refused = 0;
    // One in six seconds is forgiven, also during this test.
    let answer = loop {
        let answer = desk.sign_in(&wrong).await;
        if answer.status() == 429 {
            break answer;
        }
        assert_eq!(answer.status(), 401);
        refused += 1;
        assert!(refused < 100);
    };
    assert!(refused >= 10, "{refused}");
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
async fn wrong_keys_of_one_client_make_no_other_wait_behind_a_proxy() {
    let desk = Desk::new(&[]).await;
    let status = async |forwarded: &str, key: &str| {
        let request = desk.ask(Method::POST, "/console/session", &[("x-forwarded-for", forwarded)]);
        with_json(request, &json!({ "key": key })).send().await.expect("an answer").status().as_u16()
    };
    // What stands before the proxy's own word is the client's invention.
    let mut tried = 0;
    // An attempt may be forgiven between a wrong key that has to wait and the right one.
    while status("198.51.100.1", &desk.admin.1).await != 429 {
        while status(&format!("203.0.113.{tried}, 198.51.100.1"), "org_wrong").await != 429 {
            tried += 1;
            assert!(tried < 100);
        }
    }
    assert_eq!(status("198.51.100.2", &desk.admin.1).await, 200);
    assert_eq!(status("", &desk.admin.1).await, 200);
    desk.program.stop().await;
}

#[tokio::test]
async fn over_tls_only_cookies_that_no_other_page_can_set_count() {
    let folder = TempDir::new().expect("a directory");
    let (made, tls) = certified(folder.path());
    let paths = [&tls.certificate, &tls.key].map(|path| path.to_str().expect("text"));
    let settings = [("VERBATIM_HTTP__TLS__CERTIFICATE", paths[0]), ("VERBATIM_HTTP__TLS__KEY", paths[1])];
    let desk = Desk::new(&settings).await;
    let own = format!("https://localhost:{}", desk.program.address.port());
    let trusted = reqwest::Certificate::from_pem(made.pem().as_bytes()).expect("a certificate");
    let browser = reqwest::Client::builder().no_proxy().tls_certs_only([trusted]);
    let browser = browser.resolve("localhost", desk.program.address).build().expect("a client");
    let ask = |method: Method| {
        let request = browser.request(method, format!("{own}/console/session"));
        request.header("origin", &own).header("x-verbatim-console", "1")
    };
    let answer = with_json(ask(Method::POST), &json!({ "key": desk.admin.1 })).send().await;
    let answer = answer.expect("an answer");
    let set = header(&answer, "set-cookie").to_owned();
    assert!(set.starts_with("__Host-verbatim-console-") && set.ends_with("; Secure"), "{set}");
    let cookie = set.split(';').next().expect("a cookie");
    // A page of the same domain without TLS could set the other name.
    for (cookie, expected) in [(cookie, 200), (cookie.trim_start_matches("__Host-"), 401)] {
        let answer = ask(Method::GET).header("cookie", cookie).send().await.expect("an answer");
        assert_eq!(answer.status(), expected, "{cookie}");
    }
    desk.program.stop().await;
}

#[tokio::test]
async fn attempts_at_once_count_too() {
    let desk = Desk::new(&[]).await;
    let wrong = json!({ "key": "org_wrong" });
    let answers = futures_util::future::join_all((0..40).map(|_| desk.sign_in(&wrong))).await;
    let tried = answers.iter().filter(|answer| answer.status() == 401).count();
    // One in six seconds is forgiven.
    assert!((10..20).contains(&tried), "{tried} of 40 were tried");
    desk.program.stop().await;
}

/// A server whose standard output is no terminal, once it listens; with the lines that it prints, and its log.
fn printing(state: &Path, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>, Arc<Mutex<String>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--threads", "1"]).args(SMALL_MODEL).args(arguments);
    command.env("VERBATIM_STATE_DIR", state).env("XDG_CONFIG_HOME", state);
    command.env("VERBATIM_SHUTDOWN__GRACE_SECONDS", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("it starts");
    let printed = BufReader::new(process.stdout.take().expect("piped")).lines();
    let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let log = Arc::new(Mutex::new(String::new()));
    let is_listening = |line: &String| line.contains("\"message\":\"listening\"");
    assert!(lines.by_ref().any(|line| is_listening(&line)), "it ended before it listened");
    let kept = log.clone();
    std::thread::spawn(move || lines.for_each(|line| *kept.lock().expect("no panic") += &line));
    (process, printed, log)
}

fn stop(process: &mut Child) {
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(sent.expect("a command").success());
    process.wait().expect("it ends");
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let state = TempDir::new().expect("a directory");
    let (mut silent, printed, _) = printing(state.path(), &[]);
    stop(&mut silent);
    assert_eq!(printed.map_while(Result::ok).collect::<Vec<_>>(), [""; 0], "no link without the flag");

    let (mut server, mut printed, log) = printing(state.path(), &["--console-link"]);
    let line = printed.find_map(|line| line.ok().filter(|line| line.contains("#sign-in="))).expect("a link");
    let (base, secret) = line.trim().split_once("/#sign-in=").expect("a link");
    assert!(base.starts_with("http://127.0.0.1:"), "{line}");
    let sign_in = async |secret: &str| {
        let request = client().post(format!("{base}/console/session"));
        let request = with_json(request, &json!({ "link": secret }));
        let request = request.header("origin", base).header("x-verbatim-console", "1");
        request.send().await.expect("an answer")
    };
    assert_eq!(sign_in("wrong").await.status(), 401);
    let first = sign_in(secret).await;
    assert_eq!(first.status(), 200);
    let known = json_of(first).await;
    assert_eq!(known["label"], "console link");
    assert_eq!(sign_in(secret).await.status(), 401, "once");
    stop(&mut server);
    assert!(!log.lock().expect("no panic").contains(secret));
}
