//! A language of levels: a word is a stretch of samples of one value, and a model that understands it.

use std::sync::{Arc, Mutex};

use verbatim::engine::{
    Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome,
};
use verbatim::transcript::{DetectedLanguage, Segment, Word};

/// In a window with this word the model fails.
pub const FAILS: u8 = 127;

/// Shorter stretches are no words.
const MIN_WORD_SAMPLES: usize = 400;

/// 16-bit samples at 16 kHz: each word with its seconds, and seconds of silence after it.
pub fn utter(words: &[(u8, f64, f64)]) -> Vec<i16> {
    let mut samples = Vec::new();
    for &(word, seconds, pause) in words {
        samples.extend(std::iter::repeat_n(i16::from(word) * 256, (seconds * 16_000.0) as usize));
        samples.extend(std::iter::repeat_n(0, (pause * 16_000.0) as usize));
    }
    samples
}

pub fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// The texts of words 1, 2 and so on, which a test may exchange between two streams.
pub type Script = Arc<Mutex<Vec<String>>>;

/// A model that hears `W7,`, or the seventh word of its script, in samples of 7/128.
pub struct Listener {
    info: ModelInfo,
    heard: Vec<(SlotId, Vec<Word>, usize)>,
    script: Option<Script>,
}

impl Listener {
    pub fn new() -> Self {
        let info = ModelInfo {
            name: "listener".into(),
            uuid: uuid::Uuid::from_u128(7),
            languages: vec!["en".into(), "es".into()],
            slots: 4,
            encode_batch: 4,
            device: "script".into(),
            prompt_tokens: verbatim::engine::TokenCount::default(),
        };
        Self { info, heard: Vec::new(), script: None }
    }

    pub fn saying(script: Script) -> Self {
        Self { script: Some(script), ..Self::new() }
    }

    fn text(&self, number: usize) -> String {
        match &self.script {
            Some(script) => {
                let texts = script.lock().expect("no test panics while it holds this");
                format!(" {}", texts.get(number - 1).map_or("…", String::as_str))
            }
            None => format!(" W{number},"),
        }
    }
}

fn words(samples: &[f32], text: impl Fn(usize) -> String) -> Vec<Word> {
    let mut words = Vec::new();
    let mut at = 0;
    for stretch in samples.chunk_by(|a, b| (a - b).abs() < 0.5 / 128.0) {
        let number = (stretch[0] * 128.0).round() as i32;
        if number > 0 && stretch.len() >= MIN_WORD_SAMPLES {
            let seconds = |samples: usize| samples as f64 / 16_000.0;
            let (start, end) = (seconds(at), seconds(at + stretch.len()));
            words.push(Word { text: text(number as usize), start, end, probability: 0.9, speaker: None });
        }
        at += stretch.len();
    }
    words
}

impl SpeechModel for Listener {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), Error> {
        for request in requests {
            let words = words(request.pcm.samples(), |number| self.text(number));
            if words.iter().any(|word| word.text == format!(" W{FAILS},")) {
                return Err(Error::ModelFailed("as the script says".into()));
            }
            self.heard.push((request.slot, words, request.pcm.len()));
        }
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let hypothesis = |slot: &SlotId| {
            let (_, words, samples) = self.heard.iter().find(|heard| heard.0 == *slot).expect("encoded");
            let text = words.iter().map(|word| word.text.as_str()).collect();
            let end = *samples as f64 / 16_000.0;
            let segment = Segment { text, start: 0.0, end, words: words.clone(), ..Segment::default() };
            Hypothesis {
                segments: if words.is_empty() { Vec::new() } else { vec![segment] },
                language: DetectedLanguage { code: "en".into(), probability: 0.9 },
                average_log_probability: -0.1,
                no_speech_probability: 0.0,
                compression_ratio: 1.0,
                consumed_samples: *samples,
                tokens: Vec::new(),
                ranges: Vec::new(),
                ends_in_silence: true,
            }
        };
        Ok(slots.iter().map(hypothesis).collect())
    }

    fn release(&mut self, slot: SlotId) {
        self.heard.retain(|heard| heard.0 != slot);
    }
}
