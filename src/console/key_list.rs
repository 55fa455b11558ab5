//! `/console/api/keys`: the keys of all organisations.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::body::read;
use super::guard::Admin;
use super::services::Services;
use crate::clock::rfc3339;
use crate::http::{Failure, Request, Response, json};
use crate::keys::{Actor, Key, KeyId, Limits, NewKey, SCOPES, Scopes, public_id};

/// A century.
const SECONDS_MAX: u64 = 3_155_760_000;

#[derive(Serialize)]
struct Keys<'a> {
    keys: Vec<Listed<'a>>,
    organisations: Vec<Organisation>,
    /// All words that a scope may be.
    scopes: &'static [&'static str],
    /// Whether the time of the last use is known: that is, whether requests are logged.
    knows_uses: bool,
}

#[derive(Serialize)]
struct Organisation {
    /// In decimal digits: it may exceed a number of JavaScript.
    id: String,
    project_id: Uuid,
    name: String,
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    label: &'a str,
    organisation: String,
    /// `admin`, `operator` or `caller`.
    role: &'static str,
    scopes: Vec<&'static str>,
    tags: &'a [String],
    /// `active`, `expired` or `revoked`.
    state: &'static str,
    created: String,
    expires: Option<String>,
    revoked: Option<String>,
    /// The time of the last logged request.
    last_used: Option<String>,
    limits: Limits,
    /// The key of this session.
    is_own: bool,
}

/// A key that nothing shows again.
#[derive(Serialize)]
struct Created<'a> {
    key: &'a str,
    #[serde(flatten)]
    listed: Listed<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    label: String,
    /// The organisation of existing keys; `null` begins a new one.
    #[serde(default)]
    organisation: Option<String>,
    /// Ignored for an operator, who may do everything.
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    /// From now on; `null` for never.
    #[serde(default)]
    expires_in_seconds: Option<u64>,
    /// Reads the metrics of all organisations.
    #[serde(default)]
    operator: bool,
    #[serde(default)]
    limits: Limits,
}

impl<'a> Listed<'a> {
    fn new(key: &'a Key, now: SystemTime, used: Option<SystemTime>, admin: &Admin) -> Self {
        let state = match key.revoked {
            Some(_) => "revoked",
            None if key.is_active(now) => "active",
            None => "expired",
        };
        Self {
            id: key.id.as_str(),
            label: &key.label,
            organisation: key.tenant.to_string(),
            role: key.role(),
            scopes: key.scopes.words().collect(),
            tags: &key.tags,
            state,
            created: rfc3339(key.created),
            expires: key.expires.map(rfc3339),
            revoked: key.revoked.map(rfc3339),
            last_used: used.map(rfc3339),
            limits: key.limits,
            is_own: key.id == admin.session.key,
        }
    }
}

pub async fn list(services: Arc<Services>, admin: Admin, _: Request) -> Result<Response, Failure> {
    let usage = &services.parts.usage;
    let uses = usage.last_uses().await?;
    let read = services.parts.verifier.with_store(|store| {
        let keys = store.list()?;
        let mut names = HashMap::new();
        for key in &keys {
            if let Entry::Vacant(place) = names.entry(key.tenant) {
                place.insert(store.organisation_name(key.tenant)?);
            }
        }
        Ok((keys, names))
    });
    let (keys, names) = read.await?;
    let now = SystemTime::now();
    let listed = keys.iter().map(|key| {
        let used = uses.get(&public_id::of_key(&key.id)).copied();
        Listed::new(key, now, used, &admin)
    });
    let organisations = names.into_iter().map(|(tenant, name)| Organisation {
        id: tenant.to_string(),
        project_id: public_id::of_organisation(tenant),
        name,
    });
    let mut organisations: Vec<_> = organisations.collect();
    organisations.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    let keys = Keys { keys: listed.collect(), organisations, scopes: &SCOPES, knows_uses: usage.is_on() };
    Ok(json(StatusCode::OK, &keys))
}

