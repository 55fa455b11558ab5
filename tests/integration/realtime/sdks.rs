//! The realtime clients of OpenAI's SDKs and of two frameworks, with nothing changed but address and key. What each checks
//! is in tests/sdks.

use verbatim::http;
use verbatim::live::Config;

use super::{at_rate, start};
use crate::live_audio::wave;
use crate::protocol::certified;
use crate::sdks::{node, python, text};
use crate::server::{Setup, TestServer};
use crate::tones::{Listener, utter};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn realtime_clients_are_served() {
    let server = start(Config { hop_ms: 200, ..Config::default() }).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (_, tls) = certified(folder.path());
    let certificate = tls.certificate.clone();
    let http = http::Config { tls: Some(tls), ..http::Config::default() };
    let model: Box<Listener> = Box::new(Listener::new());
    let secure = TestServer::start(Setup { http, model: Some(model), ..Setup::default() }).await;

    let mut said: Vec<(u8, f64, f64)> = (1..=8).map(|word| (word, 0.3, 0.2)).collect();
    said.push((9, 0.3, 1.5));
    let samples = at_rate(&utter(&said), 24_000);
    let file = folder.path().join("said.wav");
    std::fs::write(&file, wave(24_000, samples.len() as u32 * 2, &samples)).expect("written");
    let expected: Vec<String> = (1..=9).map(|word| format!("W{word},")).collect();
    let plain = (format!("http://{}", server.address), &server.key);
    let encrypted = (format!("https://localhost:{}", secure.address.port()), &secure.key);
    for (client, (address, key)) in [
        (Some(python("openai", "realtime.py")), &plain),
        (Some(python("plugins", "realtime_plugins.py")), &plain),
        (node("realtime.js"), &encrypted),
    ] {
        let Some(mut client) = client else { continue };
        client.args([address, *key]).arg(&file).env("NODE_EXTRA_CA_CERTS", &certificate);
        assert_eq!(text(&mut client).await, expected.join(" "), "{client:?}");
    }
}
