//! Caps on the log level of libraries, whatever is configured: their authors cannot know what is confidential
//! here.
//!
//! | | |
//! |---|---|
//! | this program | as asked |
//! | libraries that print audio's tags, speech or keys | up to `warn` |
//! | other libraries | up to `info`; more where a directive names them, as in `info,hyper=debug` |

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

const OWN: &str = env!("CARGO_CRATE_NAME");
/// Prefixes of targets. Below `warn` these print spoken sentences (misaki), files' own metadata (Symphonia),
/// terms and names (tokenizers), the content and the encryption of data channels (str0m, SCTP, DTLS, ICE), accounts of
/// relays (TURN, STUN).
const CONFIDENTIAL: [&str; 11] = [
    "misaki",
    "symphonia",
    "tokenizers",
    "str0m",
    "sctp_proto",
    "dimpl",
    "is::",
    "turn_client_proto",
    "turn_types",
    "stun_proto",
    "stun_types",
];
/// The target of all records from the `log` crate. They were judged before, by the target that their library
/// gave them.
const BRIDGE: &str = "log";

/// A layer that drops records that no directive may allow.
pub struct Libraries {
    /// Targets that directives name.
    named: Vec<String>,
}

impl Libraries {
    pub fn new(directives: &str) -> Self {
        let named = directives.split(',').filter_map(|directive| directive.split_once('='));
        // A span's name may follow a target.
        let target = |text: &str| text.split('[').next().unwrap_or_default().trim().to_owned();
        Self { named: named.map(|(text, _)| target(text)).filter(|target| !target.is_empty()).collect() }
    }

    fn lets_in(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| target.starts_with(beginning));
        let most = if begins(&[OWN]) || target == BRIDGE {
            LevelFilter::TRACE
        } else if begins(&CONFIDENTIAL) {
            LevelFilter::WARN
        } else if self.named.iter().any(|name| target.starts_with(name.as_str())) {
            LevelFilter::TRACE
        } else {
            LevelFilter::INFO
        };
        *metadata.level() <= most
    }
}

impl<S: Subscriber> Layer<S> for Libraries {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.lets_in(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.lets_in(metadata)
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// The most verbose level of `target` that passes.
    fn heard(directives: &str, target: &'static str) -> LevelFilter {
        macro_rules! enabled {
            ($target:literal) => {
                [
                    tracing::enabled!(target: $target, Level::ERROR),
                    tracing::enabled!(target: $target, Level::WARN),
                    tracing::enabled!(target: $target, Level::INFO),
                    tracing::enabled!(target: $target, Level::DEBUG),
                    tracing::enabled!(target: $target, Level::TRACE),
                ]
            };
        }
        let subscriber = tracing_subscriber::registry()
            .with(tracing_subscriber::EnvFilter::new("trace"))
            .with(Libraries::new(directives));
        let enabled = tracing::subscriber::with_default(subscriber, || match target {
            "verbatim::api" => enabled!("verbatim::api"),
            "misaki_rs::g2p" => enabled!("misaki_rs::g2p"),
            "symphonia_bundle_mp3::demuxer" => enabled!("symphonia_bundle_mp3::demuxer"),
            "hyper::proto" => enabled!("hyper::proto"),
            other => panic!("{other}"),
        });
        let levels = [
            LevelFilter::ERROR,
            LevelFilter::WARN,
            LevelFilter::INFO,
            LevelFilter::DEBUG,
            LevelFilter::TRACE,
        ];
        levels
            .into_iter()
            .zip(enabled)
            .filter(|(_, is_enabled)| *is_enabled)
            .map(|(level, _)| level)
            .max()
            .unwrap()
    }

    #[test]
    fn libraries_are_heard_up_to_where_they_know_nothing_confidential() {
        for (directives, target, most) in [
            ("trace", "verbatim::api", LevelFilter::TRACE),
            ("trace", "hyper::proto", LevelFilter::INFO),
            ("info,hyper=trace", "hyper::proto", LevelFilter::TRACE),
            ("debug,hyper::proto[request]=debug", "hyper::proto", LevelFilter::TRACE),
            ("info,reqwest=debug", "hyper::proto", LevelFilter::INFO),
            ("trace", "misaki_rs::g2p", LevelFilter::WARN),
            ("misaki_rs=trace", "misaki_rs::g2p", LevelFilter::WARN),
            ("[request]=trace,misaki_rs::g2p=debug", "misaki_rs::g2p", LevelFilter::WARN),
            ("symphonia=debug", "symphonia_bundle_mp3::demuxer", LevelFilter::WARN),
        ] {
            assert_eq!(heard(directives, target), most, "{target} at {directives}");
        }
    }
}
