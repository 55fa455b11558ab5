//! The pages: their policy, their size, how browsers keep them.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{Desk, header};
use crate::server::client;

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
    // The page that opens first.
    seen.push(format!("{folder}pages/playground.js"));
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
            let named = match (name.strip_prefix("../"), name.strip_prefix("./")) {
                (Some(rest), _) => format!("{}/{rest}", here.rsplit_once('/').expect("a folder").0),
                (_, Some(rest)) => format!("{here}/{rest}"),
                // An example for users.
                (None, None) => continue,
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
async fn the_console_can_be_off() {
    let desk = Desk::new(&[("VERBATIM_CONSOLE__ENABLED", "false")]).await;
    for path in ["/", "/console/session"] {
        assert_eq!(desk.status(Method::GET, path, "", &[]).await, 404, "{path}");
    }
    assert_eq!(desk.sign_in(&json!({ "key": desk.admin.1 })).await.status(), 404);
    desk.program.stop().await;
}

#[tokio::test]
async fn the_console_can_have_a_listener_of_its_own() {
    let desk = Desk::new(&[("VERBATIM_CONSOLE__LISTEN", "127.0.0.1:0")]).await;
    assert_eq!(desk.status(Method::GET, "/", "", &[]).await, 404);
    let log = desk.program.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let line = lines.into_iter().find(|line| line["message"] == "console").expect("its address");
    let printed = line["address"].as_str().expect("text");
    let address: String = printed.chars().filter(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
    // The pages, and the API that they are clients of.
    for (path, expected) in [("/", 200), ("/health", 200), ("/v1/auth/token", 401), ("/console/session", 403)]
    {
        let answer = client().get(format!("http://{address}{path}")).send().await.expect("an answer");
        assert_eq!(answer.status(), expected, "{path}");
    }
    desk.program.stop().await;
}
