//! The front-end pages that the links lead to. The pages have no key: they report to this site, which calls the backend's own
//! functions, like the server side of a client's pages.

use std::sync::Arc;

use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY};
use hyper::{Method, StatusCode};

use super::backend::Demo;
use super::fields::Fields;
use super::reply::{answer, whole};
use super::{client, forwarded_for};
use crate::http::{Failure, Request, Response, Router};

/// Path, title, content.
const PAGES: [(&str, &str, &str); 4] = [
    ("/", "The demo clinic", include_str!("pages/default.html")),
    ("/forms", "Sign up", include_str!("pages/forms.html")),
    ("/patients", "Patient information", include_str!("pages/patients.html")),
    ("/privacy", "Privacy", include_str!("pages/privacy.html")),
];
const FRAME: &str = include_str!("pages/frame.html");
const SCRIPT: &str = include_str!("pages/page.js");

/// The site's routes.
pub fn site(demo: &Arc<Demo>) -> Router {
    let demo = demo.clone();
    let html = "text/html; charset=utf-8";
    let script = |_| async { Ok(page("text/javascript; charset=utf-8", SCRIPT.to_owned())) };
    let router = Router::new().route(Method::GET, "/page.js", script).route(
        Method::POST,
        "/events/{name}",
        move |request| event(demo.clone(), request),
    );
    PAGES.into_iter().fold(router, |router, (path, title, content)| {
        let text = FRAME.replace("{title}", title).replace("{content}", content);
        router.route(Method::GET, path, move |_| std::future::ready(Ok(page(html, text.clone()))))
    })
}

/// `POST /events/{name}`: one of the backend's client routes, by its last segment.
async fn event(demo: Arc<Demo>, request: Request) -> Result<Response, Failure> {
    // Browsers let pages of other origins send forms and text without a preflight request, but not JSON.
    let media_type =
        request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "The body must be JSON, with `Content-Type: application/json`.";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message));
    }
    // Only a proxy on this machine is trusted to name the client that it forwards for.
    let forwarded = request.peer.ip().to_canonical().is_loopback().then(|| forwarded_for(&request.headers));
    let address = forwarded.flatten().unwrap_or(request.peer.ip());
    let fields = Fields::read(request.body).await?;
    let name = request.captures.first().map_or("", |(_, name)| name);
    answer(match name {
        "form-event" => client::form_event(demo, fields, address).await,
        "verify-and-submit" => client::verify_and_submit(demo, fields, address).await,
        "verify-patient-info-demo" => client::verify_patient(demo, fields, address).await,
        "form-completed" => client::form_completed(demo, fields, address).await,
        _ => return Err(Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such event.")),
    })
}

fn page(media_type: &'static str, text: String) -> Response {
    let mut response = whole(StatusCode::OK, HeaderValue::from_static(media_type), text);
    let policy = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; \
                  form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    // The URL contains the code of the visit.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
