//! Whisper (Radford et al., arXiv:2212.04356) behind the engine's [`SpeechModel`].

#[cfg(test)]
mod backends;
mod bias;
mod decoder;
mod device;
mod encoder;
mod features;
mod generation;
mod host;
mod layers;
mod load;
mod rules;
mod sequence;
mod synthetic;
mod timing;
mod tokenizer;

use std::sync::{Arc, Weak};

use self::bias::Bias;
use self::decoder::{Decoder, Run};
use self::encoder::{AudioStates, Encoder};
pub use self::synthetic::Lengths;
pub use crate::audio::LogMel;

use self::features::{DeviceLogMel, HOP_SAMPLES};
use self::rules::Rules;
use self::sequence::Sequence;
use self::tokenizer::{TokenId, Tokenizer};
use super::Error;
use crate::audio::Pcm;
use crate::cpu::Threads;
use crate::engine::{
    self, DecodingOptions, EncodeRequest, Hypothesis, LanguageChoice, ModelInfo, SlotId, SpeechModel,
    StepOutcome, Task, Term, Token, WINDOW_SAMPLES,
};
use crate::transcript::DetectedLanguage;

/// Mel frames of one window; the encoder halves them.
const WINDOW_FRAMES: usize = WINDOW_SAMPLES / HOP_SAMPLES;

pub struct Whisper {
    info: ModelInfo,
    tokenizer: Tokenizer,
    rules: Rules,
    log_mel: LogMel,
    /// Where there are kernels for it.
    device_log_mel: Option<DeviceLogMel>,
    full_context: bool,
    encoder: Encoder,
    decoder: Decoder,
    threads: Threads,
    text_positions: usize,
    /// How long attempts are, where the weights mean nothing.
    lengths: Option<Lengths>,
    slots: Vec<Slot>,
    /// Of requests that are being worked on: their windows have their terms in common.
    biases: Vec<(Weak<[Term]>, Arc<Bias>)>,
}

/// The fewest frames that the encoder sees where its context is shortened, and the frames of padding it
/// sees behind the audio: with less it hears words that are not there (benches/RESULTS.md).
const MIN_FRAMES: usize = 1000;
const MARGIN_FRAMES: usize = 300;

/// What a slot holds between calls.
#[derive(Default)]
struct Slot {
    samples: usize,
    /// The window's audio, where the encoder has not seen all of its context.
    shortened: Option<Pcm>,
    language: Option<DetectedLanguage>,
    task: Task,
    no_speech_probability: f32,
    sequence: Option<Sequence>,
    /// Tokens before those of the sequence in the text cache.
    prompt: usize,
}

impl Slot {
    /// Where the sequence's last token goes in the text cache.
    fn position(&self) -> usize {
        let written = self.sequence.as_ref().map_or(0, |sequence| sequence.tokens.len());
        (self.prompt + written).saturating_sub(1)
    }
}

/// The tokens that an attempt begins with.
struct Prompt {
    tokens: Vec<TokenId>,
    /// Index of the token that opens the transcript.
    start_of_transcript: usize,
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

