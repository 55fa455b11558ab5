//! Sums of the organisation's use.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use serde::Serialize;
use url::form_urlencoded;
use uuid::Uuid;

use super::filter;
use super::money::Resolution;
use super::period::{Period, day};
use super::project::manager;
use crate::api::error;
use crate::api::services::Services;
use crate::http::{Failure, Request, Response, json};
use crate::keys::Permission;
use crate::usage::{Filter, Grouping, SUMS_MAX, Sum};

const DAY: Duration = Duration::from_secs(86_400);
const SECONDS_PER_HOUR: f64 = 3600.0;

/// Use by day.
#[derive(Serialize)]
struct Usage<R> {
    start: String,
    end: String,
    resolution: Resolution,
    results: Vec<R>,
}

/// The use of a day.
#[derive(Serialize)]
struct Amounts {
    /// Hours of audio.
    hours: f64,
    /// Hours of audio, each channel counted.
    total_hours: f64,
    agent_hours: f64,
    /// Language models are not the server's.
    tokens_in: u64,
    tokens_out: u64,
    tts_characters: u64,
    requests: u64,
}

#[derive(Serialize)]
struct Summary {
    start: String,
    end: String,
    #[serde(flatten)]
    amounts: Amounts,
}

#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    amounts: Amounts,
    grouping: Value,
}

/// The value of the property that sums are made for; those of all others are null.
#[derive(Serialize, Default)]
struct Value {
    start: String,
    end: String,
    accessor: Option<String>,
    endpoint: Option<String>,
    feature_set: Option<String>,
    models: Vec<String>,
    method: Option<String>,
    tags: Option<Vec<String>>,
    deployment: Option<String>,
}

/// Values that sums can be filtered by.
#[derive(Serialize)]
struct Fields {
    tags: Vec<String>,
    models: Vec<Model>,
    processing_methods: Vec<String>,
    features: Vec<String>,
}

#[derive(Serialize)]
struct Model {
    name: String,
    language: &'static str,
    version: &'static str,
    model_id: Uuid,
}

impl Amounts {
    fn of(sum: &Sum) -> Self {
        Self {
            hours: sum.audio_seconds / SECONDS_PER_HOUR,
            total_hours: sum.channel_seconds / SECONDS_PER_HOUR,
            agent_hours: sum.agent_seconds / SECONDS_PER_HOUR,
            tokens_in: 0,
            tokens_out: 0,
            tts_characters: sum.characters,
            requests: sum.requests,
        }
    }
}

impl Value {
    fn of(sum: &Sum, grouping: Option<Grouping>) -> Self {
        let (start, end) = whole_day(&sum.day);
        let (none, group) = (Self { start, end, ..Self::default() }, sum.group.clone());
        let list = || {
            let group = sum.group.as_deref().unwrap_or_default();
            serde_json::from_str::<Vec<String>>(group).unwrap_or_default()
        };
        match grouping {
            None => none,
            Some(Grouping::Accessor) => Self { accessor: group, ..none },
            Some(Grouping::Endpoint) => Self { endpoint: group, ..none },
            Some(Grouping::FeatureSet) => Self { feature_set: Some(list().join(",")), ..none },
            Some(Grouping::Models) => Self { models: group.into_iter().collect(), ..none },
            Some(Grouping::Method) => Self { method: group, ..none },
            Some(Grouping::Tags) => Self { tags: Some(list()), ..none },
            Some(Grouping::Deployment) => Self { deployment: group, ..none },
        }
    }
}

/// The day, and the next one.
fn whole_day(date: &str) -> (String, String) {
    let next = super::date::parse(date).and_then(|start| start.checked_add(DAY)).map(day);
    (date.to_owned(), next.unwrap_or_default())
}

pub(super) async fn summary(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let (sums, period) = sums(&services, &request, None).await?;
    let results = sums.iter().map(|sum| {
        let (start, end) = whole_day(&sum.day);
        Summary { start, end, amounts: Amounts::of(sum) }
    });
    Ok(json(StatusCode::OK, &usage(period, results.collect())))
}

