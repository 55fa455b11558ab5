//! Queries of the log: requests, and sums by day.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use rusqlite::types::Value;
use rusqlite::{Row as SqlRow, params_from_iter};
use uuid::Uuid;

use super::database::Database;
use super::entry::{Endpoint, FEATURES, Method};
use crate::clock::{from_unix_ms, unix_ms};

/// Sums that one answer holds.
pub const SUMS_MAX: usize = 10_000;
/// Requests that are looked at for the last use of each key.
pub const LAST_USES_MAX: u32 = 100_000;
/// Values of a field that one answer holds.
const VALUES_MAX: u32 = 1000;

/// Requests of one organisation, from `start` on and before `end`.
#[derive(Debug, Clone)]
pub struct Filter {
    pub tenant: u64,
    pub start: SystemTime,
    pub end: SystemTime,
    pub id: Option<Uuid>,
    /// The public id of a key.
    pub key: Option<Uuid>,
    pub endpoint: Option<Endpoint>,
    pub method: Option<Method>,
    pub has_succeeded: Option<bool>,
    /// Name or UUID.
    pub model: Option<String>,
    pub tag: Option<String>,
    /// Whether each of these was asked for.
    pub features: Vec<(&'static str, bool)>,
}

impl Filter {
    /// All requests of an organisation.
    pub fn all(tenant: u64, start: SystemTime, end: SystemTime) -> Self {
        Self {
            tenant,
            start,
            end,
            id: None,
            key: None,
            endpoint: None,
            method: None,
            has_succeeded: None,
            model: None,
            tag: None,
            features: Vec::new(),
        }
    }

    /// The condition in SQL, and its values.
    fn condition(&self) -> (String, Vec<Value>) {
        let mut terms =
            vec!["tenant = ?".to_owned(), "created_ms >= ?".to_owned(), "created_ms < ?".to_owned()];
        let mut values: Vec<Value> =
            vec![self.tenant.cast_signed().into(), unix_ms(self.start).into(), unix_ms(self.end).into()];
        let mut add = |term: &str, value: Option<Value>| {
            if let Some(value) = value {
                terms.push(term.to_owned());
                values.push(value);
            }
        };
        add("id = ?", self.id.map(|id| id.to_string().into()));
        add("key = ?", self.key.map(|key| key.to_string().into()));
        add("endpoint = ?", self.endpoint.map(|endpoint| endpoint.name().to_owned().into()));
        add("method = ?", self.method.map(|method| method.name().to_owned().into()));
        add("(code < 400) = ?", self.has_succeeded.map(|has| i64::from(has).into()));
        add("? IN (model, model_id)", self.model.clone().map(Value::from));
        add("? IN (SELECT value FROM json_each(tags))", self.tag.clone().map(Value::from));
        for (feature, is_wanted) in &self.features {
            let not = if *is_wanted { "" } else { "NOT " };
            let term = format!("? {not}IN (SELECT value FROM json_each(features))");
            add(&term, Some((*feature).to_owned().into()));
        }
        (terms.join(" AND "), values)
    }
}

/// A logged request.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub id: Uuid,
    pub key: Uuid,
    pub created: SystemTime,
    pub path: String,
    pub method: String,
    pub code: u16,
    pub elapsed: Duration,
    pub audio_seconds: f64,
    pub channels: u32,
    pub model_id: Option<Uuid>,
    pub tags: Vec<String>,
    pub features: Vec<String>,
}

/// The property that sums are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    Accessor,
    Endpoint,
    FeatureSet,
    Models,
    Method,
    Tags,
    Deployment,
}

impl Grouping {
    pub const ALL: [Self; 7] = [
        Self::Accessor,
        Self::Endpoint,
        Self::FeatureSet,
        Self::Models,
        Self::Method,
        Self::Tags,
        Self::Deployment,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Accessor => "accessor",
            Self::Endpoint => "endpoint",
            Self::FeatureSet => "feature_set",
            Self::Models => "models",
            Self::Method => "method",
            Self::Tags => "tags",
            Self::Deployment => "deployment",
        }
    }

    /// The column, or a constant.
    const fn column(self) -> &'static str {
        match self {
            Self::Accessor => "key",
            Self::Endpoint => "endpoint",
            Self::FeatureSet => "features",
            Self::Models => "model_id",
            Self::Method => "method",
            Self::Tags => "tags",
            Self::Deployment => "'self-hosted'",
        }
    }
}

/// The use of a day, of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Sum {
    /// In UTC: `2027-01-31`.
    pub day: String,
    /// The group's value as the log has it: tags and features are lists in JSON.
    pub group: Option<String>,
    pub requests: u64,
    /// Seconds of audio in requests that succeeded; channels do not add up.
    pub audio_seconds: f64,
    /// Seconds of audio, each channel counted.
    pub channel_seconds: f64,
    /// Seconds of conversations with agents.
    pub agent_seconds: f64,
    pub characters: u64,
}

/// Values that occur.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields {
    pub tags: Vec<String>,
    /// Name and UUID.
    pub models: Vec<(String, Uuid)>,
    pub methods: Vec<String>,
    pub features: Vec<String>,
}

