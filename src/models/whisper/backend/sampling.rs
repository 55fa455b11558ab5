//! Choosing tokens on the host, for the backends whose network returns logits.

use super::super::decoder::{Logits, Run};
use super::super::rules::{self, Rules};
use super::super::sequence::Sequences;
use super::super::tokenizer::TokenId;
use super::Start;
use crate::engine::SlotId;
use crate::models::Error;

/// The rules by which the host takes tokens from logits.
pub struct Sampler {
    pub rules: Rules,
    pub no_speech: TokenId,
    /// Positions of a slot's text cache.
    pub text_positions: usize,
}

impl Sampler {
    /// See [`super::Backend::begin`]; `forward` runs the network.
    pub fn begin(
        &self,
        starts: Vec<Start>,
        sequences: &mut Sequences,
        forward: impl FnOnce(&[Run], &[usize]) -> Result<Logits, Error>,
    ) -> Result<(), Error> {
        let mut wanted = Vec::with_capacity(2 * starts.len());
        let mut row = 0;
        for start in &starts {
            wanted.extend([row + start.start_of_transcript, row + start.prompt.len() - 1]);
            row += start.prompt.len();
        }
        let runs: Vec<Run> = starts.iter().map(Start::run).collect();
        let mut logits = forward(&runs, &wanted)?;
        let mut rows = logits.rows_mut();
        for mut start in starts {
            let (Some(at_start), Some(last)) = (rows.next(), rows.next()) else { break };
            let no_speech = at_start[self.no_speech as usize];
            start.sequence.no_speech_probability = (no_speech - rules::log_sum_exp(at_start)).exp();
            start.sequence.advance(last, &self.rules);
            sequences.replace(start.slot, start.sequence);
        }
        Ok(())
    }

    /// See [`super::Backend::step`]; `forward` runs the network.
    pub fn step(
        &self,
        slots: &[SlotId],
        sequences: &mut Sequences,
        forward: impl FnOnce(&[Run], &[usize]) -> Result<Logits, Error>,
    ) -> Result<(), Error> {
        let last_tokens: Vec<(SlotId, usize, [TokenId; 1])> = slots
            .iter()
            .filter_map(|&slot| {
                let sequence = sequences.running(slot)?;
                Some((slot, sequence.last_position(), [sequence.tokens.last()?.id]))
            })
            .collect();
        if last_tokens.is_empty() {
            return Ok(());
        }
        let runs: Vec<Run> = last_tokens
            .iter()
            .map(|(slot, position, tokens)| Run { slot: *slot, position: *position, tokens })
            .collect();
        let wanted: Vec<usize> = (0..runs.len()).collect();
        let mut logits = forward(&runs, &wanted)?;
        for (&(slot, ..), logits) in last_tokens.iter().zip(logits.rows_mut()) {
            if let Some(sequence) = sequences.get_mut(slot) {
                sequence.advance(logits, &self.rules);
                sequence.finished |= sequence.prompt + sequence.tokens.len() > self.text_positions;
            }
        }
        Ok(())
    }
}
