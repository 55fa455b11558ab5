//! Terms to expect, and what their tokens gain while the next one is chosen. Pure.
//!
//! Shallow fusion with a trie of the terms' tokens (Zhao et al., "Shallow-Fusion End-to-End Contextual
//! Biasing", Interspeech 2019), for decoding that keeps one sequence: there a term that was begun in error
//! cannot be taken back, so a token gains by how much of the term it and those before it are.
//!
//! A term never stands where nothing would: while the likeliest token is a timestamp or the end of the
//! text, nothing is gained.

use super::tokenizer::{TokenId, Tokenizer};
use crate::cpu::{Level, rows};
use crate::engine::{Term, Token};

/// What a token of a term of weight 1 gains for each of its letters, in nats: a single letter begins many
/// words.
const PER_LETTER: f32 = 1.2;
/// So much more where so many letters of the term stand there already.
const SURER: f32 = 1.5;
const SURE_LETTERS: usize = 3;
/// No token gains more.
const GAIN_MAX: f32 = 8.0;
/// Of an unwanted term of weight -1 the last token loses this.
const UNWANTED: f32 = 3.0;
/// No term weighs more, either way.
const WEIGHT_MAX: f32 = 3.0;
const UNWANTED_WEIGHT_MAX: f32 = 10.0;
/// Longer terms end here.
const TOKENS_MAX: usize = 32;

/// Terms that may stand anywhere, and those that may only where a segment begins.
const ANYWHERE: usize = 0;
const FIRST: usize = 1;

/// The terms of one request, in a model's tokens.
pub struct Bias {
    /// The first two are the roots.
    nodes: Vec<Node>,
    depth: usize,
    end_of_text: TokenId,
    timestamp_begin: TokenId,
}

#[derive(Default)]
struct Node {
    next: Vec<Edge>,
}

struct Edge {
    token: TokenId,
    gain: f32,
    node: usize,
}

/// Logits before they were changed, by token.
#[derive(Debug, Default, PartialEq)]
pub struct Before(Vec<(TokenId, f32)>);

impl Before {
    pub fn logit(&self, token: TokenId) -> Option<f32> {
        self.0.iter().find(|&&(changed, _)| changed == token).map(|&(_, logit)| logit)
    }
}

impl Bias {
    pub fn new(terms: &[Term], tokenizer: &Tokenizer) -> Self {
        let mut bias = Self {
            nodes: vec![Node::default(), Node::default()],
            depth: 0,
            end_of_text: tokenizer.special.end_of_text,
            timestamp_begin: tokenizer.special.timestamp_begin,
        };
        for term in terms {
            let text = term.text.trim();
            let capitalised = capitalised(text);
            let spellings = [Some(text), Some(capitalised.as_str()).filter(|&other| other != text)];
            for spelling in spellings.into_iter().flatten() {
                // Where words are not set apart a term follows any letter.
                let bare = if is_unspaced(spelling) { ANYWHERE } else { FIRST };
                for (root, text) in [(ANYWHERE, format!(" {spelling}")), (bare, spelling.to_owned())] {
                    let tokens = tokenizer.encode(&text);
                    let letters = tokens.iter().map(|&token| letters(&tokenizer.decode(&[token])));
                    bias.insert(root, tokens.iter().copied().zip(letters).collect(), term.weight);
                }
            }
        }
        bias
    }

