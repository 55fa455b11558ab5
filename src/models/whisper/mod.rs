//! Whisper (Radford et al., arXiv:2212.04356) behind the engine's [`SpeechModel`].

mod backend;
mod bias;
mod confidence;
mod decoder;
mod encoder;
mod features;
mod generation;
mod host;
mod layers;
mod load;
mod loops;
mod rules;
mod sequence;
mod synthetic;
mod timing;
mod tokenizer;

use std::sync::{Arc, Weak};

use self::backend::{AlignmentRequest, Backend, Start};
use self::bias::Bias;
use self::decoder::Run;
pub use self::synthetic::Lengths;
pub use self::tokenizer::languages_of;
pub use crate::audio::LogMel;

use self::features::HOP_SAMPLES;
use self::sequence::{Sequence, Sequences};
use self::timing::WordTimes;
use self::tokenizer::{TokenId, Tokenizer};
use super::Error;
use crate::audio::Pcm;
use crate::engine::{
    self, Alignment, Attempt, EncodeRequest, Hypothesis, LanguageChoice, ModelInfo, Progress, SlotId,
    SpeechModel, StepOutcome, Task, Term, WINDOW_SAMPLES,
};
use crate::transcript::{self, DetectedLanguage};

/// Mel frames of one window; the encoder halves them.
const WINDOW_FRAMES: usize = WINDOW_SAMPLES / HOP_SAMPLES;

pub struct Whisper {
    info: ModelInfo,
    tokenizer: Arc<Tokenizer>,
    full_context: bool,
    backend: Box<dyn Backend>,
    text_positions: usize,
    /// Lengths of attempts, for weights that mean nothing.
    lengths: Option<Lengths>,
    slots: Vec<Slot>,
    sequences: Sequences,
    /// Biases of requests in progress: the windows of a request share its terms.
    biases: Vec<(Weak<[Term]>, Arc<Bias>)>,
    progress: Progress,
}

/// A window is believed to be in another language than expected from this probability on.
const SURE_LANGUAGE: f32 = 0.8;
/// Bounds of a shortened encoder context: the fewest frames, and the frames of padding behind the audio. With less the
/// model hallucinates words (benches/RESULTS.md).
const MIN_FRAMES: usize = 1000;
const MARGIN_FRAMES: usize = 300;

/// The window in a slot.
#[derive(Default)]
struct Slot {
    samples: usize,
    /// The window's audio, if the encoder has seen a shortened context.
    shortened: Option<Pcm>,
    language: Option<DetectedLanguage>,
    task: Task,
}

/// The tokens of a text before the audio.
fn prompt_tokens(tokenizer: &Tokenizer, text: &str) -> Vec<TokenId> {
    tokenizer.encode(&format!(" {}", text.trim()))
}

/// The most tokens of a prompt; of a longer one the last are read.
fn prompt_tokens_max(text_positions: usize) -> usize {
    text_positions / 2 - 1
}

impl Whisper {
    /// Start of transcript, language, task: the tokens that open a transcript.
    fn opening(&self, slot: &Slot) -> Vec<TokenId> {
        let special = &self.tokenizer.special;
        let language =
            slot.language.as_ref().and_then(|language| self.tokenizer.language_token(&language.code));
        let task = if slot.task == Task::Translate { special.translate } else { special.transcribe };
        let mut opening = vec![special.start_of_transcript];
        if let Some(language) = language {
            opening.extend([language, task]);
        }
        opening
    }

    /// The tokens before the opening: the end of `text`, if any.
    fn prompt(&self, text: Option<&str>) -> Vec<TokenId> {
        let mut tokens = text.map(|text| prompt_tokens(&self.tokenizer, text)).unwrap_or_default();
        if tokens.is_empty() {
            return tokens;
        }
        let room = prompt_tokens_max(self.text_positions);
        tokens.drain(..tokens.len().saturating_sub(room));
        tokens.insert(0, self.tokenizer.special.start_of_previous);
        tokens
    }

