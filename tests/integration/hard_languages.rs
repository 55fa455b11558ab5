//! A recording that changes its language.

use verbatim::engine::LanguageChoice;
use verbatim::transcript::{Transcript, Word};

use crate::hard::{Scene, in_order, text};
use crate::speech;

const ENGLISH: [&str; 3] = ["austen_0870", "austen_0920", "jfk"];
/// Of a synthetic voice. The numbers of the third clip are written in figures.
const FRENCH: [&str; 6] =
    ["fr_pangrama", "fr_comptage", "fr_bonjour_monde", "fr_pangrama", "fr_comptage", "fr_bonjour_monde"];

/// The share of the words of `clips` that the transcript has in this language, in order.
fn share(transcript: &Transcript, language: &str, clips: &[&str]) -> f64 {
    let is_in = |word: &&Word| transcript.language_at(word.start.midpoint(word.end)) == language;
    let heard: String = transcript.words().filter(is_in).map(|word| word.text.as_str()).collect();
    let said = clips.iter().filter(|clip| **clip != "fr_comptage").map(|clip| text(clip));
    let said = speech::words(&said.collect::<Vec<_>>().join(" "));
    in_order(&said, &speech::words(&heard)) as f64 / said.len() as f64
}

/// The second language is neither left out, nor written as if it were the first, nor translated.
#[tokio::test]
async fn a_recording_in_two_languages_is_written_in_both() {
    let clips = ENGLISH.iter().chain(&FRENCH);
    let scene = clips.fold(Scene::default().wait(0.5), |scene, clip| scene.say(clip).wait(0.8));
    let transcript = scene.transcribe_in(LanguageChoice::Detect { among: Vec::new(), expected: None }).await;
    let codes: Vec<&str> = transcript.languages.iter().map(|change| change.code.as_str()).collect();
    let heard = transcript.text();
    assert_eq!(codes, ["en", "fr"], "{heard}");
    let english = share(&transcript, "en", &ENGLISH);
    assert!(english >= 0.9, "{english:.2}: {heard}");
    let french = share(&transcript, "fr", &FRENCH);
    assert!(french >= 0.6, "{french:.2}: {heard}");
    for (number, sentence) in scene.sentences.iter().enumerate() {
        let language = if number < ENGLISH.len() { "en" } else { "fr" };
        let middle = sentence.seconds.start.midpoint(sentence.seconds.end);
        assert_eq!(transcript.language_at(middle), language, "at {middle:.1} s: {heard}");
    }
}
