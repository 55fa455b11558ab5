//! The keys of the caller's organisation.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;
use uuid::Uuid;

use super::date;
use super::project::{Message, manager};
use crate::api::error;
use crate::api::json_body::read;
use crate::api::services::Services;
use crate::clock::rfc3339;
use crate::http::{Failure, Request, Response, json};
use crate::keys::{Key, KeyId, Limits, NewKey, Permission, Scopes, public_id};

/// The longest time to live that is a time at all: a century.
const TTL_SECONDS_MAX: f64 = 3_155_760_000.0;

#[derive(Deserialize)]
struct Asked {
    comment: String,
    scopes: Vec<String>,
    #[serde(default)]
    tags: Option<Vec<String>>,
    expiration_date: Option<String>,
    time_to_live_in_seconds: Option<f64>,
}

/// A new key. Nothing shows its text again.
#[derive(Serialize)]
struct Created<'a> {
    key: &'a str,
    #[serde(flatten)]
    api_key: ApiKey<'a>,
}

#[derive(Serialize)]
struct ApiKey<'a> {
    api_key_id: Uuid,
    comment: &'a str,
    scopes: Vec<&'static str>,
    tags: &'a [String],
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_date: Option<String>,
    /// An extension; left out without limits.
    #[serde(skip_serializing_if = "Limits::are_none")]
    limits: Limits,
}

/// The holder of a key. There are no people here, so it is the organisation itself.
#[derive(Serialize, Clone, Copy)]
struct Member {
    member_id: Uuid,
    email: &'static str,
    first_name: &'static str,
    last_name: &'static str,
}

#[derive(Serialize)]
struct Held<'a> {
    member: Member,
    api_key: ApiKey<'a>,
}

#[derive(Serialize)]
struct Keys<'a> {
    api_keys: Vec<Held<'a>>,
}

/// The form of newer clients, and beside it that of older ones.
#[derive(Serialize)]
struct One<'a> {
    item: Item<'a>,
    #[serde(flatten)]
    held: Held<'a>,
}

#[derive(Serialize)]
struct Item<'a> {
    member: MemberAndKey<'a>,
}

#[derive(Serialize)]
struct MemberAndKey<'a> {
    #[serde(flatten)]
    member: Member,
    api_key: ApiKey<'a>,
}

impl<'a> ApiKey<'a> {
    fn of(key: &'a Key) -> Self {
        Self {
            api_key_id: public_id::of_key(&key.id),
            comment: &key.label,
            scopes: key.scopes.words().collect(),
            tags: &key.tags,
            created: rfc3339(key.created),
            expiration_date: key.expires.map(rfc3339),
            limits: key.limits,
        }
    }
}

impl<'a> Held<'a> {
    fn of(key: &'a Key) -> Self {
        Self { member: member_of(key), api_key: ApiKey::of(key) }
    }
}

fn member_of(key: &Key) -> Member {
    Member { member_id: public_id::of_organisation(key.tenant), email: "", first_name: "", last_name: "" }
}

/// Keys that a list shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Any,
    Active,
    Expired,
}

pub(super) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::KeysRead).await?;
    let wanted = status(request.uri.query().unwrap_or_default())?;
    let mut keys = of_organisation(&services, caller.tenant).await?;
    let now = SystemTime::now();
    keys.retain(|key| wanted == Status::Any || key.is_active(now) == (wanted == Status::Active));
    Ok(json(StatusCode::OK, &Keys { api_keys: keys.iter().map(Held::of).collect() }))
}

fn status(query: &str) -> Result<Status, Failure> {
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "status");
    match asked.as_ref().map(|(_, status)| &**status) {
        None | Some("") => Ok(Status::Any),
        Some("active") => Ok(Status::Active),
        Some("expired") => Ok(Status::Expired),
        Some(_) => Err(error::invalid_query("status", "must be active or expired")),
    }
}

pub(super) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::KeysRead).await?;
    let keys = of_organisation(&services, caller.tenant).await?;
    let key = named(&request, &keys)?;
    let member = MemberAndKey { member: member_of(key), api_key: ApiKey::of(key) };
    Ok(json(StatusCode::OK, &One { item: Item { member }, held: Held::of(key) }))
}

pub(super) async fn create(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::KeysWrite).await?;
    let asked: Option<Asked> = read(request.body, caller.tenant).await?;
    let asked =
        asked.ok_or_else(|| error::invalid_member("comment", "it is required, and so is `scopes`"))?;
    let new = understood(asked, SystemTime::now())?;
    let made = services.authenticator.keys().with_store(move |store| {
        let keys = store.of_organisation(caller.tenant)?;
        // Another request may have deleted the caller's key since it was verified.
        let maker = keys.iter().find(|key| key.id == caller.key).ok_or(crate::keys::Error::Escalation)?;
        let expires = new.expires.or(maker.expires);
        store.insert_for(maker, NewKey { expires, ..new })
    });
    let (key, secret) = made.await?;
    Ok(json(StatusCode::OK, &Created { key: secret.expose(), api_key: ApiKey::of(&key) }))
}

