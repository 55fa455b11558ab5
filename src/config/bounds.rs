//! The allowed values of each setting. Any other value would break something later (a clock that overflows, a semaphore
//! without permits, an address that leads nowhere), so it is refused before anything begins.

use figment::value::Value;
use url::Url;

use crate::console::Proxies;
use crate::fetch::policy::AllowList;
use crate::{http, telemetry};

/// The allowed values of a setting.
pub(super) enum Allowed {
    /// A whole number, both ends included.
    Whole(u64, u64),
    /// A number, both ends included.
    Number(f64, f64),
    /// A number greater than 0, up to this.
    Positive(f64),
    /// Text of at least one character.
    Text,
    /// An address with one of these schemes.
    Address(&'static [&'static str]),
    /// Text that a header can carry.
    Header,
    /// `auto`, or the code of a language.
    Language,
    Level,
    /// Each of a list.
    Reachable,
    /// Each of a list.
    Network,
    Origin,
    /// Each of a list.
    PhoneNumber,
}

use Allowed::{
    Address, Header, Language, Level, Network, Number, Origin, PhoneNumber, Positive, Reachable, Text, Whole,
};

/// As good as for ever, while sums with the time of day remain valid times.
const CENTURY_SECONDS: u64 = 3_155_760_000;
const CENTURY_MS: u64 = CENTURY_SECONDS * 1000;
const MINUTE_MS: u64 = 60_000;
const MILLION: u64 = 1_000_000;
const WEB: Allowed = Address(&["http", "https"]);
const MEDIA: Allowed = Address(&["ws", "wss", "http", "https"]);
const BROKER: Allowed = Address(&["nats", "tls"]);
/// From one millisecond on: with zero, every deadline would have passed at once.
const TIMEOUT: Allowed = Whole(1, CENTURY_MS);
const SECONDS: Allowed = Positive(CENTURY_SECONDS as f64);

