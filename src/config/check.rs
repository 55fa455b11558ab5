//! The check of a whole configuration: each value by its bounds, and settings that depend on each other.

use figment::Figment;
use figment::value::Value;

use super::Config;
use super::bounds::ALLOWED;
use super::error::Error;
use crate::engine::MODELS_MAX;
use crate::models::{self, DeviceChoice, SYNTHETIC, Shape};

/// Checks every value of `config`, which was read from `figment`.
///
/// # Errors
/// The first value that isn't allowed, or a setting that means nothing without others.
pub(super) fn check(config: &Config, figment: &Figment) -> Result<(), Error> {
    let values = Value::serialize(config).map_err(|error| Error::explained(figment, &error))?;
    for (name, allowed) in ALLOWED {
        // Secrets are never serialised; `figment` has the text that was read.
        let value = match values.find_ref(name) {
            Some(Value::Empty(..)) | None => figment.find_value(name).ok(),
            Some(value) => Some(value.clone()),
        };
        if value.is_some_and(|value| !allowed.admits(&value)) {
            return Err(Error::value(figment, name, allowed.text()));
        }
    }
    together(config, figment)
}

/// Checks settings that make sense only together with others.
fn together(config: &Config, figment: &Figment) -> Result<(), Error> {
    served(&config.models, figment)?;
    let shapes = config.models.synthetic_shapes();
    let unknown = shapes.iter().any(|shape| Shape::named(shape).is_none());
    match (shapes.first(), config.models.synthetic_tokens) {
        _ if unknown => {
            let known = Shape::ALL.map(|shape| shape.name).join(", ");
            return Err(Error::value(figment, "models.model", format!("`{SYNTHETIC}` and one of {known}")));
        }
        (Some(_), None) => {
            let reason = "random weights end no text, so the number of tokens of a 30 s window must be given (--tokens)";
            return Err(Error::missing(figment, "models.synthetic_tokens", "models.model", reason));
        }
        (None, Some(_)) => {
            let allowed = format!("left out: it is only for a `models.model` that begins with `{SYNTHETIC}`");
            return Err(Error::value(figment, "models.synthetic_tokens", allowed));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let twilio = &config.sts.twilio;
    let account = [
        ("sts.twilio.account_sid", twilio.account_sid.is_some()),
        ("sts.twilio.auth_token", twilio.auth_token.is_some()),
        ("sts.twilio.from", twilio.from.is_some()),
    ];
    // A token alone is enough to check the provider's signatures.
    let sends = account.iter().find(|(name, is_set)| *is_set && *name != "sts.twilio.auth_token");
    let lacks = account.iter().find(|(_, is_set)| !is_set);
    if let (Some((needed_by, _)), Some((name, _))) = (sends, lacks) {
        let reason = "text messages are sent with account_sid, auth_token and from";
        return Err(Error::missing(figment, name, needed_by, reason));
    }
    if config.sts.webhook.url.is_some() && !config.jobs.enabled {
        let reason = "events are delivered as jobs are, so `jobs.enabled` must be true";
        return Err(Error::missing(figment, "jobs.enabled", "sts.webhook.url", reason));
    }
    let livekit = &config.sts.livekit;
    let account = [
        ("sts.livekit.api_key", livekit.api_key.as_deref()),
        ("sts.livekit.api_secret", livekit.api_secret.as_ref().map(|secret| secret.expose())),
    ];
    if livekit.url.is_none() && livekit.agent_name.is_some() {
        let reason = "agents take jobs of a LiveKit server";
        return Err(Error::missing(figment, "sts.livekit.url", "sts.livekit.agent_name", reason));
    }
    if livekit.url.is_some()
        && let Some((name, _)) = account.iter().find(|(_, value)| value.is_none_or(str::is_empty))
    {
        let reason = "rooms are made with the server's api_key and api_secret";
        return Err(Error::missing(figment, name, "sts.livekit.url", reason));
    }
    if config.models.device == DeviceChoice::None && !(config.cluster.is_enabled() && config.jobs.enabled) {
        let reason = "a server without a model accepts jobs for other nodes of its cluster";
        return Err(Error::missing(figment, "cluster.nats", "models.device", reason));
    }
    if config.cluster.is_enabled() && config.jobs.enabled && config.jobs.secret.is_none() {
        let reason =
            "all nodes of a cluster sign results with the same secret; `verbatim jobs secret` prints one";
        return Err(Error::missing(figment, "jobs.secret", "cluster.nats", reason));
    }
    if config.http.buffered_bytes_max < config.http.body_bytes_max {
        let least = config.http.body_bytes_max;
        let allowed = format!("at least `http.body_bytes_max`, {least}: no larger body could ever be taken");
        return Err(Error::value(figment, "http.buffered_bytes_max", allowed));
    }
    let forward = &config.api.forward;
    let own = [
        ("api.forward.certificate_file", forward.certificate_file.is_some()),
        ("api.forward.key_file", forward.key_file.is_some()),
    ];
    if let [(needed_by, true), (name, false)] | [(name, false), (needed_by, true)] = own {
        return Err(Error::missing(figment, name, needed_by, "a certificate is shown with its key"));
    }
    let vad = &config.transcribe.vad;
    if vad.neg_threshold.is_some_and(|end| end > vad.threshold) {
        let allowed = format!("at most `transcribe.vad.threshold`, {}", vad.threshold);
        return Err(Error::value(figment, "transcribe.vad.neg_threshold", allowed));
    }
    Ok(())
}

/// Checks the models beside the default, and the further names of all.
fn served(models: &models::Config, figment: &Figment) -> Result<(), Error> {
    let served = models.served();
    if served.len() > MODELS_MAX {
        let allowed = format!("at most {} models beside `models.model`", MODELS_MAX - 1);
        return Err(Error::value(figment, "models.serve", allowed));
    }
    let same_name = |model: &&String| {
        let name = models::Config::name_of(model);
        served.iter().any(|(other, first)| *other == name && first != model && model.contains('/'))
    };
    if models.serve.iter().any(|model| same_name(&model)) {
        let allowed = "folders with different names: requests choose a model by the folder's name";
        return Err(Error::value(figment, "models.serve", allowed));
    }
    let is_served = |model: &String| served.iter().any(|(name, _)| *name == models::Config::name_of(model));
    if !models.names.values().all(is_served) {
        let allowed = "names, each with that of a model in `models.model` or `models.serve`";
        return Err(Error::value(figment, "models.names", allowed));
    }
    Ok(())
}
