//! One request, as the log keeps it.

use std::time::{Duration, SystemTime};

use url::form_urlencoded;
use uuid::Uuid;

/// The wire format's parameters that sums of use can be filtered by.
pub const FEATURES: [&str; 34] = [
    "alternatives",
    "callback",
    "callback_method",
    "channels",
    "custom_intent",
    "custom_intent_mode",
    "custom_topic",
    "custom_topic_mode",
    "detect_entities",
    "detect_language",
    "diarize",
    "dictation",
    "encoding",
    "extra",
    "filler_words",
    "intents",
    "keyterm",
    "keywords",
    "language",
    "measurements",
    "multichannel",
    "numerals",
    "paragraphs",
    "profanity_filter",
    "punctuate",
    "redact",
    "replace",
    "sample_rate",
    "search",
    "sentiment",
    "smart_format",
    "summarize",
    "topics",
    "utterances",
];

/// Tags of a request that are kept, and the characters of each.
const TAGS_MAX: usize = 20;
const TAG_CHARACTERS_MAX: usize = 128;

/// The path of a participant's stay in an agent's room, on this server or on a LiveKit server.
pub const ROOM: &str = "/STS/rooms/{room}";
/// The path of a telephone call with an agent.
pub const TELEPHONE: &str = "/api/twilio/media";

/// The kind of work that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Listen,
    Speak,
    Agent,
}

impl Endpoint {
    pub const ALL: [Self; 3] = [Self::Listen, Self::Speak, Self::Agent];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Speak => "speak",
            Self::Agent => "agent",
        }
    }

    /// That of a route, by its pattern; `None` for routes that do no work, which are not logged.
    pub fn of_route(pattern: &str) -> Option<Self> {
        match pattern {
            "/v1/listen"
            | "/v1/listen/media"
            | "/v1/listen/media/transcribe"
            | "/v1/listen/media/transcribe_file"
            | "/v2/listen"
            | "/v1/audio/transcriptions"
            | "/v1/audio/translations"
            | "/v1/realtime" => Some(Self::Listen),
            "/v1/speak" | "/v2/speak" | "/v1/audio/speech" => Some(Self::Speak),
            "/v1/agent/converse" | ROOM | TELEPHONE => Some(Self::Agent),
            _ => None,
        }
    }
}

/// The way in which a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Sync,
    /// Later, to a callback.
    Async,
    Streaming,
}

impl Method {
    pub const ALL: [Self; 3] = [Self::Sync, Self::Async, Self::Streaming];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Streaming => "streaming",
        }
    }
}

/// The holder of the credentials of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub tenant: u64,
    /// The public id of the key.
    pub key: Uuid,
}

/// The model that did the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub id: Uuid,
    pub name: String,
}

/// The work that was done for a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// Seconds of audio that was heard; channels do not add up.
    pub audio_seconds: f64,
    pub channels: u32,
    /// Characters of text that was spoken.
    pub characters: u64,
    pub model: Option<Model>,
}

/// A request: never its audio, its words, its addresses, or the values of its parameters except tags.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub id: Uuid,
    pub holder: Holder,
    pub created: SystemTime,
    /// The pattern of its route.
    pub path: String,
    pub endpoint: Endpoint,
    pub method: Method,
    /// The status of its answer; 499 if the client left before.
    pub code: u16,
    /// Until its answer, or the end of its stream.
    pub elapsed: Duration,
    pub work: Work,
    pub tags: Vec<String>,
    /// Names in [`FEATURES`].
    pub features: Vec<&'static str>,
}

/// The status of a request whose client left before its answer, as nginx has it.
pub const CLIENT_LEFT: u16 = 499;

/// The tags and features of a query.
pub(super) fn of_query(query: &str) -> (Vec<String>, Vec<&'static str>) {
    let (mut tags, mut features) = (Vec::new(), Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "tag" {
            tags.extend(value.split(',').map(str::trim).filter(|tag| is_tag(tag)).map(str::to_owned));
        } else if let Some(feature) = FEATURES.iter().find(|feature| **feature == name)
            && !value.eq_ignore_ascii_case("false")
            && !features.contains(feature)
        {
            features.push(*feature);
        }
    }
    tags.truncate(TAGS_MAX);
    features.sort_unstable();
    (tags, features)
}

fn is_tag(text: &str) -> bool {
    (1..=TAG_CHARACTERS_MAX).contains(&text.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_tags_and_features_and_its_values_are_not_kept() {
        let (tags, features) = of_query(
            "tag=a,b&tag=c+d&diarize=true&smart_format=false&search=secret&keyterm=x&keyterm=y&unknown=1",
        );
        assert_eq!(tags, ["a", "b", "c d"]);
        assert_eq!(features, ["diarize", "keyterm", "search"]);
        assert_eq!(of_query(&"tag=x&".repeat(100)).0.len(), TAGS_MAX);
        assert!(of_query(&format!("tag={}", "x".repeat(200))).0.is_empty());
        assert!(FEATURES.is_sorted());
    }

    #[test]
    fn only_work_is_logged() {
        assert_eq!(Endpoint::of_route("/v1/listen"), Some(Endpoint::Listen));
        for route in ["/v1/listen/jobs/{request_id}", "/v1/projects", "/health", "none"] {
            assert_eq!(Endpoint::of_route(route), None, "{route}");
        }
    }
}
