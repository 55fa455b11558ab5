//! Speech in parts, by the built program: a sentence is heard before it is made, and its parts join.

use serde_json::json;

use crate::socket::{Said, Socket};
use crate::speak::{PATIENCE, Server, assert_said, send};

/// Sentences without a pause, which are one piece each, and with one.
const SENTENCES: [&str; 3] = [
    "The quick brown fox jumps over the lazy dog.",
    "The garden behind the house is open to all of our guests.",
    "If the door is closed on Monday, please call again tomorrow morning.",
];
/// Samples a second, and the loudness of a pause in 16-bit samples.
const RATE: usize = 24_000;
const QUIET: u16 = 330;

/// The audio of a flushed text, by the message.
async fn flushed(socket: &mut Socket, text: &str) -> Vec<Vec<u8>> {
    send(socket, json!({"type": "Speak", "text": text})).await;
    send(socket, json!({"type": "Flush"})).await;
    let mut parts = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, socket.said()).await.expect("in time") {
            Said::Audio(bytes) => parts.push(bytes),
            Said::Message(_) => return parts,
            other => panic!("{other:?}"),
        }
    }
}

fn samples(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks().0.iter().map(|sample| i16::from_le_bytes(*sample)).collect()
}

/// The longest stretch of quiet samples within the speech.
fn longest_pause(samples: &[i16]) -> usize {
    let loud: Vec<usize> = (0..samples.len()).filter(|at| samples[*at].unsigned_abs() > QUIET).collect();
    loud.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[tokio::test]
async fn a_sentence_arrives_in_parts_that_say_it_without_a_click_or_a_gap() {
    let server = Server::start(&[]).await;
    let query = "encoding=linear16&sample_rate=24000";
    let mut socket = server.stream(query).await;
    // A voice speaks its first seconds as a whole, to know its own statistics.
    for sentence in SENTENCES.iter().chain(&SENTENCES) {
        flushed(&mut socket, sentence).await;
    }
    for sentence in SENTENCES {
        let parts = flushed(&mut socket, sentence).await;
        let all = parts.concat();
        assert!(parts.len() > 2, "{sentence}: {} parts", parts.len());
        assert!(parts[0].len() * 2 < all.len(), "{sentence}: the first part is {} bytes", parts[0].len());
        assert_said(sentence, sentence, &server.heard(query, all.clone()).await);

        let all = samples(&all);
        let pause = longest_pause(&all) as f64 / RATE as f64;
        assert!(pause < 0.5, "{sentence}: a pause of {pause} s");
        // At a joint the sound goes on as it does elsewhere.
        let step = |at: usize| all[at].abs_diff(all[at - 1]);
        let steepest = (1..all.len()).map(step).max().unwrap_or(0);
        let mut at = 0;
        for part in &parts[..parts.len() - 1] {
            at += part.len() / 2;
            assert!(step(at) <= steepest / 2, "{sentence}: a step of {} of {steepest} at a joint", step(at));
        }
    }
}

#[tokio::test]
async fn a_listener_need_not_wait_for_a_long_text_of_another() {
    let server = Server::start(&[]).await;
    let query = "encoding=linear16&sample_rate=24000";
    let long = "This sentence is one of many that follow each other without any end in sight. ".repeat(12);
    let mut first = server.stream(query).await;
    send(&mut first, json!({"type": "Speak", "text": long})).await;
    assert!(matches!(first.said().await, Said::Audio(_)));
    let mut second = server.stream(query).await;
    let parts = flushed(&mut second, SENTENCES[0]).await.concat();
    assert_said("the second", SENTENCES[0], &server.heard(query, parts).await);
    // The first is still being spoken to.
    assert!(matches!(first.said().await, Said::Audio(_)));
}
