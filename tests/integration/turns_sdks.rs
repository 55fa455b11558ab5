//! Clients of `/v2/listen`: the wire format's own SDKs, LiveKit's plugin and Pipecat's service, with nothing changed but
//! address and key. What each checks is in tests/sdks.

use verbatim::live::Config;

use crate::live::start;
use crate::live_audio::wave;
use crate::sdks::{go, node, python, rust, text};
use crate::tones::utter;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_turns_are_served() {
    let server = start(Config { hop_ms: 200, ..Config::default() }).await;
    // Two turns.
    let samples = utter(&[(1, 0.5, 0.1), (2, 0.5, 2.0), (3, 0.5, 0.1), (4, 0.5, 2.0)]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("said.wav");
    std::fs::write(&file, wave(16_000, samples.len() as u32 * 2, &samples)).expect("written");
    let clients = [
        ("Python", Some(python("python", "turns.py")), "0 W1, W2,\n1 W3, W4,"),
        ("Node", node("turns.js"), "0 W1, W2,\n1 W3, W4,"),
        ("Rust", Some(rust("turns-client")), "0 W1, W2,\n1 W3, W4,"),
        // It prints the first turn.
        ("Go", go("turns"), "0 W1, W2,"),
        ("plugins", Some(python("plugins", "turns_plugins.py")), PLUGINS),
    ];
    for (name, client, expected) in clients {
        let Some(mut client) = client else { continue };
        let address = format!("http://{}", server.address);
        client.args([&address, &server.key]).arg(&file);
        assert_eq!(text(&mut client).await, expected, "{name}");
    }
}

/// With the defaults that each has for streams, and for turns.
const PLUGINS: &str = "livekit streams: W1, W2, | W3, W4,
livekit turns: W1, W2, | W3, W4,
pipecat streams: W1, W2, | W3, W4,
pipecat turns: W1, W2, | W3, W4,";