/// Ranges by name of the setting. Every numeric setting is listed.
pub(super) const ALLOWED: &[(&str, Allowed)] = &[
    ("state_dir", Text),
    ("model_dir", Text),
    ("log.level", Level),
    ("models.model", Text),
    ("models.serve", Text),
    ("models.idle_seconds", Whole(0, CENTURY_SECONDS)),
    ("models.threads", Whole(0, 1024)),
    ("models.slots", Whole(0, 4096)),
    ("models.hub.address", WEB),
    ("models.hub.package_index", Text),
    ("models.hub.read_timeout_ms", TIMEOUT),
    ("engine.max_wait_seconds", SECONDS),
    ("engine.max_held_seconds", SECONDS),
    ("engine.max_requests", Whole(1, MILLION)),
    ("engine.stall_seconds", SECONDS),
    ("engine.give_up_seconds", SECONDS),
    ("engine.probe_seconds", SECONDS),
    ("transcribe.vad.threshold", Number(0.0, 1.0)),
    ("transcribe.vad.neg_threshold", Number(0.0, 1.0)),
    ("transcribe.vad.min_speech_duration_ms", Whole(0, MINUTE_MS)),
    ("transcribe.vad.max_speech_duration_s", Number(1.0, f64::INFINITY)),
    ("transcribe.vad.min_silence_duration_ms", Whole(0, MINUTE_MS)),
    ("transcribe.vad.speech_pad_ms", Whole(0, MINUTE_MS)),
    ("speakers.threads", Whole(0, 1024)),
    ("live.max_streams", Whole(1, MILLION)),
    ("live.max_lag_seconds", SECONDS),
    ("live.hop_ms", Whole(100, MINUTE_MS)),
    ("live.min_pause_ms", Whole(0, MINUTE_MS)),
    ("live.ahead_seconds", Number(35.0, 86_400.0)),
    ("live.speakers_timeout_ms", TIMEOUT),
    ("live.turn_threads", Whole(1, 1024)),
    ("live.readers", Whole(1, 65_536)),
    ("live.idle_timeout_ms", TIMEOUT),
    ("live.write_timeout_ms", TIMEOUT),
    ("live.message_bytes_max", Whole(1024, 1 << 30)),
    ("live.realtime_idle_timeout_ms", TIMEOUT),
    ("live.realtime_message_bytes_max", Whole(1024, 1 << 30)),
    ("voices.max_per_organisation", Whole(0, 100_000)),
    ("voices.key_file", Text),
    ("audio.max_seconds", Positive(604_800.0)),
    ("audio.max_channels", Whole(1, 255)),
    ("api.processing_timeout_ms", TIMEOUT),
    ("api.decoders", Whole(1, 4096)),
    ("api.downloads", Whole(1, 4096)),
    ("api.forward.peers", WEB),
    ("api.forward.requests_max", Whole(1, 65_536)),
    ("http.connections_max", Whole(1, MILLION)),
    ("http.connections_per_address_max", Whole(0, MILLION)),
    ("http.header_timeout_ms", TIMEOUT),
    ("http.idle_timeout_ms", TIMEOUT),
    ("http.write_timeout_ms", TIMEOUT),
    ("http.body_idle_timeout_ms", TIMEOUT),
    ("http.body_grace_ms", Whole(0, CENTURY_MS)),
    ("http.body_bytes_per_second_min", Whole(0, 1 << 40)),
    ("http.body_bytes_max", Whole(1, 1 << 40)),
    ("http.buffered_bytes_max", Whole(1, 1 << 44)),
    ("http.spool_dir", Text),
    ("http.headers_max", Whole(16, 1000)),
    ("http.header_bytes_max", Whole(1024, 1 << 20)),
    ("http.streams_max", Whole(1, 10_000)),
    ("http.drain_timeout_ms", Whole(0, CENTURY_MS)),
    ("http.cors_origins", Origin),
    ("console.trusted_proxies", Network),
    ("console.session_idle_seconds", Whole(1, CENTURY_SECONDS)),
    ("console.session_max_seconds", Whole(1, CENTURY_SECONDS)),
    ("shutdown.grace_seconds", Number(0.0, CENTURY_SECONDS as f64)),
    ("fetch.allow", Reachable),
    ("fetch.connect_timeout_ms", TIMEOUT),
    ("fetch.total_timeout_ms", TIMEOUT),
    ("fetch.idle_timeout_ms", TIMEOUT),
    ("fetch.grace_ms", Whole(0, CENTURY_MS)),
    ("fetch.bytes_per_second_min", Whole(0, 1 << 40)),
    ("fetch.max_bytes", Whole(1, 1 << 40)),
    ("jobs.concurrency", Whole(1, 1024)),
    ("jobs.runs_max", Whole(1, 1000)),
    ("jobs.run_timeout_ms", TIMEOUT),
    ("jobs.pending_max", Whole(1, 1_000_000_000)),
    ("jobs.spool_bytes_max", Whole(1, 1 << 60)),
    ("jobs.disk_free_bytes_min", Whole(0, 1 << 60)),
    ("jobs.retry_delays_seconds", SECONDS),
    ("jobs.delivery_timeout_ms", TIMEOUT),
    ("jobs.deliveries", Whole(1, 65_536)),
    ("jobs.deliveries_per_host", Whole(1, 65_536)),
    ("jobs.result_retention_seconds", Whole(0, CENTURY_SECONDS)),
    ("jobs.job_retention_seconds", Whole(0, CENTURY_SECONDS)),
    ("cluster.nats", BROKER),
    ("cluster.user", Text),
    ("cluster.node", Text),
    ("cluster.prefix", Text),
    ("cluster.advertise", WEB),
    ("cluster.replicas", Whole(1, 5)),
    ("cluster.connect_timeout_ms", TIMEOUT),
    ("cluster.timeout_ms", TIMEOUT),
    ("cluster.lease_ms", Whole(2000, 600_000)),
    ("speak.at_once", Whole(1, 1024)),
    // At least one text of the greatest length.
    ("speak.held_characters_max", Whole(4096, 1 << 40)),
    ("speak.streams_max", Whole(1, MILLION)),
    ("speak.stream_characters_max", Whole(2000, MILLION)),
    ("speak.timeout_ms", TIMEOUT),
    ("speak.idle_timeout_ms", TIMEOUT),
    ("speak.write_timeout_ms", TIMEOUT),
    ("usage.requests_max", Whole(1, 1_000_000_000)),
    ("usage.retention_days", Whole(1, 36_500)),
    ("sts.public_url", WEB),
    ("sts.sessions_max", Whole(1, MILLION)),
    // At least the size of one start's body, with the data derived from it.
    ("sts.held_bytes_max", Whole(64 << 20, 1 << 44)),
    ("sts.idle_seconds", Whole(1, CENTURY_SECONDS)),
    ("sts.kept_seconds", Whole(0, CENTURY_SECONDS)),
    ("sts.kept_max", Whole(0, MILLION)),
    ("sts.token_seconds", Whole(1, CENTURY_SECONDS)),
    ("sts.talk_seconds_max", Whole(1, CENTURY_SECONDS)),
    ("sts.talk_warning_seconds", Whole(0, CENTURY_SECONDS)),
    ("sts.silence_seconds", Whole(0, CENTURY_SECONDS)),
    ("sts.nudges_max", Whole(0, 100)),
    ("sts.rejoin_seconds", Whole(0, CENTURY_SECONDS)),
    ("sts.room_idle_timeout_ms", TIMEOUT),
    ("sts.phone_idle_timeout_ms", TIMEOUT),
    ("sts.language", Language),
    ("sts.verification.hook_url", WEB),
    ("sts.verification.hook_api_key", Header),
    ("sts.verification.timeout_ms", TIMEOUT),
    ("sts.twilio.base_url", WEB),
    ("sts.twilio.account_sid", Text),
    ("sts.twilio.auth_token", Header),
    ("sts.twilio.from", Text),
    ("sts.livekit.url", MEDIA),
    ("sts.livekit.client_url", MEDIA),
    ("sts.livekit.agent_name", Text),
    ("sts.livekit.agent_organisation", Whole(0, u64::MAX)),
    ("sts.crawl.pages_max", Whole(0, 10_000)),
    ("sts.crawl.depth_max", Whole(0, 100)),
    ("sts.crawl.page_bytes_max", Whole(1, 1 << 30)),
    ("sts.crawl.page_timeout_ms", TIMEOUT),
    ("sts.crawl.total_timeout_ms", TIMEOUT),
    ("sts.crawl.text_bytes_max", Whole(1, 1 << 30)),
    ("sts.crawl.reading_timeout_ms", TIMEOUT),
    ("sts.crawl.pause_ms", Whole(0, MINUTE_MS)),
    ("sts.turn.threshold", Number(0.0, 1.0)),
    ("sts.turn.start_ms", Whole(0, MINUTE_MS)),
    ("sts.turn.silence_ms", Whole(50, MINUTE_MS)),
    ("sts.turn.pause_ms", Whole(50, MINUTE_MS)),
    ("sts.turn.wait_ms", Whole(50, MINUTE_MS)),
    ("sts.turn.interrupt_ms", Whole(0, MINUTE_MS)),
    ("sts.turn.interim_ms", Whole(0, MINUTE_MS)),
    ("sts.turn.seconds_max", Whole(1, 600)),
    ("sts.chat.base_url", WEB),
    ("sts.chat.api_key", Header),
    ("sts.chat.filler_ms", Whole(0, CENTURY_MS)),
    ("sts.chat.timeout_ms", TIMEOUT),
    ("sts.chat.answer_timeout_ms", TIMEOUT),
    ("sts.recording.announcement", Text),
    ("sts.recording.kept_seconds", Whole(0, CENTURY_SECONDS)),
    ("sts.recording.bytes_max", Whole(0, 1 << 60)),
    ("sts.recording.disk_free_bytes_min", Whole(0, 1 << 60)),
    ("sts.webhook.url", WEB),
    ("sts.transfer.numbers", PhoneNumber),
    ("sts.speech.base_url", WEB),
    ("sts.speech.api_key", Header),
    ("sts.speech.embedded_voice", Text),
    ("traces.endpoint", WEB),
    ("traces.sample", Number(0.0, 1.0)),
    ("traces.service", Text),
    ("demo.sts_base_url", WEB),
    ("demo.sts_api_key", Header),
    ("demo.sts_timeout_ms", TIMEOUT),
    ("demo.frontend_base_url", WEB),
    ("demo.website_url", Text),
    ("demo.public_url", WEB),
];