    /// `tokens`: each with its letters.
    fn insert(&mut self, root: usize, mut tokens: Vec<(TokenId, usize)>, weight: f32) {
        tokens.truncate(TOKENS_MAX);
        self.depth = self.depth.max(tokens.len());
        let mut node = root;
        let mut written = 0;
        for (index, &(token, letters)) in tokens.iter().enumerate() {
            let gain = if weight > 0.0 {
                let surer = if written >= SURE_LETTERS { SURER } else { 1.0 };
                let gain = PER_LETTER * letters as f32 * surer;
                gain.min(GAIN_MAX) * weight.min(WEIGHT_MAX)
            } else if index + 1 == tokens.len() {
                UNWANTED * weight.max(-UNWANTED_WEIGHT_MAX)
            } else {
                0.0
            };
            written += letters;
            let known = self.nodes[node].next.iter_mut().find(|edge| edge.token == token);
            node = match known {
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
    }

    /// Changes the logits of tokens that begin or go on with a term after `written`; those that are
    /// forbidden stay so.
    pub fn apply(&self, logits: &mut [f32], written: &[Token]) -> Before {
        let (_, likeliest) = rows::arg_max(Level::detect(), logits);
        if likeliest >= self.end_of_text as usize {
            return Before::default();
        }
        let mut gains: Vec<(TokenId, f32)> = Vec::new();
        for length in 0..=self.depth.min(written.len()) {
            let (before, begun) = written.split_at(written.len() - length);
            let is_first = before.last().is_none_or(|token| token.id >= self.timestamp_begin);
            let roots = if is_first { &[ANYWHERE, FIRST][..] } else { &[ANYWHERE] };
            for edge in roots.iter().filter_map(|&root| self.walk(root, begun)).flat_map(|node| &node.next) {
                match gains.iter_mut().find(|(token, _)| *token == edge.token) {
                    Some((_, gain)) => *gain = stronger(*gain, edge.gain),
                    None => gains.push((edge.token, edge.gain)),
                }
            }
        }
        let mut before = Vec::new();
        for (token, gain) in gains {
            if let Some(logit) = logits.get_mut(token as usize) {
                before.push((token, *logit));
                *logit += gain;
            }
        }
        Before(before)
    }

    fn walk(&self, root: usize, tokens: &[Token]) -> Option<&Node> {
        tokens.iter().try_fold(&self.nodes[root], |node, token| {
            let edge = node.next.iter().find(|edge| edge.token == token.id)?;
            self.nodes.get(edge.node)
        })
    }
}

/// Of two gains of one token: what is unwanted outweighs what is wanted.
fn stronger(one: f32, other: f32) -> f32 {
    if one < 0.0 || other < 0.0 { one.min(other) } else { one.max(other) }
}

/// Letters and digits; those that are a syllable or a word count twice.
fn letters(text: &str) -> usize {
    let worth = |letter: char| if is_unspaced(&letter.to_string()) { 2 } else { 1 };
    text.chars().filter(|letter| letter.is_alphanumeric()).map(worth).sum()
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

/// Whether a text is in a script without spaces between words: Han, Kana, Thai, Lao, Burmese.
fn is_unspaced(text: &str) -> bool {
    text.chars().next().is_some_and(|first| {
        matches!(first, '\u{E00}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{3040}'..='\u{30FF}'
            | '\u{3400}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TokenId = 8;
    const TIME: TokenId = 9;

    /// Where it may stand, its tokens with their letters, its weight.
    type Spelled<'a> = (usize, &'a [(TokenId, usize)], f32);

    fn bias(terms: &[Spelled]) -> Bias {
        let nodes = vec![Node::default(), Node::default()];
        let mut bias = Bias { nodes, depth: 0, end_of_text: END, timestamp_begin: TIME };
        for &(root, tokens, weight) in terms {
            bias.insert(root, tokens.to_vec(), weight);
        }
        bias
    }

    /// What each of ten tokens gains after `written`, where token 0 is the likeliest.
    fn gains(bias: &Bias, written: &[TokenId]) -> Vec<f32> {
        let mut logits = [0.0; 10];
        logits[0] = 1.0;
        let before = logits;
        let written: Vec<Token> = written.iter().map(|&id| Token { id, probability: 1.0 }).collect();
        bias.apply(&mut logits, &written);
        logits.iter().zip(before).map(|(after, before)| after - before).collect()
    }

    fn gainers(bias: &Bias, written: &[TokenId]) -> Vec<usize> {
        gains(bias, written)
            .iter()
            .enumerate()
            .filter(|(_, gain)| **gain != 0.0)
            .map(|(token, _)| token)
            .collect()
    }

    #[test]
    fn what_begins_or_goes_on_with_a_term_gains() {
        let bias = bias(&[(ANYWHERE, &[(1, 3), (2, 3), (3, 3)], 1.0), (ANYWHERE, &[(1, 3), (4, 1)], 1.0)]);
        assert_eq!(gainers(&bias, &[]), [1]);
        assert_eq!(gainers(&bias, &[5, 1]), [1, 2, 4]);
        assert_eq!(gainers(&bias, &[1, 2]), [1, 3]);
        assert_eq!(gainers(&bias, &[2]), [1]);
        assert!(gains(&bias, &[1])[2] > gains(&bias, &[])[1], "going on counts more than beginning");
    }

    #[test]
    fn a_gain_is_bounded_and_follows_the_weight() {
        let gain = |letters, weight| gains(&bias(&[(ANYWHERE, &[(1, letters)], weight)]), &[])[1];
        assert!(gain(2, 2.0) > gain(2, 1.0) && gain(2, 0.5) < gain(2, 1.0));
        assert_eq!(gain(1000, 1.0), GAIN_MAX);
        assert_eq!(gain(3, 1e9), gain(3, WEIGHT_MAX));
        assert_eq!(gain(3, 0.0), 0.0);
    }

    #[test]
    fn the_last_token_of_an_unwanted_term_loses() {
        let bias = bias(&[(ANYWHERE, &[(1, 3), (2, 3)], -2.0), (ANYWHERE, &[(1, 3), (2, 3), (3, 2)], 1.0)]);
        assert!(gains(&bias, &[])[1] > 0.0);
        assert_eq!(gains(&bias, &[1])[2], -2.0 * UNWANTED);
    }

    #[test]
    fn some_terms_stand_first_alone() {
        let bias = bias(&[(FIRST, &[(1, 3), (2, 3)], 1.0)]);
        assert_eq!(gainers(&bias, &[]), [1]);
        assert_eq!(gainers(&bias, &[5, TIME]), [1]);
        assert_eq!(gainers(&bias, &[TIME, 1]), [2]);
        assert!(gainers(&bias, &[5]).is_empty() && gainers(&bias, &[5, 1]).is_empty());
    }

    #[test]
    fn nothing_is_written_where_nothing_would_be_nor_what_is_forbidden() {
        let bias = bias(&[(ANYWHERE, &[(1, 9)], 1.0)]);
        for likeliest in [END, TIME] {
            let mut logits = [0.0; 10];
            logits[likeliest as usize] = 0.5;
            let before = logits;
            assert_eq!(bias.apply(&mut logits, &[]), Before::default());
            assert_eq!(logits, before);
        }
        let mut logits = [0.0; 10];
        logits[1] = f32::NEG_INFINITY;
        let before = bias.apply(&mut logits, &[]);
        assert_eq!((logits[1], before.logit(1)), (f32::NEG_INFINITY, Some(f32::NEG_INFINITY)));
    }

    #[test]
    fn letters_are_counted_for_what_they_say() {
        assert_eq!((letters(" Dr. O'Hara"), letters("東京"), letters(" -")), (7, 4, 0));
        assert_eq!(capitalised("zau al-makan"), "Zau Al-makan");
    }
}
