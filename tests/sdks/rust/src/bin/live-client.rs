//! The `deepgram` crate's live client against a server: `live-client ADDRESS KEY FILE.wav`

use std::time::Duration;

use deepgram::Deepgram;
use deepgram::common::options::{Language, Options};
use deepgram::common::stream_response::StreamResponse;
use deepgram::listen::websocket::WebsocketHandle;

const PIECE_BYTES: usize = 3200;

#[derive(Default)]
struct Seen {
    interims: usize,
    finalized: usize,
    speech_started: usize,
    metadata: usize,
    text: Vec<String>,
}

impl Seen {
    /// The next message; false at the end.
    async fn next(&mut self, handle: &mut WebsocketHandle) -> bool {
        let Some(message) = handle.receive().await else { return false };
        match message.expect("a message that the crate understands") {
            StreamResponse::TranscriptResponse { is_final, from_finalize, channel, .. } => {
                assert_eq!(self.metadata, 0, "results after the metadata");
                let transcript = &channel.alternatives[0].transcript;
                self.interims += usize::from(!is_final && !transcript.is_empty());
                self.finalized += usize::from(from_finalize);
                if is_final && !transcript.is_empty() {
                    self.text.push(transcript.clone());
                }
            }
            StreamResponse::SpeechStartedResponse { .. } => self.speech_started += 1,
            StreamResponse::TerminalResponse { .. } => self.metadata += 1,
            StreamResponse::UtteranceEndResponse { .. } => {}
            other => panic!("{other:?}"),
        }
        true
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, key, file] = arguments.as_slice() else { panic!("ADDRESS KEY FILE") };
    tokio::time::timeout(Duration::from_secs(180), converse(address, key, file)).await.expect("in time");
}

async fn converse(address: &str, key: &str, file: &str) {
    let audio = std::fs::read(file).expect("a file");
    let client = Deepgram::with_base_url_and_api_key(address, key).expect("a client");
    let options = Options::builder().punctuate(true).language(Language::en).build();
    let transcription = client.transcription();
    let builder = transcription.stream_request_with_options(options);
    let mut handle =
        builder.interim_results(true).vad_events(true).handle().await.expect("the server takes a stream");
    let mut seen = Seen::default();
    let middle = audio.len() / 2 / PIECE_BYTES * PIECE_BYTES;
    for piece in audio[..middle].chunks(PIECE_BYTES) {
        handle.send_data(piece.to_vec()).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while seen.interims == 0 {
        assert!(seen.next(&mut handle).await, "the stream ended early");
    }
    handle.finalize().await.expect("sent");
    while seen.finalized == 0 {
        assert!(seen.next(&mut handle).await, "the stream ended early");
    }
    handle.keep_alive().await.expect("sent");
    for piece in audio[middle..].chunks(PIECE_BYTES) {
        handle.send_data(piece.to_vec()).await.expect("sent");
    }
    handle.close_stream().await.expect("sent");
    while seen.next(&mut handle).await {}
    assert_eq!(seen.metadata, 1, "one Metadata at the end");
    assert!(seen.speech_started > 0);
    println!("{}", seen.text.join(" "));
}
