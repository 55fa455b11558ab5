//! `POST /v1/auth/grant`: a token for a browser, made with a key; and `GET /v1/auth/token`: the facts about the
//! credentials of a request.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error;
use super::json_body::read;
use super::services::Services;
use crate::clock::rfc3339_seconds;
use crate::http::{Failure, Request, Response, json};
use crate::keys::{TTL_DEFAULT, TTL_MAX, public_id};

#[derive(Deserialize, Default)]
struct Asked {
    ttl_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Granted {
    access_token: String,
    /// In seconds.
    expires_in: u64,
}

/// The credentials of a request, without their secret.
#[derive(Serialize)]
struct Credentials {
    project_id: Uuid,
    api_key_id: Uuid,
    scopes: Vec<&'static str>,
    /// `key` or `token`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_date: Option<String>,
}

pub(super) async fn grant(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.caller(&request.headers).await?;
    // A token that could grant tokens would never expire.
    caller.require_key()?;
    let asked: Asked = read(request.body, caller.tenant).await?.unwrap_or_default();
    let ttl = match asked.ttl_seconds {
        None => TTL_DEFAULT,
        // A part of a second is left out.
        Some(seconds) if (1.0..=TTL_MAX.as_secs_f64()).contains(&seconds) => {
            Duration::from_secs(seconds as u64)
        }
        Some(_) => {
            let problem = format!("it must be from 1 to {}", TTL_MAX.as_secs());
            return Err(error::invalid_member("ttl_seconds", &problem));
        }
    };
    let granted = services.authenticator.keys().grant(&caller, ttl);
    let answer = Granted { access_token: granted.token, expires_in: granted.ttl.as_secs() };
    Ok(json(StatusCode::OK, &answer))
}

pub(super) async fn token(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.holder(&request.headers).await?;
    let answer = Credentials {
        project_id: public_id::of_organisation(caller.tenant),
        api_key_id: public_id::of_key(&caller.key),
        scopes: caller.scopes.words().collect(),
        kind: if caller.is_token { "token" } else { "key" },
        expiration_date: caller.expires.map(rfc3339_seconds),
    };
    Ok(json(StatusCode::OK, &answer))
}
