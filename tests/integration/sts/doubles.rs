//! Doubles of the services that an operator configures: one server each, which records its requests.

use std::sync::{Arc, Mutex};

use hyper::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};
use verbatim::http::{self, Response, Router};
use verbatim::secret::Secret;

use super::service::Setup;
use crate::server::Door;

/// A request: headers and body.
pub type Asked = Arc<Mutex<Vec<(HeaderMap, String)>>>;

pub struct Double {
    pub url: String,
    pub asked: Asked,
    _door: Door,
}

impl Double {
    /// Answers every POST to `path` by `answer`, which gets the body.
    pub async fn start<F>(path: &str, answer: F) -> Self
    where
        F: Fn(&str) -> (StatusCode, Value) + Clone + Send + Sync + 'static,
    {
        let asked = Asked::default();
        let noted = asked.clone();
        let handler = move |request: http::Request| {
            let (noted, answer) = (noted.clone(), answer.clone());
            async move {
                let body = request.body.collect().await?;
                let body = String::from_utf8(body.bytes().to_vec()).expect("text");
                let (status, reply) = answer(&body);
                noted.lock().expect("no test panics here").push((request.headers, body));
                Ok(http::json(status, &reply))
            }
        };
        let door =
            Door::open(Router::new().route(Method::POST, path, handler), http::Config::default()).await;
        Self { url: format!("http://{}", door.address), asked, _door: door }
    }

    pub fn bodies(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics here").iter().map(|(_, body)| body.clone()).collect()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let asked = self.asked.lock().expect("no test panics here");
        asked.last()?.0.get(name)?.to_str().ok().map(str::to_owned)
    }
}

/// The provider's `Messages` resource.
pub async fn provider() -> Double {
    Double::start("/2010-04-01/Accounts/AC1/Messages.json", |body| {
        if body.contains("To=%2B15005550004") {
            return (StatusCode::BAD_REQUEST, json!({"code": 21610, "message": "stopped", "status": 400}));
        }
        (StatusCode::CREATED, json!({"sid": "SM1", "status": "queued"}))
    })
    .await
}

/// The service sends its messages by the provider at `url`.
pub fn send_by(url: &str, setup: &mut Setup) {
    let twilio = &mut setup.config.twilio;
    url.clone_into(&mut twilio.base_url);
    twilio.account_sid = Some("AC1".into());
    twilio.auth_token = Some(Secret::from("token"));
    twilio.from = Some("+15005550006".into());
}

/// The hook, which knows one code.
pub async fn hook() -> Double {
    Double::start("/hook", |body| {
        let asked: Value = serde_json::from_str(body).expect("JSON");
        let verified = asked["utterance"].as_str().expect("text").contains("1234");
        (StatusCode::OK, json!({"verified": verified, "details": {"sms_catalog_key": "forms"}}))
    })
    .await
}

/// A website of some pages.
pub async fn website(pages: &'static [(&'static str, &'static str)]) -> (String, Door) {
    let mut router = Router::new();
    for (path, text) in pages {
        let kind = if path.ends_with(".txt") { "text/plain" } else { "text/html; charset=utf-8" };
        router = router.route(Method::GET, path, move |_| async move {
            let mut response = text_response(text);
            response.headers_mut().insert("content-type", kind.parse().expect("a type"));
            Ok(response)
        });
    }
    let door = Door::open(router, http::Config::default()).await;
    (format!("http://{}", door.address), door)
}

fn text_response(text: &'static str) -> Response {
    use http_body_util::{BodyExt as _, Full};
    let body = Full::from(text).map_err(|never: std::convert::Infallible| match never {});
    Response::new(body.boxed_unsync())
}