/// The allowed values of the setting `name`, if its type alone does not say them.
pub(super) fn allowed(name: &str) -> Option<&'static Allowed> {
    ALLOWED.iter().find(|(setting, _)| *setting == name).map(|(_, allowed)| allowed)
}

impl Allowed {
    /// For a sentence that ends in «must be …».
    pub(super) fn text(&self) -> String {
        match self {
            Whole(least, most) => format!("a whole number from {least} to {most}"),
            Number(least, most) if most.is_infinite() => format!("a number, at least {least}"),
            Number(least, most) => format!("a number from {least} to {most}"),
            Positive(most) => format!("greater than 0 and at most {most}"),
            Text => "text, and not empty".into(),
            Address(schemes) => {
                let schemes: Vec<_> = schemes.iter().map(|scheme| format!("{scheme}://")).collect();
                format!("an address that begins with {}", schemes.join(" or "))
            }
            Header => "visible ASCII characters, at least one".into(),
            Language => "`auto` or the code of a language, such as en".into(),
            Level => telemetry::LEVELS.into(),
            Reachable => {
                "a list of hosts (media.internal), hosts with a port (localhost:9000), addresses and \
                          networks (10.1.0.0/16)"
                    .into()
            }
            Network => "a list of addresses and networks (10.1.0.0/16)".into(),
            PhoneNumber => "a list of numbers in E.164 form, such as +14155552671".into(),
            Origin => "a list of origins such as https://app.example, or *".into(),
        }
    }