/// The key that is asked for. Without a time it expires with the key that makes it, or never.
fn understood(asked: Asked, now: SystemTime) -> Result<NewKey, Failure> {
    // A client in Go sends the year 1 for a time that is not set.
    let is_set = |date: &String| !date.is_empty() && !date.starts_with("0001-01-01");
    let scopes = Scopes::parse(asked.scopes.iter().map(String::as_str))
        .map_err(|unknown| error::invalid_member("scopes", &unknown.to_string()))?;
    let expires = match (asked.expiration_date.filter(is_set), asked.time_to_live_in_seconds) {
        (None, None) => None,
        (Some(date), None) => Some(date::parse(&date).ok_or_else(|| {
            error::invalid_member(
                "expiration_date",
                "expected a time as in RFC 3339, such as 2027-01-31T12:00:00Z",
            )
        })?),
        (None, Some(seconds)) if (1.0..=TTL_SECONDS_MAX).contains(&seconds) => {
            Some(now + Duration::from_secs_f64(seconds))
        }
        (None, Some(_)) => {
            let problem = "expected a number from 1 to 3155760000";
            return Err(error::invalid_member("time_to_live_in_seconds", problem));
        }
        (Some(_), Some(_)) => {
            let problem = "it cannot be given together with `expiration_date`";
            return Err(error::invalid_member("time_to_live_in_seconds", problem));
        }
    };
    let new = NewKey::of_a_client(&asked.comment);
    Ok(NewKey { scopes, expires, tags: asked.tags.unwrap_or_default(), ..new })
}

pub(super) async fn delete(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::KeysWrite).await?;
    let keys = of_organisation(&services, caller.tenant).await?;
    let id = named(&request, &keys)?.id.clone();
    let revoked = services
        .authenticator
        .keys()
        .with_store(move |store| store.revoke_of(caller.tenant, &id, &caller.key))
        .await?;
    revoked.ok_or_else(|| error::nothing_such("API key"))?;
    Ok(json(StatusCode::OK, &Message { message: "Successfully deleted the API key." }))
}

async fn of_organisation(services: &Services, tenant: u64) -> Result<Vec<Key>, Failure> {
    Ok(services.authenticator.keys().with_store(move |store| store.of_organisation(tenant)).await?)
}

/// The key that the path names: by its UUID, or by its id as the operator sees it.
fn named<'a>(request: &Request, keys: &'a [Key]) -> Result<&'a Key, Failure> {
    let name = request.capture("key_id").unwrap_or_default();
    let (uuid, id) = (Uuid::parse_str(name).ok(), KeyId::parse(name));
    let is_named = |key: &&Key| uuid == Some(public_id::of_key(&key.id)) || id.as_ref() == Some(&key.id);
    keys.iter().find(is_named).ok_or_else(|| error::nothing_such("API key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(json: &str) -> Result<NewKey, Failure> {
        understood(serde_json::from_str(json).unwrap(), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_key_is_described_in_one_way_at_a_time() {
        let new =
            asked(r#"{"comment": "a", "scopes": ["member"], "time_to_live_in_seconds": 60, "tags": null}"#);
        assert_eq!(new.unwrap().expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)));
        let new = asked(
            r#"{"comment": "a", "scopes": ["member"], "expiration_date": "1970-01-02", "tags": ["x"]}"#,
        );
        let new = new.unwrap();
        assert_eq!(new.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
        assert_eq!(new.tags, ["x"]);
        let go = r#"{"comment": "a", "scopes": ["member"], "expiration_date": "0001-01-01T00:00:00Z", "time_to_live_in_seconds": 60}"#;
        assert_eq!(asked(go).unwrap().expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60)));
        for (more, name) in [
            (r#""time_to_live_in_seconds": 0"#, "time_to_live_in_seconds"),
            (r#""time_to_live_in_seconds": 1e300"#, "time_to_live_in_seconds"),
            (r#""expiration_date": "tomorrow""#, "expiration_date"),
            (r#""expiration_date": "2027-01-01", "time_to_live_in_seconds": 1"#, "time_to_live_in_seconds"),
        ] {
            let failure = asked(&format!(r#"{{"comment": "a", "scopes": ["member"], {more}}}"#)).unwrap_err();
            assert!(failure.message().contains(name), "{more}: {}", failure.message());
        }
        let failure = asked(r#"{"comment": "a", "scopes": ["root"]}"#).unwrap_err();
        assert!(failure.message().contains("root") && failure.message().contains("usage:write"));
    }

    #[test]
    fn a_list_may_be_of_one_status() {
        assert!(status("").unwrap() == Status::Any && status("status=active&x=y").unwrap() == Status::Active);
        assert!(status("status=expired").unwrap() == Status::Expired && status("status=old").is_err());
    }
}
