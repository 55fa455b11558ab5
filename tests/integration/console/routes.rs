//! What is shown and changed: keys, jobs, figures, errors, settings.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use super::{Desk, PATIENCE, json_of, with_json};
use crate::server::{client, new_key};

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
    let child = client().post(desk.program.url(&path)).bearer_auth(&desk.admin.1);
    let child = json_of(with_json(child, &asked).send().await.expect("an answer")).await;
    let child = child["key"].as_str().expect("a key");
    assert_eq!(desk.sign_in(&json!({ "key": child })).await.status(), 401);
    desk.program.stop().await;
}

#[tokio::test]
async fn operations_show_figures_and_no_secret() {
    let secret = "do-not-show-this";
    let settings = [
        ("DEMO_API_KEY", secret),
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
    // Where there is a driver, its GPUs; otherwise nothing is claimed.
    assert!(figures["gpus"].is_null() || figures["gpus"].is_array(), "{figures}");
    assert_eq!(
        figures["samples"]["series"]["gpu_used"].as_array().map(Vec::len),
        slots.as_array().map(Vec::len)
    );
    let next = figures["samples"]["next"].as_u64().expect("a number");
    let newer = desk.get(&format!("/console/api/operations?from={next}"), &cookie).await;
    assert!(newer["samples"]["unix_ms"].as_array().expect("times").len() < 2);

    let config = desk.get("/console/api/config", &cookie).await;
    let settings = config["settings"].as_array().expect("settings");
    let named = |name: &str| settings.iter().find(|setting| setting["name"] == name).expect("it is there");
    assert_eq!(named("models.model")["source"], "the flag --model");
    let hidden = named("demo.api_key");
    assert_eq!(hidden["value"], Value::Null);
    assert_eq!(hidden["source"], "the environment variable DEMO_API_KEY");
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
    // The console fetches from where clients' addresses may lead, and from nowhere else.
    for asked in [json!({ "url": "http://169.254.169.254/a.wav" }), json!({ "url": "x" }), json!({})] {
        desk.send(Method::POST, "/console/api/audio", &cookie, Some(asked), 400).await;
    }
    let unknown = "/console/api/jobs/00000000-0000-4000-8000-000000000000";
    desk.send(Method::GET, unknown, &cookie, None, 404).await;
    desk.send(Method::POST, &format!("{unknown}/retry"), &cookie, None, 404).await;
    desk.program.stop().await;
}