pub(super) fn requests(
    Database(connection): &Database,
    filter: &Filter,
    skip: u64,
    limit: u32,
) -> rusqlite::Result<Vec<Row>> {
    let (condition, mut values) = filter.condition();
    values.extend([i64::from(limit).into(), i64::try_from(skip).unwrap_or(i64::MAX).into()]);
    let mut statement = connection.prepare(&format!(
        "SELECT id, key, created_ms, path, method, code, elapsed_ms, audio_seconds, channels, model_id, tags,
                features
         FROM requests WHERE {condition} ORDER BY created_ms DESC, id LIMIT ? OFFSET ?"
    ))?;
    let rows = statement.query_map(params_from_iter(values), |row| {
        Ok(Row {
            id: uuid(row, 0)?.unwrap_or_default(),
            key: uuid(row, 1)?.unwrap_or_default(),
            created: from_unix_ms(row.get(2)?),
            path: row.get(3)?,
            method: row.get(4)?,
            code: row.get(5)?,
            elapsed: Duration::from_millis(row.get::<_, i64>(6)?.unsigned_abs()),
            audio_seconds: row.get(7)?,
            channels: row.get(8)?,
            model_id: uuid(row, 9)?,
            tags: list(row, 10)?,
            features: list(row, 11)?,
        })
    })?;
    rows.collect()
}

pub(super) fn sums(
    Database(connection): &Database,
    filter: &Filter,
    grouping: Option<Grouping>,
) -> rusqlite::Result<Vec<Sum>> {
    let (condition, mut values) = filter.condition();
    values.push((SUMS_MAX as i64 + 1).into());
    let group = grouping.map_or("NULL", Grouping::column);
    let mut statement = connection.prepare(&format!(
        "SELECT strftime('%Y-%m-%d', created_ms / 1000, 'unixepoch') AS day, {group} AS value, count(*),
                coalesce(sum(audio_seconds) FILTER (WHERE code < 400), 0.0),
                coalesce(sum(audio_seconds * max(channels, 1)) FILTER (WHERE code < 400), 0.0),
                coalesce(sum(elapsed_ms) FILTER (WHERE endpoint = 'agent'), 0) / 1000.0, coalesce(sum(characters) FILTER (WHERE code < 400), 0)
         FROM requests WHERE {condition} GROUP BY day, value ORDER BY day, value LIMIT ?"
    ))?;
    let sums = statement.query_map(params_from_iter(values), |row| {
        let whole = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.unsigned_abs());
        Ok(Sum {
            day: row.get(0)?,
            group: row.get(1)?,
            requests: whole(2)?,
            audio_seconds: row.get(3)?,
            channel_seconds: row.get(4)?,
            agent_seconds: row.get(5)?,
            characters: whole(6)?,
        })
    })?;
    sums.collect()
}

pub(super) fn fields(Database(connection): &Database, filter: &Filter) -> rusqlite::Result<Fields> {
    let (condition, values) = filter.condition();
    let texts = |what: &str, from: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(&format!(
            "SELECT DISTINCT {what} FROM requests{from} WHERE {condition} ORDER BY 1 LIMIT {VALUES_MAX}"
        ))?;
        let texts = statement.query_map(params_from_iter(&values), |row| row.get(0))?;
        texts.collect()
    };
    let mut statement = connection.prepare(&format!(
        "SELECT DISTINCT model, model_id FROM requests WHERE {condition} AND model IS NOT NULL ORDER BY 1
         LIMIT {VALUES_MAX}"
    ))?;
    let models = statement
        .query_map(params_from_iter(&values), |row| Ok((row.get(0)?, uuid(row, 1)?.unwrap_or_default())))?;
    let mut features = texts("feature.value", ", json_each(features) AS feature")?;
    // Older versions may have logged other features.
    features.retain(|feature| FEATURES.contains(&feature.as_str()));
    Ok(Fields {
        tags: texts("tag.value", ", json_each(tags) AS tag")?,
        models: models.collect::<Result<_, _>>()?,
        methods: texts("method", "")?,
        features,
    })
}

pub(super) fn last_uses(Database(connection): &Database) -> rusqlite::Result<HashMap<Uuid, SystemTime>> {
    let mut statement = connection.prepare(
        "SELECT key, max(created_ms)
         FROM (SELECT key, created_ms FROM requests ORDER BY created_ms DESC LIMIT ?1) GROUP BY key",
    )?;
    let uses = statement.query_map([LAST_USES_MAX], |row| {
        Ok((uuid(row, 0)?.unwrap_or_default(), from_unix_ms(row.get(1)?)))
    })?;
    uses.collect()
}

fn uuid(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<Option<Uuid>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.and_then(|text| Uuid::parse_str(&text).ok()))
}

fn list(row: &SqlRow<'_>, column: usize) -> rusqlite::Result<Vec<String>> {
    Ok(serde_json::from_str(&row.get::<_, String>(column)?).unwrap_or_default())
}
