//! The `deepgram` crate's client of turns against a server: `turns-client ADDRESS KEY FILE.wav`, 16 kHz. Configures the
//! session, and prints a line for each turn: its number and its transcript.

use std::time::Duration;

use deepgram::Deepgram;
use deepgram::common::flux_response::{ConfigureThresholds, FluxResponse, TurnEvent};
use deepgram::common::options::{Encoding, Model, Options};
use deepgram::listen::flux::ConfigureRequest;

const PIECE_BYTES: usize = 3200;
const WAV_HEADER: usize = 44;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, key, file] = arguments.as_slice() else { panic!("ADDRESS KEY FILE") };
    tokio::time::timeout(Duration::from_secs(180), converse(address, key, file)).await.expect("in time");
}

async fn converse(address: &str, key: &str, file: &str) {
    let audio = std::fs::read(file).expect("a file");
    let client = Deepgram::with_base_url_and_api_key(address, key).expect("a client");
    let options = Options::builder().model(Model::FluxGeneralEn).eot_threshold(0.7).eager_eot_threshold(0.4).build();
    let transcription = client.transcription();
    let builder = transcription.flux_request_with_options(options);
    let mut handle = builder
        .encoding(Encoding::Linear16)
        .sample_rate(16_000)
        .handle()
        .await
        .expect("the server takes a stream");
    let connected = handle.receive().await.expect("a message").expect("understood");
    assert!(matches!(connected, FluxResponse::Connected { .. }), "{connected:?}");
    let thresholds = ConfigureThresholds::new().with_eot_threshold(0.6);
    handle.configure(ConfigureRequest::new().with_thresholds(thresholds)).await.expect("sent");
    for piece in audio[WAV_HEADER..].chunks(PIECE_BYTES) {
        handle.send_data(piece.to_vec()).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    handle.close_stream().await.expect("sent");
    let (mut configured, mut started) = (0, 0);
    while let Some(message) = handle.receive().await {
        match message.expect("a message that the crate understands") {
            FluxResponse::TurnInfo { event, turn_index, transcript, .. } => match event {
                TurnEvent::StartOfTurn => started += 1,
                TurnEvent::EndOfTurn => println!("{turn_index} {transcript}"),
                _ => {}
            },
            FluxResponse::ConfigureSuccess { .. } => configured += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(configured, 1, "one answer to Configure");
    assert!(started > 0);
}
