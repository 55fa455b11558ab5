//! `/console/session`: signing in, out, and looking whether one is. And `/console/api/token`: what a page uses the
//! public API with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::header::{HeaderValue, RETRY_AFTER, SET_COOKIE};
use hyper::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::body::read;
use super::guard::{Admin, admin, check_origin, cookie, set_cookie};
use super::services::Services;
use super::sessions::Session;
use super::{assets, policy};
use crate::http::{Body, Failure, Request, Response, empty, json};
use crate::keys::{Identity, public_id};

/// The life of a token; pages ask for the next one before.
const TOKEN_TTL: Duration = Duration::from_secs(300);

/// One of them.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Asked {
    /// An admin key.
    key: Option<String>,
    /// The secret of a one-time link.
    link: Option<String>,
}

#[derive(Serialize)]
struct Known<'a> {
    key_id: &'a str,
    label: &'a str,
    /// The organisation whose name the pages use the API in.
    project_id: Uuid,
    /// In seconds, at most.
    expires_in: u64,
    /// The folder of the pages that belong to this server.
    assets: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Granted {
    access_token: String,
    /// In seconds.
    expires_in: u64,
}

/// `POST /console/session`.
pub async fn sign_in(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    check_origin(&request)?;
    let (address, now) = (services.proxies.client(request.peer.ip(), &request.headers), Instant::now());
    services.attempts.begin(address, now).map_err(too_often)?;
    let before = cookie(&services, &request);
    let found = find(&services, &request.headers, request.body).await;
    if !matches!(found, Ok(None)) {
        services.attempts.take_back(address);
    }
    let Some((identity, label)) = found? else {
        return Err(Failure::new(StatusCode::UNAUTHORIZED, "INVALID_AUTH", "Invalid credentials."));
    };
    // The browser forgets its cookie; so does the server.
    if let Some(before) = before {
        services.sessions.end(&before);
    }
    let id = services.sessions.begin(identity.key.clone(), label, now);
    tracing::info!(key = %identity.key, "signed in to the console");
    let session = services.sessions.find(&id, now).ok_or_else(|| Failure::internal("the session is gone"))?;
    let mut response = known(&services, &identity, &session);
    response
        .headers_mut()
        .append(SET_COOKIE, set_cookie(&services, &request.headers, &request.uri, Some(&id)));
    Ok(response)
}

/// The admin whom the body names, with the label of the key; `None` if it names no admin.
async fn find(
    services: &Services,
    headers: &HeaderMap,
    body: Body,
) -> Result<Option<(Identity, String)>, Failure> {
    let asked: Asked = read(headers, body).await?.unwrap_or_default();
    match (asked.key, asked.link) {
        (Some(key), None) => by_key(services, &key).await,
        (None, Some(link)) => by_link(services, &link).await,
        _ => {
            let message = "The body must have `key`, an admin key, or `link`, of a one-time link.";
            Err(Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message))
        }
    }
}

async fn by_key(services: &Services, key: &str) -> Result<Option<(Identity, String)>, Failure> {
    let verifier = &services.parts.verifier;
    let Some(identity) = verifier.verify_admin(key).await? else { return Ok(None) };
    let keys = verifier.with_store(|store| store.list()).await?;
    let label = keys.into_iter().find(|key| key.id == identity.key).map(|key| key.label);
    Ok(label.map(|label| (identity, label)))
}

async fn by_link(services: &Services, link: &str) -> Result<Option<(Identity, String)>, Failure> {
    let Some((key, label)) = services.links.take(link, Instant::now()) else { return Ok(None) };
    let identity = services.parts.verifier.admin(&key).await?;
    Ok(identity.map(|identity| (identity, label)))
}

fn too_often(wait: Duration) -> Failure {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let message = "Too many attempts to sign in. Please try again later.";
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS", message)
        .header(RETRY_AFTER, HeaderValue::from(seconds.max(1)))
}

/// `GET /console/session`.
pub async fn session(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let Admin { identity, session, .. } = admin(&services, &request).await?;
    Ok(known(&services, &identity, &session))
}

fn known(services: &Services, identity: &Identity, session: &Session) -> Response {
    let known = Known {
        key_id: session.key.as_str(),
        label: &session.label,
        project_id: public_id::of_organisation(identity.tenant),
        expires_in: services.sessions.left(session, Instant::now()).as_secs(),
        assets: assets::hash(),
        version: env!("CARGO_PKG_VERSION"),
    };
    let mut response = json(StatusCode::OK, &known);
    policy::mark_data(response.headers_mut());
    response
}

/// `DELETE /console/session`.
pub async fn sign_out(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let admin = admin(&services, &request).await?;
    services.sessions.end(&admin.cookie);
    let mut response = empty(StatusCode::NO_CONTENT);
    response.headers_mut().append(SET_COOKIE, set_cookie(&services, &request.headers, &request.uri, None));
    policy::mark_data(response.headers_mut());
    Ok(response)
}

/// `POST /console/api/token`.
pub async fn token(services: Arc<Services>, admin: Admin, _: Request) -> Result<Response, Failure> {
    let granted = services.parts.verifier.grant(&admin.identity, TOKEN_TTL);
    let answer = Granted { access_token: granted.token, expires_in: granted.ttl.as_secs() };
    Ok(json(StatusCode::OK, &answer))
}
