//! What belongs to one organisation does not exist for another: jobs, requests, keys, voices, sums.

use serde_json::{Value, json};

use super::{Surfaces, told};
use crate::speech::cache;

/// Words of the second organisation alone.
const TAG: &str = "tagofthesecond";
const COMMENT: &str = "commentofthesecond";
const VOICE: &str = "voiceofthesecond";

#[tokio::test]
async fn nothing_of_another_organisation_is_seen_or_removed() {
    let surfaces = Surfaces::start(&[("VERBATIM_FETCH_ALLOW", "127.0.0.1")]).await;
    let (first, second) = (&surfaces.first, &surfaces.second);
    let speech = std::fs::read(cache("speech/jfk.wav")).expect("readable");
    let of_second = |method: &str, path: &str| surfaces.request(method, path, Some(&second.key));
    let of_first = |method: &str, path: &str| surfaces.request(method, path, Some(&first.key));

    let heard = told(of_second("post", &format!("/v1/listen?tag={TAG}")).body(speech.clone())).await;
    assert_eq!(heard.0, 200, "{}", heard.1);
    let request = heard.1["metadata"]["request_id"].as_str().expect("an id").to_owned();
    // Nothing listens there.
    let accepted =
        told(of_second("post", "/v1/listen?callback=http%3A%2F%2F127.0.0.1%3A9%2Fx").body(speech.clone()))
            .await;
    assert_eq!(accepted.0, 200, "{}", accepted.1);
    let job = accepted.1["request_id"].as_str().expect("an id").to_owned();
    let keys = format!("/v1/projects/{}/keys", second.project);
    let body = json!({"comment": COMMENT, "scopes": ["member"]}).to_string();
    let made = told(of_second("post", &keys).body(body)).await.1;
    let key = made["api_key_id"].as_str().expect("an id").to_owned();
    let enrolled = told(of_second("post", &format!("/v1/speakers?name={VOICE}")).body(speech)).await;
    let speaker =
        enrolled.1["speaker_id"].as_str().unwrap_or("00000000-0000-0000-0000-000000000001").to_owned();

    let project = format!("/v1/projects/{}", first.project);
    for (method, path) in [
        ("get", format!("{project}/requests/{request}")),
        ("get", format!("{project}/requests/{job}")),
        ("get", format!("{project}/keys/{key}")),
        ("delete", format!("{project}/keys/{key}")),
        ("get", format!("{project}/members/{key}/scopes")),
        ("delete", format!("{project}/members/{}", second.project)),
        ("get", format!("/v1/listen/jobs/{job}")),
        ("get", format!("/v1/speakers/{speaker}")),
        ("delete", format!("/v1/speakers/{speaker}")),
    ] {
        assert_eq!(told(of_first(method, &path)).await.0, 404, "{method} {path}");
    }
    let secrets = [request.as_str(), &job, &key, &speaker, &second.project, TAG, COMMENT, VOICE];
    for path in [
        format!("{project}/requests"),
        format!("{project}/requests?request_id={request}"),
        format!("{project}/requests?accessor={key}"),
        format!("{project}/keys"),
        format!("{project}/members"),
        format!("{project}/usage?accessor={key}"),
        format!("{project}/usage?tag={TAG}"),
        format!("{project}/usage/fields"),
        format!("{project}/usage/breakdown?grouping=accessor"),
        format!("{project}/usage/breakdown?grouping=tags"),
        format!("{project}/billing/breakdown"),
        format!("{project}/billing/fields"),
        "/v1/projects".to_owned(),
        "/v1/speakers".to_owned(),
        "/v1/status".to_owned(),
        "/v1/status/engine".to_owned(),
    ] {
        let (status, body, _) = told(of_first("get", &path)).await;
        let body = body.to_string();
        assert!(status == 200, "{path}: {status} {body}");
        assert!(secrets.iter().all(|secret| !body.contains(secret)), "{path}: {body}");
    }
    // The owner still has all of it.
    let project = format!("/v1/projects/{}", second.project);
    for path in
        [format!("{project}/keys/{key}"), format!("/v1/listen/jobs/{job}"), format!("/v1/speakers/{speaker}")]
    {
        let is_there = told(of_second("get", &path)).await.0 == 200;
        assert!(is_there || (enrolled.0 != 201 && path.contains("speakers")), "{path}");
    }
}

#[tokio::test]
async fn a_key_makes_no_key_that_is_more_than_itself() {
    let surfaces = Surfaces::start(&[]).await;
    let first = &surfaces.first;
    let keys = format!("/v1/projects/{}/keys", first.project);
    let maker = super::new_key(&surfaces.state, Some(first.tenant), &["keys:write", "keys:read"]);
    crate::server::until_known(&surfaces.program.url(""), &maker.key).await;
    let make = async |scopes: Value| {
        let body = json!({"comment": "made", "scopes": scopes}).to_string();
        told(surfaces.request("post", &keys, Some(&maker.key)).body(body)).await.0
    };
    for scopes in ["owner", "admin", "member", "usage:write", "project:write", "billing:read"] {
        assert_eq!(make(json!([scopes])).await, 403, "{scopes}");
        assert_eq!(make(json!(["keys:read", scopes])).await, 403, "{scopes}");
    }
    assert_eq!(make(json!(["operator"])).await, 400);
    assert_eq!(make(json!(["keys:read"])).await, 200);
}
