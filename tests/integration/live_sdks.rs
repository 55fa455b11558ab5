//! The live clients of the wire format's own SDKs, with nothing changed but address and key: interim and final
//! results, Finalize, KeepAlive, CloseStream with its trailing Metadata. What each checks is in tests/sdks.

use verbatim::live::Config;

use crate::live::start;
use crate::live_audio::wave;
use crate::sdks::{go, node, python, rust, text};
use crate::tones::utter;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_clients_of_the_sdks_are_served() {
    let server = start(Config { hop_ms: 200, ..Config::default() }).await;
    // Six seconds; the middle, at which the clients finalize, is in a pause.
    let said: Vec<(u8, f64, f64)> = (1..=12).map(|word| (word, 0.3, 0.2)).collect();
    let samples = utter(&said);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("said.wav");
    std::fs::write(&file, wave(16_000, samples.len() as u32 * 2, &samples)).expect("written");
    let expected: Vec<String> = said.iter().map(|(word, ..)| format!("W{word},")).collect();
    let python = |version| Some(python(version, "live.py"));
    for client in
        [python("python"), python("python-3"), node("live.js"), Some(rust("live-client")), go("live")]
    {
        let Some(mut client) = client else { continue };
        let address = format!("http://{}", server.address);
        client.args([&address, &server.key]).arg(&file);
        assert_eq!(text(&mut client).await, expected.join(" "), "{client:?}");
    }
}