    pub(super) fn admits(&self, value: &Value) -> bool {
        match value {
            Value::Array(_, items) => items.iter().all(|item| self.admits(item)),
            Value::Num(_, number) => {
                let whole = number.to_u128().or_else(|| u128::try_from(number.to_i128()?).ok());
                let real = number.to_f64().or(whole.map(|whole| whole as f64));
                match self {
                    Whole(least, most) => {
                        whole.is_some_and(|whole| (u128::from(*least)..=u128::from(*most)).contains(&whole))
                    }
                    Number(least, most) => real.is_some_and(|real| (*least..=*most).contains(&real)),
                    Positive(most) => real.is_some_and(|real| real > 0.0 && real <= *most),
                    _ => true,
                }
            }
            Value::String(_, text) => match self {
                Text => !text.trim().is_empty(),
                Address(schemes) => Url::parse(text).is_ok_and(|url| {
                    schemes.contains(&url.scheme()) && url.host_str().is_some_and(|host| !host.is_empty())
                }),
                Header => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
                Language => {
                    (2..=8).contains(&text.len())
                        && text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
                }
                Level => telemetry::is_level(text),
                Reachable => AllowList::parse(&[text]).is_ok(),
                Network => Proxies::parse(&[text]).is_some(),
                Origin => http::is_origin(text),
                PhoneNumber => {
                    let digits = text.strip_prefix('+').unwrap_or_default();
                    (8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
                }
                Whole(..) | Number(..) | Positive(..) => true,
            },
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use figment::value::Dict;

    use super::super::Config;
    use super::*;

    /// The names of all numeric settings, with `prefix`.
    fn numbers(dict: &Dict, prefix: &str, found: &mut Vec<String>) {
        for (key, value) in dict {
            let name = format!("{prefix}{key}");
            match value {
                Value::Dict(_, inner) => numbers(inner, &format!("{name}."), found),
                Value::Num(..) => found.push(name),
                Value::Array(_, items) if items.iter().any(|item| matches!(item, Value::Num(..))) => {
                    found.push(name);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn every_number_has_its_bounds() {
        let Ok(Value::Dict(_, dict)) = Value::serialize(Config::default()) else { panic!("a table") };
        let mut found = Vec::new();
        numbers(&dict, "", &mut found);
        assert!(found.len() > 60, "{found:?}");
        let unbounded: Vec<_> = found.iter().filter(|name| allowed(name).is_none()).collect();
        assert!(unbounded.is_empty(), "{unbounded:?}");
    }

    #[test]
    fn every_bound_is_of_a_setting_and_admits_its_default() {
        let values = Value::serialize(Config::default()).expect("a table");
        for (name, allowed) in ALLOWED {
            // A setting without a value can't be found by name, but its table can.
            let table = name.rsplit_once('.').map_or(Some(&values), |(table, _)| values.find_ref(table));
            assert!(table.is_some(), "{name}");
            if let Some(value) = values.find_ref(name).filter(|value| !matches!(value, Value::Empty(..))) {
                assert!(allowed.admits(value), "{name}: {value:?} is not {}", allowed.text());
            }
        }
    }
}
