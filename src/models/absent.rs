//! The model of a node that has none (`models.device = "none"`): other nodes do its jobs.

use super::{Config, Source};
use crate::engine::{
    Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome, TokenCount,
};
use crate::transcript::DetectedLanguage;

/// Takes the place of a model, so that requests are checked by its name and its languages. No request for words reaches it.
pub struct Absent(ModelInfo);

impl Absent {
    /// `source`: the model's folder, if it is here: it has the languages. Otherwise `languages` has them.
    pub fn new(config: &Config, source: Option<&Source>, languages: Vec<String>) -> Self {
        let name = Config::name_of(&config.model);
        let languages = match source.and_then(Source::languages) {
            Some(languages) => languages,
            None if name.ends_with(".en") => vec!["en".into()],
            None => languages,
        };
        Self(ModelInfo {
            uuid: ModelInfo::uuid_of(&name),
            name,
            languages,
            slots: 1,
            encode_batch: 1,
            device: "none".into(),
            prompt_tokens: TokenCount::default(),
        })
    }
}

/// Hears silence: only the engine's own probes come here.
impl SpeechModel for Absent {
    fn info(&self) -> &ModelInfo {
        &self.0
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), Error> {
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        Ok(vec![StepOutcome::Finished; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let silence = || Hypothesis {
            segments: Vec::new(),
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: 0.0,
            no_speech_probability: 1.0,
            compression_ratio: 1.0,
            // A whole window.
            consumed_samples: 30 * crate::audio::SAMPLE_RATE as usize,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: true,
        };
        Ok(slots.iter().map(|_| silence()).collect())
    }

    fn release(&mut self, _: SlotId) {}
}
