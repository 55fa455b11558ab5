//! The log of the organisation's requests.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;
use serde::Serialize;
use url::form_urlencoded;
use uuid::Uuid;

use super::filter;
use super::period::Period;
use super::project::manager;
use crate::api::error;
use crate::api::services::Services;
use crate::clock::rfc3339;
use crate::http::{Caller, Failure, Request, Response, json};
use crate::keys::{Permission, public_id};
use crate::usage::{Filter, Row};

const LIMIT_DEFAULT: u32 = 10;
const LIMIT_MAX: u32 = 1000;

/// A page of requests, newest first.
#[derive(Serialize)]
struct Page {
    /// From 0.
    page: u64,
    limit: u32,
    requests: Vec<Logged>,
}

#[derive(Serialize, Clone)]
struct Logged {
    request_id: Uuid,
    project_uuid: Uuid,
    created: String,
    path: String,
    api_key_id: Uuid,
    code: u16,
    deployment: &'static str,
    response: Answered,
}

#[derive(Serialize, Clone)]
struct Answered {
    code: u16,
    completed: String,
    details: Details,
}

#[derive(Serialize, Clone)]
struct Details {
    /// Seconds of audio.
    duration: f64,
    /// Each channel counted.
    total_audio: f64,
    channels: u32,
    streams: u32,
    models: Vec<Uuid>,
    method: String,
    tags: Vec<String>,
    features: Vec<String>,
    config: Config,
}

/// The values of parameters, which are not logged.
#[derive(Serialize, Clone)]
struct Config {}

/// The form of newer clients, and beside it that of older ones.
#[derive(Serialize)]
struct One {
    request: Logged,
    #[serde(flatten)]
    older: Logged,
}

impl Logged {
    fn of(row: Row, tenant: u64) -> Self {
        let details = Details {
            duration: row.audio_seconds,
            total_audio: row.audio_seconds * f64::from(row.channels.max(1)),
            channels: row.channels,
            streams: u32::from(row.method == "streaming"),
            models: row.model_id.into_iter().collect(),
            method: row.method,
            tags: row.tags,
            features: row.features,
            config: Config {},
        };
        let completed = row.created.checked_add(row.elapsed).unwrap_or(row.created);
        Self {
            request_id: row.id,
            project_uuid: public_id::of_organisation(tenant),
            created: rfc3339(row.created),
            path: row.path,
            api_key_id: row.key,
            code: row.code,
            deployment: filter::DEPLOYMENT,
            response: Answered { code: row.code, completed: rfc3339(completed), details },
        }
    }
}

pub(super) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::UsageRead).await?;
    let query = request.uri.query().unwrap_or_default();
    let filter = filter::of_query(query, caller.tenant, SystemTime::now())?;
    let limit = number(query, "limit", u64::from(LIMIT_MAX))?.unwrap_or(u64::from(LIMIT_DEFAULT)).max(1);
    let limit = u32::try_from(limit).unwrap_or(LIMIT_MAX);
    let page = number(query, "page", u64::from(u32::MAX))?.unwrap_or(0);
    let rows = match filter {
        Some(filter) => services.usage.requests(filter, page * u64::from(limit), limit).await?,
        None => Vec::new(),
    };
    let requests = rows.into_iter().map(|row| Logged::of(row, caller.tenant)).collect();
    Ok(json(StatusCode::OK, &Page { page, limit, requests }))
}

/// A whole number up to `most`. SDKs write it as `10` or `10.0`.
fn number(query: &str, name: &'static str, most: u64) -> Result<Option<u64>, Failure> {
    let value = form_urlencoded::parse(query.as_bytes()).find(|(given, _)| given == name);
    let Some((_, value)) = value.filter(|(_, value)| !value.is_empty()) else { return Ok(None) };
    let whole = value.strip_suffix(".0").unwrap_or(&value).parse().ok().filter(|number| *number <= most);
    let problem = || error::invalid_query(name, &format!("must be a whole number from 0 to {most}"));
    whole.map(Some).ok_or_else(problem)
}

pub(super) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::UsageRead).await?;
    let id = request.capture("request_id").and_then(|id| Uuid::parse_str(id).ok());
    let row = match id {
        Some(id) => find(&services, &caller, id).await?,
        None => None,
    };
    let row = row.ok_or_else(|| error::nothing_such("Request"))?;
    let request = Logged::of(row, caller.tenant);
    Ok(json(StatusCode::OK, &One { request: request.clone(), older: request }))
}

async fn find(services: &Services, caller: &Caller, id: Uuid) -> Result<Option<Row>, Failure> {
    let all = Period::ever(SystemTime::now());
    let filter = Filter { id: Some(id), ..Filter::all(caller.tenant, all.start, all.end) };
    Ok(services.usage.requests(filter, 0, 1).await?.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_as_clients_write_them() {
        for (query, expected) in
            [("", None), ("limit=", None), ("limit=7&x=y", Some(7)), ("limit=7.0", Some(7))]
        {
            assert_eq!(number(query, "limit", 1000).unwrap(), expected, "{query}");
        }
        for wrong in ["limit=-1", "limit=1001", "limit=ten", "limit=1.5"] {
            assert!(number(wrong, "limit", 1000).is_err(), "{wrong}");
        }
    }
}
