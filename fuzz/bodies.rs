//! The bodies of the fuzz targets: cargo-fuzz runs them without end, tests/integration/fuzzed.rs for a while.
//! An input is answered or refused; a fault of the program shows as a panic.

use bytes::Bytes;
use verbatim::api::Parameters;
use verbatim::api::parameters::LiveParameters;
use verbatim::audio::{self, Bare, DecodeOptions, Limits, SpeechCoding};

/// A query string, as of a file and as of a stream.
pub fn query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(parameters) = Parameters::parse(&text) {
        // Everything asked for is either done or named.
        let _ = (parameters.unsupported(), parameters.implies_words(), parameters.english_only());
        assert!(parameters.redact.is_empty(), "redaction is refused where it is not done");
        let live = LiveParameters::parse(&text);
        assert!(live.is_ok() || names_what_only_streams_have(&text), "a stream refuses what a file takes");
    }
}

fn names_what_only_streams_have(text: &str) -> bool {
    use verbatim::api::parameters::LIVE_TABLE;
    LIVE_TABLE.iter().any(|row| text.contains(row.name) || text.contains('%'))
}

/// A JSON body that names a URL.
pub fn json_body(input: &[u8]) {
    let found = verbatim::api::url_of(&Bytes::copy_from_slice(input));
    let other = serde_json::from_slice::<serde_json::Value>(input).ok();
    let other = other.as_ref().and_then(|body| body.get("url")).and_then(serde_json::Value::as_str);
    // If two readers understood the same input differently, one could be used to get past the other's checks.
    if let (Some(found), Some(other)) = (&found, other) {
        assert_eq!(found, other);
    }
}

/// A file, of whatever container, or speech without one.
pub fn container(input: &[u8]) {
    for raw in [None, Some(SpeechCoding::AmrNarrow), Some(SpeechCoding::AmrWide), Some(SpeechCoding::G729)] {
        decoded(input, raw.map(Bare::Speech));
    }
}

fn decoded(input: &[u8], raw: Option<Bare>) {
    let limits = Limits { max_seconds: 5.0, ..Limits::default() };
    let checked = audio::check(input, raw);
    let options = DecodeOptions { raw, split_channels: false, limits };
    let bytes = Bytes::copy_from_slice(input);
    let estimated = audio::estimate(&bytes, &options);
    if let Ok(estimate) = &estimated {
        assert!((0.0..=5.0).contains(&estimate.seconds) && estimate.channels > 0);
    }
    if let Ok(decoded) = audio::decode(bytes, &options) {
        assert!(checked.is_ok() && estimated.is_ok(), "what is refused at once is never read");
        assert!(decoded.duration_seconds.is_finite() && decoded.duration_seconds <= 5.1);
        for sound in &decoded.channels {
            assert!(sound.pcm(..).samples().iter().all(|sample| sample.is_finite()), "samples are numbers");
        }
    }
}