pub(super) async fn breakdown(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let grouping = grouping(request.uri.query().unwrap_or_default())?;
    let (sums, period) = sums(&services, &request, grouping).await?;
    let results =
        sums.iter().map(|sum| Group { amounts: Amounts::of(sum), grouping: Value::of(sum, grouping) });
    Ok(json(StatusCode::OK, &usage(period, results.collect())))
}

fn usage<R>(period: Period, results: Vec<R>) -> Usage<R> {
    let (start, end) = (period.first_day(), period.last_day());
    Usage { start, end, resolution: Resolution { units: "day", amount: 1 }, results }
}

async fn sums(
    services: &Services,
    request: &Request,
    grouping: Option<Grouping>,
) -> Result<(Vec<Sum>, Period), Failure> {
    let caller = manager(services, request, Permission::UsageRead).await?;
    let (query, now) = (request.uri.query().unwrap_or_default(), SystemTime::now());
    let period = Period::of_query(query, now)?;
    let sums = match filter::of_query(query, caller.tenant, now)? {
        Some(filter) => services.usage.sums(filter, grouping).await?,
        None => Vec::new(),
    };
    if sums.len() > SUMS_MAX {
        return Err(error::invalid_query("start", "leaves too many results: ask for a shorter period"));
    }
    Ok((sums, period))
}

fn grouping(query: &str) -> Result<Option<Grouping>, Failure> {
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "grouping");
    let Some((_, asked)) = asked.filter(|(_, asked)| !asked.is_empty()) else { return Ok(None) };
    let known = Grouping::ALL.into_iter().find(|grouping| grouping.name() == asked);
    let names = Grouping::ALL.map(Grouping::name).join(", ");
    known.map(Some).ok_or_else(|| error::invalid_query("grouping", &format!("must be one of {names}")))
}

pub(super) async fn fields(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::UsageRead).await?;
    let period = Period::of_query(request.uri.query().unwrap_or_default(), SystemTime::now())?;
    let found = services.usage.fields(Filter::all(caller.tenant, period.start, period.end)).await?;
    let served = services.models.statuses();
    let is_english = |model_id| {
        let info = served.iter().find(|model| model.uuid == model_id).and_then(|model| model.info.as_ref());
        info.is_some_and(|info| info.languages == ["en"])
    };
    let models = found.models.into_iter().map(|(name, model_id)| Model {
        // Models of one language say so in their name.
        language: if name.ends_with(".en") || is_english(model_id) { "en" } else { "multi" },
        name,
        version: env!("CARGO_PKG_VERSION"),
        model_id,
    });
    let fields = Fields {
        tags: found.tags,
        models: models.collect(),
        processing_methods: found.methods,
        features: found.features,
    };
    Ok(json(StatusCode::OK, &fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_its_value_in_its_place() {
        let sum = |group: &str| Sum {
            day: "2027-01-31".into(),
            group: Some(group.into()),
            requests: 2,
            audio_seconds: 1800.0,
            channel_seconds: 3600.0,
            agent_seconds: 0.0,
            characters: 0,
        };
        let value =
            |grouping, group: &str| serde_json::to_value(Value::of(&sum(group), Some(grouping))).unwrap();
        let tags = value(Grouping::Tags, r#"["a","b"]"#);
        assert_eq!(tags["tags"], serde_json::json!(["a", "b"]));
        assert_eq!((&tags["start"], &tags["end"]), (&"2027-01-31".into(), &"2027-02-01".into()));
        assert!(tags["method"].is_null() && tags["accessor"].is_null());
        assert_eq!(value(Grouping::FeatureSet, r#"["diarize","search"]"#)["feature_set"], "diarize,search");
        assert_eq!(value(Grouping::Models, "x")["models"], serde_json::json!(["x"]));
        assert_eq!(Amounts::of(&sum("")).hours, 0.5);
        assert!(
            grouping("grouping=tags").unwrap() == Some(Grouping::Tags) && grouping("grouping=x").is_err()
        );
    }
}
