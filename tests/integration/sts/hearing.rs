//! Utterances on their way to the engine: which windows they become.

use verbatim::audio::Pcm;
use verbatim::engine::{Config, Engine, LanguageChoice, SpeechModel, WINDOW_SAMPLES};
use verbatim::sts::{Whose, recognizer};
use verbatim::vad::{FRAME_SAMPLES, Utterance};

use crate::scripted::{Call, Script, ScriptedModel};

/// 40 s, with a word at the start of each window of 30 s; of these, the first `spoken_seconds` are speech.
fn utterance(spoken_seconds: usize) -> Utterance {
    let mut samples = vec![0.0; 40 * 16_000];
    for (word, start) in [(1.0, 0), (2.0, WINDOW_SAMPLES)] {
        (samples[start], samples[start + 1]) = (word, 1.0);
    }
    let frames = samples.len() / FRAME_SAMPLES;
    let spoken = spoken_seconds * 16_000 / FRAME_SAMPLES;
    let probabilities = (0..frames).map(|frame| if frame < spoken { 0.9 } else { 0.0 }).collect();
    Utterance::new(Pcm::new(samples), probabilities)
}

#[tokio::test]
async fn all_speech_of_an_utterance_is_recognised_and_no_silence() {
    for (spoken_seconds, expected, windows) in
        [(40, "word1 word2", vec![vec![1], vec![2]]), (20, "word1", vec![vec![1]])]
    {
        let model = ScriptedModel::new(2, Script::default());
        let calls = model.calls.clone();
        let load = move || Ok::<Box<dyn SpeechModel>, std::convert::Infallible>(Box::new(model));
        let engine = Engine::start(&Config::default(), load).expect("a scripted model loads");
        let recognize = recognizer(engine, LanguageChoice::Detect { among: Vec::new(), expected: None });
        let text = recognize(utterance(spoken_seconds), Whose { tenant: 1, ..Whose::default() }).await;
        assert_eq!(text.as_deref(), Ok(expected));
        let calls = calls.lock().expect("no test panics while it holds this");
        let encoded: Vec<_> = calls
            .iter()
            .filter_map(|call| match call {
                Call::Encode(words) => Some(words.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(encoded, windows, "{spoken_seconds} s");
    }
}
