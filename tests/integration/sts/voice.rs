//! The embedded voice: this crate's recogniser understands it.

use serde_json::json;
use verbatim::audio::{Pcm, RateConverter};
use verbatim::speech::EmbeddedVoice;

use super::room::Caller;
use super::service::{Service, Setup};
use super::voices::{heard, patiently};
use crate::speech::{word_errors, words};

/// Text for the voice, and the recogniser's spelling of it where that differs.
const SENTENCES: [(&str, &str); 12] = [
    ("Welcome to Acme Dental, how can I help you today?", ""),
    ("We are open Monday to Friday from nine to five.", "We are open Monday to Friday from 9 to 5."),
    ("Your appointment is on Tuesday, March 3rd at 9:30 in the morning.", ""),
    ("Please call us at 415-555-2671.", ""),
    ("The total is $49.99, and it is due in 14 days.", ""),
    ("Dr. Okafor will see you now.", "Doctor Okafor will see you now."),
    ("I'm sorry, I don't have that information.", ""),
    ("Parking is free behind the building at 120 Main Street.", ""),
    ("Mrs. Johnson, please bring your insurance card.", "Missus Johnson, please bring your insurance card."),
    ("I have sent you a text message with the link to the form.", ""),
    ("Ask for Siobhan at the front desk.", "Ask for Sharon at the front desk."),
    ("You are verified. Your test results are ready after three days.", ""),
];

#[tokio::test]
async fn what_it_says_is_heard() {
    let mut setup = Setup::default();
    setup.config.speech.embedded = EmbeddedVoice::Kokoro;
    setup.config.speech.say_as.insert("Siobhan".into(), "Sharon".into());
    let service = Service::start(setup).await;
    let hear = async |(written, expected): (&'static str, &'static str)| {
        let (id, start) = service.session(json!({"greeting": written})).await;
        assert_eq!(service.status(&id).await["agent"]["engine"]["voice"], "kokoro");
        let mut caller = Caller::join(&service, &start).await;
        assert_eq!(patiently(caller.listen()).await, written);
        let samples: Vec<f32> = caller
            .voice
            .as_chunks::<2>()
            .0
            .iter()
            .map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32_768.0)
            .collect();
        let mut converter = RateConverter::new(24_000, 16_000).expect("usual rates");
        let mut speech = converter.push(&samples);
        speech.extend(converter.finish());
        let said = if expected.is_empty() { written } else { expected };
        let text =
            patiently(heard(Pcm::new(speech))).await.replace("Dr.", "Doctor").replace("Mrs.", "Missus");
        // Whether 9:30 or 930, 415-555 or 415555.
        let (said, text) = (said.replace([':', '-'], ""), text.replace([':', '-'], ""));
        (word_errors(&said, &text), words(&said).len(), text)
    };
    let mut results = Vec::new();
    // As many as speak at a time on a small machine.
    for pair in SENTENCES.chunks(2) {
        results.extend(futures_util::future::join_all(pair.iter().copied().map(&hear)).await);
    }
    let errors: usize = results.iter().map(|(errors, _, _)| errors).sum();
    let total: usize = results.iter().map(|(_, total, _)| total).sum();
    // Some of it is the recogniser's: it writes numbers and names in more than one way.
    assert!(errors * 100 <= total * 8, "{errors} errors in {total} words: {results:#?}");
}
