//! The search for terms in one attempt: which term is on trial, and what replaces it if it fails.

use std::sync::Arc;

use super::super::tokenizer::TokenId;
use super::{ANYWHERE, Bias, FIRST};
use crate::cpu::{Level, rows};

/// The most terms that an attempt takes back: with many terms a window could be decoded many times over.
pub const RETURNS_MAX: usize = 64;

/// A token that may be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    pub token: TokenId,
    pub log_probability: f32,
    pub probability: f32,
}

/// The next token, and how many written tokens remain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// The model's own choice.
    Own,
    /// A term's token instead.
    Term(TokenId),
    /// The term on trial failed: only the first `written` tokens remain, and `instead` follows.
    Back { written: usize, instead: Choice },
}

pub struct Search {
    bias: Arc<Bias>,
    /// The deepest node that the tokens written so far have reached.
    node: usize,
    trial: Option<Trial>,
    returns: usize,
}

/// A term on trial, which the model alone would not have written.
struct Trial {
    /// Tokens before the first one that the model would not have written.
    written: usize,
    /// The node in the trie before it.
    before: usize,
    /// The token that the model would have written.
    instead: Choice,
    /// The term's last token.
    node: usize,
    /// How far its tokens lie below the likeliest ones, together.
    loss: f32,
}

impl Search {
    pub fn new(bias: Arc<Bias>) -> Self {
        Self { bias, node: FIRST, trial: None, returns: 0 }
    }

    pub fn bias(&self) -> &Arc<Bias> {
        &self.bias
    }

    /// Makes the last tokens of unwanted terms less likely, and returns them with their original logits.
    ///
    /// Nothing happens where the likeliest token is a timestamp or the end of the text.
    pub fn penalise(&self, logits: &mut [f32]) -> Vec<(TokenId, f32)> {
        let (_, likeliest) = rows::arg_max(Level::detect(), logits);
        if !self.bias.is_text(likeliest as TokenId) {
            return Vec::new();
        }
        let mut losses: Vec<(TokenId, f32)> = Vec::new();
        for node in self.bias.reached(self.node) {
            for next in self.bias.following(node).iter().filter(|next| next.gain < 0.0) {
                match losses.iter_mut().find(|(token, _)| *token == next.token) {
                    Some((_, loss)) => *loss = loss.min(next.gain),
                    None => losses.push((next.token, next.gain)),
                }
            }
        }
        for (token, loss) in &mut losses {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *loss = std::mem::replace(logit, *logit + *loss);
            }
        }
        losses
    }

    /// The step after the first `written` tokens. `logits`: after the rules and [`Search::penalise`]. `own`:
    /// the token that decoding without terms would write. Call [`Search::wrote`] with the token that is
    /// written.
    pub fn next(&mut self, logits: &[f32], written: usize, own: Choice) -> Step {
        let (peak, likeliest) = rows::arg_max(Level::detect(), logits);
        let likeliest = likeliest as TokenId;
        if let Some(trial) = &mut self.trial {
            let ends = self.bias.nodes[trial.node].opening.is_some();
            let further = best(logits, self.bias.following(trial.node), |next| {
                // A complete term yields to a longer one only if that is likeliest.
                let fits = trial.loss + peak - logits[next.token as usize] <= next.gain;
                fits && (!ends || next.token == likeliest)
            });
            if let Some(token) = further.filter(|_| self.bias.is_text(likeliest)) {
                trial.loss += peak - logits[token as usize];
                trial.node = self.bias.child(trial.node, token).unwrap_or(ANYWHERE);
                return Step::Term(token);
            }
            // A complete term must not turn out to begin another word.
            let continues = self.bias.continues.get(likeliest as usize).copied().unwrap_or(false);
            if !ends || continues {
                return self.back();
            }
            self.trial = None;
        }
        let is_text = self.bias.is_text(likeliest) && self.bias.is_text(own.token);
        if !is_text || self.returns >= RETURNS_MAX {
            return Step::Own;
        }
        self.try_term(logits, peak, written, own)
    }

    /// Begins or continues a term that the model alone would not write, if one is within its margin.
    fn try_term(&mut self, logits: &[f32], peak: f32, written: usize, own: Choice) -> Step {
        let bias = &self.bias;
        // Do not repeat a term that was just written.
        let repeated: Vec<TokenId> =
            bias.reached(self.node).filter_map(|node| bias.nodes[node].opening).collect();
        let mut found: Option<(TokenId, f32)> = None;
        for node in bias.reached(self.node) {
            let begins = node == ANYWHERE || node == FIRST;
            for next in bias.following(node).iter().filter(|next| next.gain > 0.0) {
                if next.token == own.token {
                    return Step::Own;
                }
                let logit = logits[next.token as usize];
                let near = peak - logit <= next.gain && !(begins && repeated.contains(&next.token));
                let nearer =
                    |(token, best): (TokenId, f32)| logit > best || (logit == best && next.token < token);
                if near && found.is_none_or(nearer) {
                    found = Some((next.token, logit));
                }
            }
        }
        let Some((token, logit)) = found else { return Step::Own };
        let holds = |&node: &usize| {
            let child = bias.child(node, token);
            child.is_some_and(|child| peak - logit <= bias.nodes[child].gain)
        };
        let Some(node) = bias.reached(self.node).find(holds).and_then(|node| bias.child(node, token)) else {
            return Step::Own;
        };
        self.trial = Some(Trial { written, before: self.node, instead: own, node, loss: peak - logit });
        Step::Term(token)
    }

    fn back(&mut self) -> Step {
        let Some(trial) = self.trial.take() else { return Step::Own };
        self.node = trial.before;
        self.returns += 1;
        Step::Back { written: trial.written, instead: trial.instead }
    }

    /// Records the token that was written.
    pub fn wrote(&mut self, token: TokenId) {
        self.node = self.bias.after(self.node, token);
    }
}

/// The likeliest token of `nodes` that `fits`; of equal ones the lower.
fn best(
    logits: &[f32],
    nodes: &[crate::cuda::TrieNode],
    fits: impl Fn(&crate::cuda::TrieNode) -> bool,
) -> Option<TokenId> {
    let mut best: Option<(f32, TokenId)> = None;
    for next in nodes.iter().filter(|next| fits(next)) {
        let logit = logits[next.token as usize];
        if best.is_none_or(|(most, _)| logit > most) {
            best = Some((logit, next.token));
        }
    }
    best.map(|(_, token)| token)
}