    fn bias(&mut self, terms: &Arc<[Term]>) -> Option<Arc<Bias>> {
        if terms.is_empty() {
            return None;
        }
        self.biases.retain(|(terms, _)| terms.strong_count() > 0);
        let known = self.biases.iter().find(|(known, _)| known.ptr_eq(&Arc::downgrade(terms)));
        if let Some((_, bias)) = known {
            return Some(bias.clone());
        }
        let bias = Arc::new(Bias::new(terms, &self.tokenizer));
        self.biases.push((Arc::downgrade(terms), bias.clone()));
        Some(bias)
    }

    /// Sets the language of each slot of `attempts` that has none yet: as named, or as detected.
    fn settle_languages(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        let multilingual = self.info.is_multilingual();
        let mut unknown = Vec::new();
        for attempt in attempts {
            let slot = &mut self.slots[attempt.slot.0];
            if slot.language.is_some() {
                continue;
            }
            match &attempt.options.language {
                LanguageChoice::Named(code) => {
                    slot.language = Some(DetectedLanguage { code: code.clone(), probability: 1.0 });
                }
                LanguageChoice::Detect { .. } if !multilingual => {
                    slot.language = Some(DetectedLanguage { code: "en".into(), probability: 1.0 });
                }
                LanguageChoice::Detect { among, expected } => {
                    unknown.push((attempt.slot, (among, expected.as_ref())));
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let start = [self.tokenizer.special.start_of_transcript];
        let runs: Vec<Run> =
            unknown.iter().map(|&(slot, _)| Run { slot, position: 0, tokens: &start }).collect();
        let wanted: Vec<usize> = (0..runs.len()).collect();
        let tokens = self.tokenizer.languages.iter().map(|(_, token)| *token as usize);
        let first = tokens.clone().min().unwrap_or(0);
        let end = tokens.max().map_or(first, |last| last + 1);
        let mut logits = self.backend.logits(&runs, &wanted, first..end)?;
        for ((id, (among, expected)), logits) in unknown.into_iter().zip(logits.rows_mut()) {
            let allowed = |code: &String| among.is_empty() || among.contains(code) || expected == Some(code);
            let candidates: Vec<(&String, f32)> = self
                .tokenizer
                .languages
                .iter()
                .filter(|(code, _)| allowed(code))
                .map(|(code, token)| (code, logits[*token as usize - first]))
                .collect();
            let scores: Vec<f32> = candidates.iter().map(|&(_, logit)| logit).collect();
            let total = rules::log_sum_exp(&scores);
            // Random weights would choose a language without meaning: the first is English, if it may be.
            let best = match self.lengths {
                Some(_) => candidates.first().copied(),
                None => candidates.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)),
            };
            let is_sure = |&(_, logit): &(&String, f32)| (logit - total).exp() >= SURE_LANGUAGE;
            let expected = candidates.iter().copied().find(|(code, _)| expected == Some(*code));
            let best = best.filter(is_sure).or(expected).or(best);
            self.slots[id.0].language = best.map(|(code, logit)| DetectedLanguage {
                code: code.clone(),
                probability: (logit - total).exp(),
            });
        }
        Ok(())
    }

    fn try_encode(&mut self, requests: &[EncodeRequest]) -> Result<(), Error> {
        let context = requests.iter().map(|request| self.context(request.pcm.len())).max();
        self.encode_with(requests, context.unwrap_or(WINDOW_FRAMES))
    }

    /// Frames of context that the encoder sees of a window of `samples`.
    fn context(&self, samples: usize) -> usize {
        if self.full_context {
            return WINDOW_FRAMES;
        }
        let frames = LogMel::frames(samples) + MARGIN_FRAMES;
        frames.max(MIN_FRAMES).next_multiple_of(32).min(WINDOW_FRAMES)
    }

    fn encode_with(&mut self, requests: &[EncodeRequest], context: usize) -> Result<(), Error> {
        self.backend.encode(requests, context)?;
        for request in requests {
            self.sequences.clear(request.slot);
            self.slots[request.slot.0] = Slot {
                samples: request.pcm.len().min(WINDOW_SAMPLES),
                shortened: (context < WINDOW_FRAMES).then(|| request.pcm.clone()),
                ..Slot::default()
            };
        }
        Ok(())
    }

    /// Encodes windows again with full context whose first attempt, after a shortened one, was rejected.
    fn widen(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        for &Attempt { slot, temperature, .. } in attempts {
            if temperature > 0.0
                && let Some(pcm) = self.slots[slot.0].shortened.take()
            {
                let language = self.slots[slot.0].language.take();
                self.encode_with(&[EncodeRequest { slot, pcm: &pcm }], WINDOW_FRAMES)?;
                self.slots[slot.0].language = language;
            }
        }
        Ok(())
    }

    fn try_begin(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        self.widen(attempts)?;
        self.settle_languages(attempts)?;
        let starts = attempts.iter().map(|attempt| self.start(attempt)).collect();
        self.backend.begin(starts, &mut self.sequences)
    }

    /// The prompt and the empty sequence of an attempt.
    fn start(&mut self, attempt: &Attempt) -> Start {
        let &Attempt { slot, options, temperature } = attempt;
        let samples = self.slots[slot.0].samples;
        let forced = self.lengths.as_mut().map(|lengths| lengths.draw(samples));
        let bias = self.bias(&options.bias);
        self.slots[slot.0].task = options.task;
        let mut prompt = self.prompt(options.prompt.as_deref());
        let start_of_transcript = prompt.len();
        prompt.extend(self.opening(&self.slots[slot.0]));
        let mut sequence = Sequence::new(temperature, temperature.to_bits(), forced, bias);
        sequence.prompt = prompt.len();
        sequence.ends_in_loops = forced.is_none() && options.compression_ratio_threshold.is_some();
        Start { slot, prompt, start_of_transcript, sequence }
    }

    fn try_step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        self.backend.step(slots, &mut self.sequences)?;
        for &slot in slots {
            if let Some(sequence) = self.sequences.get_mut(slot) {
                sequence.end_in_loop(&self.tokenizer);
            }
        }
        let outcome = |&slot: &SlotId| match self.sequences.running(slot) {
            Some(_) => StepOutcome::Running,
            None => StepOutcome::Finished,
        };
        Ok(slots.iter().map(outcome).collect())
    }

