//! Biasing towards terms: the decoder's part of `keyterm` and `keywords`. Pure.
//!
//! Contextual biasing over a trie of the terms' tokens (Zhao et al., "Shallow-Fusion End-to-End Contextual
//! Biasing", Interspeech 2019), for decoding that keeps one sequence. Instead of adding to logits, which lets a
//! large weight write a term that was never said, a term has a margin: its tokens together may lie this far
//! below the model's likeliest tokens, and no further. [`Search`] writes a term on trial and takes it back if the
//! audio does not confirm it.
//!
//! The last token of an unwanted term becomes less likely instead.

mod search;
#[cfg(test)]
pub mod tests;

pub use search::{Choice, Search, Step};

use super::tokenizer::{TokenId, Tokenizer};
use crate::cuda::TrieNode;
use crate::engine::{TERMS_MAX, Term};
use crate::transcript::script::is_unspaced;

/// How far below the likeliest tokens a term of weight 1 may lie, in nats: more for each token but the first. A rare
/// word is spelled in several tokens, each of which has to fit the audio. `benches/keyterms.py` measures the effect.
const MARGIN: f32 = 0.5;
const MARGIN_PER_TOKEN: f32 = 1.75;
const MARGIN_MAX: f32 = 8.0;
/// Larger weights count as this one.
const WEIGHT_MAX: f32 = 1.5;
/// The margin of a word that is a single token in some spelling, at [`WEIGHT_MAX`]; 0 at weight 1. Such a word is
/// common and the model recognises it without help, while among a hundred of them some fit any unclear sound.
const COMMON_MARGIN: f32 = 0.5;
/// With more terms than this, margins shrink in proportion: the more terms, the more easily one fits an unclear sound.
const FEW_TERMS: f32 = 40.0;
/// The penalty on the last token of an unwanted term of weight -1, in nats.
const UNWANTED: f32 = 3.0;
const UNWANTED_WEIGHT_MAX: f32 = 10.0;
/// Longer terms are cut.
const TOKENS_MAX: usize = 32;
/// Spellings of a term: as given and capitalised, each with and without a space before it.
const SPELLINGS: usize = 4;
/// The most nodes of a [`Bias`]: two roots, the terms, the end.
pub const NODES_MAX: usize = 3 + TERMS_MAX * SPELLINGS * TOKENS_MAX;

const ANYWHERE: usize = TrieNode::ANYWHERE;
const FIRST: usize = TrieNode::FIRST;

/// The terms of one request, in a model's tokens.
pub struct Bias {
    nodes: Vec<TrieNode>,
    end_of_text: TokenId,
    timestamp_begin: TokenId,
    /// For each text token, whether it continues the word before it.
    continues: Vec<bool>,
}

impl Bias {
    pub fn new(terms: &[Term], tokenizer: &Tokenizer) -> Self {
        if terms.len() > TERMS_MAX {
            tracing::warn!(given = terms.len(), heeded = TERMS_MAX, "more terms than are heeded");
        }
        let mut trie = Trie::default();
        let wanted = terms.iter().take(TERMS_MAX).filter(|term| term.weight > 0.0).count();
        let part = (FEW_TERMS / wanted as f32).min(1.0);
        for term in terms.iter().take(TERMS_MAX) {
            let text = term.text.trim();
            let capitalised = capitalised(text);
            let spellings = [Some(text), Some(capitalised.as_str()).filter(|&other| other != text)];
            let in_tokens = spellings.into_iter().flatten().flat_map(|spelling| {
                // In scripts without spaces a term may follow any letter.
                let bare = if spelling.starts_with(is_unspaced) { ANYWHERE } else { FIRST };
                [(ANYWHERE, format!(" {spelling}")), (bare, spelling.to_owned())]
                    .map(|(root, text)| (root, tokenizer.encode(&text)))
            });
            let in_tokens: Vec<_> = in_tokens.collect();
            let fewest = in_tokens.iter().map(|(_, tokens)| tokens.len()).min().unwrap_or_default();
            for (root, tokens) in in_tokens {
                trie.insert(root, &tokens, term.weight, part * margin(fewest, term.weight));
            }
        }
        let special = &tokenizer.special;
        let continues = (0..special.end_of_text).map(|token| continues_word(tokenizer.bytes(token)));
        Self {
            nodes: trie.packed(),
            end_of_text: special.end_of_text,
            timestamp_begin: special.timestamp_begin,
            continues: continues.collect(),
        }
    }

    /// The trie as an array, see [`TrieNode`].
    pub fn nodes(&self) -> &[TrieNode] {
        &self.nodes
    }

    fn is_text(&self, token: TokenId) -> bool {
        token < self.end_of_text
    }

    /// The nodes that follow `node`, by their tokens.
    fn following(&self, node: usize) -> &[TrieNode] {
        let ends = [node, node + 1].map(|node| self.nodes.get(node).map_or(0, |node| node.first));
        self.nodes.get(ends[0]..ends[1]).unwrap_or_default()
    }

    /// The node of `token` after `node`, if there is one.
    fn child(&self, node: usize, token: TokenId) -> Option<usize> {
        let index = self.following(node).binary_search_by_key(&token, |next| next.token).ok()?;
        Some(self.nodes[node].first + index)
    }

