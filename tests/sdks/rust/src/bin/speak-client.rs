//! The `deepgram` crate's clients of speech against a server: `speak-client ADDRESS KEY FOLDER`. Writes `rest.wav`, and
//! `stream.raw` (linear16, 24 kHz) from a WebSocket, into the folder.

use std::path::Path;
use std::time::Duration;

use deepgram::Deepgram;
use deepgram::speak::SpeakResponse;
use deepgram::speak::options::{Container, Encoding, Model, Options};

const TEXT: &str = "The quick brown fox jumps over the lazy dog.";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, key, folder] = arguments.as_slice() else { panic!("ADDRESS KEY FOLDER") };
    let said = speak(address, key, Path::new(folder));
    tokio::time::timeout(Duration::from_secs(180), said).await.expect("in time");
}

async fn speak(address: &str, key: &str, folder: &Path) {
    let client = Deepgram::with_base_url_and_api_key(address, key).expect("a client");
    let options = Options::builder()
        .model(Model::Aura2ThaliaEn)
        .encoding(Encoding::Linear16)
        .sample_rate(16_000)
        .container(Container::Wav)
        .build();
    let voice = client.text_to_speech();
    let about =
        voice.speak_to_file_with_metadata(TEXT, &options, &folder.join("rest.wav")).await.expect("speech");
    assert!(about.request_id().is_some(), "{about:?}");
    assert_eq!(about.char_count, Some(TEXT.len() as _), "{about:?}");

    let stream = voice.speak_stream().model(Model::Aura2ThaliaEn).encoding(Encoding::Linear16).sample_rate(24_000);
    let (sender, mut events) = stream.handle().await.expect("the server takes a stream").split();
    let (first, second) = TEXT.split_at(20);
    sender.speak(first).await.expect("sent");
    sender.speak(second).await.expect("sent");
    sender.flush().await.expect("sent");
    let (mut audio, mut metadata) = (Vec::new(), 0);
    while let Some(message) = events.receive().await {
        match message.expect("a message that the crate understands") {
            SpeakResponse::Audio(bytes) => audio.extend_from_slice(&bytes),
            SpeakResponse::Metadata { .. } => metadata += 1,
            SpeakResponse::Flushed { .. } => sender.close().await.expect("sent"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(metadata, 1);
    std::fs::write(folder.join("stream.raw"), audio).expect("written");
}