    fn hypothesis(&self, id: SlotId) -> Hypothesis {
        let slot = &self.slots[id.0];
        let nothing = Sequence::new(0.0, 0, None, None);
        let sequence = self.sequences.get(id).unwrap_or(&nothing);
        let ids: Vec<TokenId> = sequence.tokens.iter().map(|token| token.id).collect();
        let language =
            slot.language.clone().unwrap_or(DetectedLanguage { code: "en".into(), probability: 0.0 });
        let average_log_probability = sequence.average_log_probability();
        let compression_ratio = sequence::compression_ratio(self.tokenizer.decode(&ids).trim());
        let mut cut = sequence::cut(&ids, slot.samples, &self.tokenizer);
        for (segment, range) in cut.segments.iter_mut().zip(&cut.ranges) {
            segment.average_log_probability = average_log_probability;
            segment.no_speech_probability = sequence.no_speech_probability;
            segment.compression_ratio = compression_ratio;
            segment.temperature = sequence.temperature;
            segment.looped = sequence.looped;
            let tokens = &sequence.tokens[range.clone()];
            segment.words =
                timing::untimed(&self.tokenizer, &language.code, tokens, segment.start..segment.end);
            let token = |token: &engine::Token| transcript::Token {
                id: token.id,
                bytes: self.tokenizer.bytes(token.id).into(),
                probability: token.probability,
            };
            segment.tokens = tokens.iter().map(token).collect();
        }
        let mut hypothesis = Hypothesis {
            segments: cut.segments,
            language,
            average_log_probability,
            no_speech_probability: sequence.no_speech_probability,
            compression_ratio,
            consumed_samples: cut.consumed_samples,
            tokens: sequence.tokens.clone(),
            ranges: cut.ranges,
            ends_in_silence: cut.ends_in_silence,
        };
        if self.lengths.is_some() {
            synthetic::accept(&mut hypothesis, slot.samples);
        }
        hypothesis
    }
}