    /// `node` and its chain of `otherwise`: every node that the tokens written so far have reached.
    fn reached(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&node| (node != ANYWHERE).then(|| self.nodes[node].otherwise))
    }

    /// The node after `token` at `node`.
    fn after(&self, node: usize, token: TokenId) -> usize {
        if token >= self.timestamp_begin {
            return FIRST;
        }
        self.reached(node).find_map(|node| self.child(node, token)).unwrap_or(ANYWHERE)
    }
}

/// The trie under construction.
struct Trie {
    /// The first two are the roots.
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    next: Vec<Edge>,
    /// The first token of the term that ends here.
    opening: Option<TokenId>,
}

struct Edge {
    token: TokenId,
    gain: f32,
    node: usize,
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: vec![Node::default(), Node::default()] }
    }
}

impl Trie {
    fn insert(&mut self, root: usize, tokens: &[TokenId], weight: f32, margin: f32) {
        let tokens = &tokens[..tokens.len().min(TOKENS_MAX)];
        let mut node = root;
        for (index, &token) in tokens.iter().enumerate() {
            let gain = match weight {
                wanted if wanted > 0.0 => margin,
                _ if index + 1 == tokens.len() => UNWANTED * weight.max(-UNWANTED_WEIGHT_MAX),
                _ => 0.0,
            };
            node = match self.nodes[node].next.iter_mut().find(|edge| edge.token == token) {
                Some(edge) => {
                    edge.gain = stronger(edge.gain, gain);
                    edge.node
                }
                None => {
                    let child = self.nodes.len();
                    self.nodes[node].next.push(Edge { token, gain, node: child });
                    self.nodes.push(Node::default());
                    child
                }
            };
        }
        if weight > 0.0 {
            self.nodes[node].opening = tokens.first().copied();
        }
    }

    /// The trie as an array, breadth first, with a node behind the last that ends its followers.
    fn packed(&self) -> Vec<TrieNode> {
        let root = |otherwise| TrieNode { token: 0, gain: 0.0, first: 0, otherwise, opening: None };
        let mut packed = vec![root(ANYWHERE), root(ANYWHERE)];
        // The node of `self` that each packed one stands for.
        let mut sources = vec![ANYWHERE, FIRST];
        let mut index = 0;
        while let Some(&source) = sources.get(index) {
            packed[index].first = packed.len();
            let mut edges: Vec<&Edge> = self.nodes[source].next.iter().collect();
            edges.sort_unstable_by_key(|edge| edge.token);
            for edge in edges {
                // Shorter sequences, and those as long that may stand anywhere, have their nodes already.
                let otherwise = match index {
                    ANYWHERE => ANYWHERE,
                    _ => after(&packed, packed[index].otherwise, edge.token),
                };
                let opening = self.nodes[edge.node].opening;
                packed.push(TrieNode { token: edge.token, gain: edge.gain, first: 0, otherwise, opening });
                sources.push(edge.node);
            }
            index += 1;
        }
        packed.push(TrieNode { first: packed.len(), ..root(ANYWHERE) });
        packed
    }
}

/// The node after `token` at `node`, among nodes whose followers are packed already.
fn after(nodes: &[TrieNode], mut node: usize, token: TokenId) -> usize {
    loop {
        let following = nodes[node].first..nodes[node + 1].first;
        if let Ok(index) = nodes[following.clone()].binary_search_by_key(&token, |node| node.token) {
            return following.start + index;
        }
        if node == ANYWHERE {
            return ANYWHERE;
        }
        node = nodes[node].otherwise;
    }
}

/// The margin of a term whose shortest spelling has this many tokens, in nats.
fn margin(tokens: usize, weight: f32) -> f32 {
    if tokens <= 1 {
        return COMMON_MARGIN * ((weight - 1.0) / (WEIGHT_MAX - 1.0)).clamp(0.0, 1.0);
    }
    let of_one = MARGIN + MARGIN_PER_TOKEN * tokens.saturating_sub(1) as f32;
    of_one.min(MARGIN_MAX) * weight.min(WEIGHT_MAX)
}

/// The gain of a token that two terms share: an unwanted term outweighs a wanted one.
fn stronger(one: f32, other: f32) -> f32 {
    if one < 0.0 || other < 0.0 { one.min(other) } else { one.max(other) }
}

/// Whether a token of these bytes continues the word before it: it begins with a letter or a digit of a script with
/// spaces.
pub fn continues_word(bytes: &[u8]) -> bool {
    let begins = bytes.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    match (begins, bytes.first()) {
        (Some(letter), _) => letter.is_alphanumeric() && !is_unspaced(letter),
        // Part of a letter: letters of two bytes belong to alphabets, longer ones mostly do not.
        (None, Some(&byte)) => (0xC3..0xE0).contains(&byte),
        (None, None) => false,
    }
}

/// `nuzhat al-zaman` as `Nuzhat Al-zaman`.
fn capitalised(text: &str) -> String {
    let mut begins = true;
    let letter = |c: char| {
        let upper = begins.then(|| c.to_uppercase().to_string());
        begins = c.is_whitespace();
        upper.unwrap_or_else(|| c.to_string())
    };
    text.chars().map(letter).collect()
}