pub async fn create(services: Arc<Services>, admin: Admin, request: Request) -> Result<Response, Failure> {
    let asked: Option<Asked> = read(&request.headers, request.body).await?;
    let new = understood(asked.ok_or_else(|| wrong("The body has no `label`."))?)?;
    let by = Actor::Console(admin.session.key.clone());
    let made = services.parts.verifier.with_store(move |store| store.insert_by(&by, new)).await;
    let (key, secret) = made.map_err(|error| match error.is_usage() {
        true => wrong(&format!("{error}.")),
        false => error.into(),
    })?;
    tracing::info!(key = %key.id, by = %admin.session.key, "a key was made in the console");
    let listed = Listed::new(&key, SystemTime::now(), None, &admin);
    Ok(json(StatusCode::CREATED, &Created { key: secret.expose(), listed }))
}

/// Never an admin: those are made where the server runs.
fn understood(asked: Asked) -> Result<NewKey, Failure> {
    let scopes = Scopes::parse(asked.scopes.iter().map(String::as_str))
        .map_err(|unknown| wrong(&format!("{unknown}.")))?;
    let tenant = asked.organisation.map(|id| id.parse().map_err(|_| wrong("`organisation` is no id.")));
    let expires = match asked.expires_in_seconds {
        None => None,
        Some(seconds @ 1..=SECONDS_MAX) => Some(SystemTime::now() + Duration::from_secs(seconds)),
        Some(_) => return Err(wrong("`expires_in_seconds` is from 1 to 3155760000.")),
    };
    let new = NewKey::of_a_client(&asked.label);
    let scopes = match (asked.operator, scopes.is_empty()) {
        (true, _) => Scopes::of_an_owner(),
        (false, true) => new.scopes,
        (false, false) => scopes,
    };
    let is_operator = asked.operator;
    Ok(NewKey {
        tenant: tenant.transpose()?,
        is_operator,
        scopes,
        expires,
        tags: asked.tags,
        limits: asked.limits,
        ..new
    })
}

pub async fn revoke(services: Arc<Services>, admin: Admin, request: Request) -> Result<Response, Failure> {
    let id = request.captures.first().and_then(|(_, id)| KeyId::parse(id));
    let nothing = || Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such key.");
    let id = id.ok_or_else(nothing)?;
    let by = Actor::Console(admin.session.key.clone());
    let key = services.parts.verifier.with_store(move |store| store.revoke_by(&by, &id)).await?;
    let key = key.ok_or_else(nothing)?;
    tracing::info!(key = %key.id, by = %admin.session.key, "a key was revoked in the console");
    Ok(json(StatusCode::OK, &Listed::new(&key, SystemTime::now(), None, &admin)))
}

/// `PUT /console/api/keys/{id}/limits`: the limits of a key, in the place of all that it had.
pub async fn limit(services: Arc<Services>, admin: Admin, request: Request) -> Result<Response, Failure> {
    let id = request.captures.first().and_then(|(_, id)| KeyId::parse(id));
    let nothing = || Failure::new(StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such key.");
    let id = id.ok_or_else(nothing)?;
    let limits: Option<Limits> = read(&request.headers, request.body).await?;
    let limits = limits.ok_or_else(|| wrong("The body has no limits."))?;
    let by = Actor::Console(admin.session.key.clone());
    let limited = services.parts.verifier.with_store(move |store| store.limit(&by, &id, limits)).await;
    let key = limited.map_err(|error| match error.is_usage() {
        true => wrong(&format!("{error}.")),
        false => error.into(),
    })?;
    let key = key.ok_or_else(nothing)?;
    tracing::info!(key = %key.id, by = %admin.session.key, "a key was limited in the console");
    Ok(json(StatusCode::OK, &Listed::new(&key, SystemTime::now(), None, &admin)))
}

fn wrong(message: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, "Bad Request", message.to_owned())
}