    /// The prompt before the opening: the end of `text`, if any.
    fn prompt(&self, text: Option<&str>) -> Vec<TokenId> {
        let mut tokens =
            text.map(|text| self.tokenizer.encode(&format!(" {}", text.trim()))).unwrap_or_default();
        if tokens.is_empty() {
            return tokens;
        }
        let room = self.text_positions / 2 - 1;
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

    /// Names the language of every slot of `attempts` that has none yet.
    fn settle_languages(&mut self, attempts: &[(SlotId, &DecodingOptions, f32)]) -> Result<(), Error> {
        let multilingual = self.info.is_multilingual();
        let mut unknown = Vec::new();
        for &(id, options, _) in attempts {
            let slot = &mut self.slots[id.0];
            if slot.language.is_some() {
                continue;
            }
            match &options.language {
                LanguageChoice::Named(code) => {
                    slot.language = Some(DetectedLanguage { code: code.clone(), probability: 1.0 });
                }
                LanguageChoice::Detect { .. } if !multilingual => {
                    slot.language = Some(DetectedLanguage { code: "en".into(), probability: 1.0 });
                }
                LanguageChoice::Detect { among } => unknown.push((id, among)),
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let start = [self.tokenizer.special.start_of_transcript];
        let runs: Vec<Run> =
            unknown.iter().map(|&(slot, _)| Run { slot, position: 0, tokens: &start }).collect();
        let wanted: Vec<usize> = (0..runs.len()).collect();
        let mut logits = self.decoder.forward(&runs, &wanted)?;
        for ((id, among), logits) in unknown.into_iter().zip(logits.rows_mut()) {
            let allowed = |code: &String| among.is_empty() || among.contains(code);
            let candidates: Vec<(&String, f32)> = self
                .tokenizer
                .languages
                .iter()
                .filter(|(code, _)| allowed(code))
                .map(|(code, token)| (code, logits[*token as usize]))
                .collect();
            let scores: Vec<f32> = candidates.iter().map(|&(_, logit)| logit).collect();
            let total = rules::log_sum_exp(&scores);
            let best = candidates.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
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

    /// Frames that the encoder shall see of a window of `samples`.
    fn context(&self, samples: usize) -> usize {
        if self.full_context {
            return WINDOW_FRAMES;
        }
        let frames = LogMel::frames(samples) + MARGIN_FRAMES;
        frames.max(MIN_FRAMES).next_multiple_of(32).min(WINDOW_FRAMES)
    }

    fn encode_with(&mut self, requests: &[EncodeRequest], context: usize) -> Result<(), Error> {
        let audio = self.states(requests, context)?;
        let slots: Vec<SlotId> = requests.iter().map(|request| request.slot).collect();
        self.decoder.set_audio(&slots, &audio)?;
        for request in requests {
            self.slots[request.slot.0] = Slot {
                samples: request.pcm.len().min(WINDOW_SAMPLES),
                shortened: (context < WINDOW_FRAMES).then(|| request.pcm.clone()),
                ..Slot::default()
            };
        }
        Ok(())
    }

    /// What the encoder makes of windows, seeing `context` frames of each.
    fn states(&mut self, requests: &[EncodeRequest], context: usize) -> Result<Vec<AudioStates>, Error> {
        match (&mut self.decoder, &self.device_log_mel) {
            (Decoder::Device(decoder), Some(log_mel)) => {
                let windows: Vec<&[f32]> = requests.iter().map(|request| request.pcm.samples()).collect();
                let features = log_mel.compute(decoder.device(), &windows, context)?;
                self.encoder.forward_tensor(&features)
            }
            _ => {
                let bands = self.log_mel.bands();
                // Zero is the value of padding, not of silence: so the reference pads.
                let mut features = vec![0.0; requests.len() * context * bands];
                for (request, window) in requests.iter().zip(features.chunks_exact_mut(context * bands)) {
                    let samples = request.pcm.samples();
                    let frames = LogMel::frames(samples.len()).min(context);
                    self.log_mel.compute(&self.threads, samples, &mut window[..frames * bands]);
                }
                self.encoder.forward(features, context, bands)
            }
        }
    }

    /// Encodes windows again, whole, whose first attempt after a shortened context was not good enough.
    fn widen(&mut self, attempts: &[(SlotId, &DecodingOptions, f32)]) -> Result<(), Error> {
        for &(slot, _, temperature) in attempts {
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

    fn try_begin(&mut self, attempts: &[(SlotId, &DecodingOptions, f32)]) -> Result<(), Error> {
        self.widen(attempts)?;
        self.settle_languages(attempts)?;
        if let Decoder::Device(_) = &self.decoder {
            return self.begin_on_device(attempts);
        }
        let prompts = self.prompts(attempts);
        let mut wanted = Vec::new();
        let mut row = 0;
        for prompt in &prompts {
            wanted.extend([row + prompt.start_of_transcript, row + prompt.tokens.len() - 1]);
            row += prompt.tokens.len();
        }
        let runs: Vec<Run> = attempts
            .iter()
            .zip(&prompts)
            .map(|(attempt, prompt)| Run { slot: attempt.0, position: 0, tokens: &prompt.tokens })
            .collect();
        let mut logits = self.decoder.forward(&runs, &wanted)?;
        let mut rows = logits.rows_mut();
        for (&(id, ..), prompt) in attempts.iter().zip(&prompts) {
            let (Some(at_start), Some(last)) = (rows.next(), rows.next()) else { break };
            let slot = &mut self.slots[id.0];
            let no_speech = at_start[self.tokenizer.special.no_speech as usize];
            slot.no_speech_probability = (no_speech - rules::log_sum_exp(at_start)).exp();
            slot.prompt = prompt.tokens.len();
            if let Some(sequence) = &mut slot.sequence {
                sequence.advance(last, &self.rules, &self.tokenizer);
            }
        }
        Ok(())
    }

    /// Empties the slots' sequences for new attempts, and says what these begin with.
    fn prompts(&mut self, attempts: &[(SlotId, &DecodingOptions, f32)]) -> Vec<Prompt> {
        let of_attempt = |&(id, options, temperature): &(SlotId, &DecodingOptions, f32)| {
            let forced = self.lengths.as_mut().map(Lengths::draw);
            let bias = self.bias(&options.bias);
            let slot = &mut self.slots[id.0];
            slot.task = options.task;
            slot.sequence = Some(Sequence::new(temperature, temperature.to_bits(), forced, bias));
            let mut tokens = self.prompt(options.prompt.as_deref());
            let start_of_transcript = tokens.len();
            tokens.extend(self.opening(&self.slots[id.0]));
            Prompt { tokens, start_of_transcript }
        };
        attempts.iter().map(of_attempt).collect()
    }

    fn try_step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        if let Decoder::Device(_) = &self.decoder {
            self.step_on_device(slots)?;
        } else {
            self.step_on_host(slots)?;
        }
        let outcome = |id: &SlotId| match &self.slots[id.0].sequence {
            Some(sequence) if !sequence.finished => StepOutcome::Running,
            _ => StepOutcome::Finished,
        };
        Ok(slots.iter().map(outcome).collect())
    }

    fn step_on_host(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        let last_tokens: Vec<(SlotId, usize, [TokenId; 1])> = slots
            .iter()
            .filter_map(|&id| {
                let slot = &self.slots[id.0];
                let sequence = slot.sequence.as_ref().filter(|sequence| !sequence.finished)?;
                Some((id, slot.position(), [sequence.tokens.last()?.id]))
            })
            .collect();
        if !last_tokens.is_empty() {
            let runs: Vec<Run> = last_tokens
                .iter()
                .map(|(slot, position, tokens)| Run { slot: *slot, position: *position, tokens })
                .collect();
            let wanted: Vec<usize> = (0..runs.len()).collect();
            let mut logits = self.decoder.forward(&runs, &wanted)?;
            for ((id, ..), logits) in last_tokens.iter().zip(logits.rows_mut()) {
                let slot = &mut self.slots[id.0];
                if let Some(sequence) = &mut slot.sequence {
                    sequence.advance(logits, &self.rules, &self.tokenizer);
                    sequence.finished |= slot.prompt + sequence.tokens.len() > self.text_positions;
                }
            }
        }
        Ok(())
    }

    fn hypothesis(&self, id: SlotId) -> Hypothesis {
        let slot = &self.slots[id.0];
        let nothing = Sequence::new(0.0, 0, None, None);
        let sequence = slot.sequence.as_ref().unwrap_or(&nothing);
        let ids: Vec<TokenId> = sequence.tokens.iter().map(|token| token.id).collect();
        let language =
            slot.language.clone().unwrap_or(DetectedLanguage { code: "en".into(), probability: 0.0 });
        let average_log_probability = sequence.average_log_probability();
        let compression_ratio = sequence::compression_ratio(self.tokenizer.decode(&ids).trim());
        let mut cut = sequence::cut(&ids, slot.samples, &self.tokenizer);
        for (segment, range) in cut.segments.iter_mut().zip(&cut.ranges) {
            segment.average_log_probability = average_log_probability;
            segment.no_speech_probability = slot.no_speech_probability;
            segment.compression_ratio = compression_ratio;
            segment.temperature = sequence.temperature;
            let tokens = &sequence.tokens[range.clone()];
            segment.words =
                timing::untimed(&self.tokenizer, &language.code, tokens, segment.start..segment.end);
        }
        Hypothesis {
            segments: cut.segments,
            language,
            average_log_probability,
            no_speech_probability: slot.no_speech_probability,
            compression_ratio,
            consumed_samples: cut.consumed_samples,
            tokens: sequence.tokens.clone(),
            ranges: cut.ranges,
            ends_in_silence: cut.ends_in_silence,
        }
    }
}

/// Alignment of accepted hypotheses.
impl Whisper {
    fn try_align(&mut self, hypotheses: &mut [(SlotId, &mut Hypothesis)]) -> Result<(), Error> {
        struct Pass {
            text: Vec<Token>,
            per_segment: Vec<usize>,
            tokens: Vec<TokenId>,
            prefix: usize,
        }
        let special = &self.tokenizer.special;
        let passes: Vec<Pass> = hypotheses
            .iter()
            .map(|(id, hypothesis)| {
                let mut tokens = self.opening(&self.slots[id.0]);
                let prefix = tokens.len();
                let text_of = |range: &std::ops::Range<usize>| {
                    let tokens = hypothesis.tokens[range.clone()].iter().copied();
                    tokens.filter(|token| self.tokenizer.is_text(token.id)).collect::<Vec<_>>()
                };
                let segments: Vec<Vec<Token>> = hypothesis.ranges.iter().map(text_of).collect();
                let text = segments.concat();
                tokens.push(special.no_timestamps);
                tokens.extend(text.iter().map(|token| token.id));
                tokens.push(special.end_of_text);
                Pass { text, per_segment: segments.iter().map(Vec::len).collect(), tokens, prefix }
            })
            .collect();
        let runs: Vec<Run> = hypotheses
            .iter()
            .zip(&passes)
            .map(|((slot, _), pass)| Run { slot: *slot, position: 0, tokens: &pass.tokens })
            .collect();
        let attention = self.decoder.alignment(&runs)?;
        for (((id, hypothesis), pass), weights) in hypotheses.iter_mut().zip(&passes).zip(&attention) {
            let slot = &self.slots[id.0];
            let words = timing::align(
                &self.tokenizer,
                &hypothesis.language.code,
                &pass.text,
                weights,
                pass.prefix,
                LogMel::frames(slot.samples) / 2,
            );
            timing::assign(words, &mut hypothesis.segments, &pass.per_segment);
            // Speech after the last word belongs to the next window, unless the model said that
            // there is none.
            let last_word_end =
                hypothesis.segments.iter().flat_map(|s| &s.words).next_back().map(|word| word.end);
            if let Some(end) = last_word_end.filter(|&end| end > 0.0 && !hypothesis.ends_in_silence) {
                let samples = (end * f64::from(crate::audio::SAMPLE_RATE)).round() as usize;
                hypothesis.consumed_samples = samples.clamp(1, slot.samples.max(1));
            }
        }
        Ok(())
    }
}

impl SpeechModel for Whisper {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), engine::Error> {
        tch::no_grad(|| self.try_encode(requests)).map_err(failed)
    }

    fn begin(&mut self, attempts: &[(SlotId, &DecodingOptions, f32)]) -> Result<(), engine::Error> {
        tch::no_grad(|| self.try_begin(attempts)).map_err(failed)
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, engine::Error> {
        tch::no_grad(|| self.try_step(slots)).map_err(failed)
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, engine::Error> {
        Ok(slots.iter().map(|&slot| self.hypothesis(slot)).collect())
    }

    fn align(&mut self, hypotheses: &mut [(SlotId, &mut Hypothesis)]) -> Result<(), engine::Error> {
        tch::no_grad(|| self.try_align(hypotheses)).map_err(failed)
    }

    fn release(&mut self, slot: SlotId) {
        self.slots[slot.0] = Slot::default();
    }
}

fn failed(error: Error) -> engine::Error {
    engine::Error::ModelFailed(format!("{:#}", anyhow::Error::new(error)))
}
