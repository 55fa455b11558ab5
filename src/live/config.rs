//! The settings of live streams.

use serde::{Deserialize, Serialize};

use crate::turn::EndOfTurn;

/// How streams are served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Streams at once; more are refused. One organisation may hold four fifths of them while others have keys.
    /// Default 1000; an idle one costs some kilobytes, and one with `diarize` up to 3 MB for each channel in which there is speech.
    pub max_streams: usize,
    /// A new stream is refused if its windows would take longer than this: while those of the organisation's other
    /// streams do or, if it has none, while too many other organisations are late. Seconds, default 5.
    pub max_lag_seconds: f64,
    /// New audio before an open span is recognised again; more while recognition takes longer. Milliseconds,
    /// default 500.
    pub hop_ms: u32,
    /// The shortest pause that ends a span, even if a client asks for a shorter `endpointing`: shorter pauses occur
    /// within words. Milliseconds, default 300.
    pub min_pause_ms: u32,
    /// Audio that a client may send ahead of recognition; beyond it the socket is not read. Seconds, default 60, at
    /// least 35; 32 kB of memory each.
    pub ahead_seconds: f64,
    /// With `diarize`, the longest time that a final result waits for its speakers; then its words have the speaker
    /// before. Milliseconds, default 3000.
    pub speakers_timeout_ms: u64,
    /// How the turns of conversational streams (`/v2/listen`) end. Default `auto`.
    pub end_of_turn: EndOfTurn,
    /// Threads of the model of turns; each answers for about 35 pauses per second. Default: a quarter of the
    /// processors, at least 1.
    pub turn_threads: usize,
    /// Encoded streams read at once, each on its own thread. Default 256.
    pub readers: usize,
    /// The stream of a client that sends nothing for so long is closed. Milliseconds, default 10 000.
    pub idle_timeout_ms: u64,
    /// The stream of a client that reads nothing for so long is closed. Milliseconds, default 10 000.
    pub write_timeout_ms: u64,
    /// A larger message is refused. Default 1 MiB: half a minute of 16-bit samples.
    pub message_bytes_max: u64,
    /// The session of a client of `/v1/realtime` that sends nothing for so long is closed; such clients keep their
    /// connections open between conversations. Milliseconds, default 900 000.
    pub realtime_idle_timeout_ms: u64,
    /// A larger message on `/v1/realtime` is refused. Default 4 MiB: a minute of samples at 24 kHz in base64.
    pub realtime_message_bytes_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_streams: 1000,
            max_lag_seconds: 5.0,
            hop_ms: 500,
            min_pause_ms: 300,
            ahead_seconds: 60.0,
            speakers_timeout_ms: 3000,
            end_of_turn: EndOfTurn::Auto,
            turn_threads: std::thread::available_parallelism().map_or(1, |all| (all.get() / 4).max(1)),
            readers: 256,
            idle_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            message_bytes_max: 1 << 20,
            realtime_idle_timeout_ms: 900_000,
            realtime_message_bytes_max: 4 << 20,
        }
    }
}