/// Alignment of accepted hypotheses.
impl Whisper {
    fn try_align(&mut self, accepted: &[(SlotId, &Hypothesis)]) -> Result<Vec<Box<dyn Alignment>>, Error> {
        let texts: Vec<Vec<Vec<usize>>> =
            accepted.iter().map(|(_, hypothesis)| self.text_of_segments(hypothesis)).collect();
        let requests: Vec<AlignmentRequest> = accepted
            .iter()
            .zip(&texts)
            .map(|(&(slot, hypothesis), text)| self.alignment_request(slot, hypothesis, &text.concat()))
            .collect();
        let attention = self.backend.align(&requests)?;
        let windows = accepted.iter().zip(texts).zip(attention);
        let word_times = windows.map(|((&(slot, hypothesis), text), attention)| {
            let times = WordTimes {
                tokenizer: self.tokenizer.clone(),
                attention,
                text: text.iter().flatten().map(|&index| hypothesis.tokens[index]).collect(),
                tokens_per_segment: text.iter().map(Vec::len).collect(),
                samples: self.slots[slot.0].samples,
            };
            Box::new(times) as Box<dyn Alignment>
        });
        Ok(word_times.collect())
    }

    /// For each segment, the indices of its text among the hypothesis's tokens.
    fn text_of_segments(&self, hypothesis: &Hypothesis) -> Vec<Vec<usize>> {
        let is_text = |index: &usize| self.tokenizer.is_text(hypothesis.tokens[*index].id);
        hypothesis.ranges.iter().map(|range| range.clone().filter(is_text).collect()).collect()
    }

    /// `text`: indices of the text among the hypothesis's tokens.
    fn alignment_request(&self, slot: SlotId, hypothesis: &Hypothesis, text: &[usize]) -> AlignmentRequest {
        let special = &self.tokenizer.special;
        let mut tokens = self.opening(&self.slots[slot.0]);
        let prefix = tokens.len();
        tokens.push(special.no_timestamps);
        tokens.extend(text.iter().map(|&index| hypothesis.tokens[index].id));
        tokens.push(special.end_of_text);
        // An earlier attempt that was the best is no longer in the caches.
        let sequence = self.sequences.get(slot);
        let decoded = sequence.filter(|sequence| sequence.has_tokens_of(hypothesis));
        AlignmentRequest {
            slot,
            tokens,
            prefix,
            rows: text.len() + 1,
            decoded_at: decoded.and_then(|sequence| sequence.predicted_at(text)),
            positions: (LogMel::frames(self.slots[slot.0].samples) / 2).max(1),
        }
    }
}

impl SpeechModel for Whisper {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), engine::Error> {
        Ok(tch::no_grad(|| self.try_encode(requests))?)
    }

    fn is_encoded(&mut self, slots: &[SlotId]) -> Result<bool, engine::Error> {
        Ok(self.backend.is_encoded(slots)?)
    }

    fn wait_encoded(&mut self, slots: &[SlotId]) -> Result<(), engine::Error> {
        Ok(self.backend.wait_encoded(slots)?)
    }

    fn begin(&mut self, attempts: &[Attempt]) -> Result<(), engine::Error> {
        Ok(tch::no_grad(|| self.try_begin(attempts))?)
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, engine::Error> {
        Ok(tch::no_grad(|| self.try_step(slots))?)
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, engine::Error> {
        Ok(slots.iter().map(|&slot| self.hypothesis(slot)).collect())
    }

    fn align(
        &mut self,
        accepted: &[(SlotId, &Hypothesis)],
    ) -> Result<Vec<Box<dyn Alignment>>, engine::Error> {
        Ok(tch::no_grad(|| self.try_align(accepted))?)
    }

    fn release(&mut self, slot: SlotId) {
        self.slots[slot.0] = Slot::default();
        self.sequences.clear(slot);
    }
}
