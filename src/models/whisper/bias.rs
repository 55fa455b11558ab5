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
use crate::cuda::Place;
use crate::engine::{TERMS_MAX, Term, Token};

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
/// Ways in which a term may be written: as it is and with capitals, each after a space and without.
const SPELLINGS: usize = 4;
/// The most of [`Bias::places`]: two roots, the terms, the end.
pub const PLACES_MAX: usize = 3 + TERMS_MAX * SPELLINGS * TOKENS_MAX;

/// Terms that may stand anywhere, and those that may only where a segment begins.
const ANYWHERE: usize = Place::ANYWHERE;
const FIRST: usize = Place::FIRST;

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
        if terms.len() > TERMS_MAX {
            tracing::warn!(given = terms.len(), heeded = TERMS_MAX, "more terms than are heeded");
        }
        for term in terms.iter().take(TERMS_MAX) {
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

    /// The trie for a device.
    pub fn places(&self) -> Vec<Place> {
        let root = |place| Place { token: 0, gain: 0.0, first: 0, otherwise: place };
        let mut places = vec![root(ANYWHERE), root(ANYWHERE)];
        let mut nodes = vec![ANYWHERE, FIRST];
        let mut index = 0;
        while let Some(&node) = nodes.get(index) {
            places[index].first = places.len();
            let mut edges: Vec<&Edge> = self.nodes[node].next.iter().collect();
            edges.sort_unstable_by_key(|edge| edge.token);
            for edge in edges {
                // What is shorter, or as long and may stand anywhere, has its place already.
                let otherwise = match index {
                    ANYWHERE => ANYWHERE,
                    _ => after(&places, places[index].otherwise, edge.token),
                };
                places.push(Place { token: edge.token, gain: edge.gain, first: 0, otherwise });
                nodes.push(edge.node);
            }
            index += 1;
        }
        places.push(Place { first: places.len(), ..root(ANYWHERE) });
        places
    }

    fn walk(&self, root: usize, tokens: &[Token]) -> Option<&Node> {
        tokens.iter().try_fold(&self.nodes[root], |node, token| {
            let edge = node.next.iter().find(|edge| edge.token == token.id)?;
            self.nodes.get(edge.node)
        })
    }
}

/// Where `token` leads from `place`, as the kernel finds it.
fn after(places: &[Place], mut place: usize, token: TokenId) -> usize {
    loop {
        let following = places[place].first..places[place + 1].first;
        if let Ok(index) = places[following.clone()].binary_search_by_key(&token, |place| place.token) {
            return following.start + index;
        }
        if place == ANYWHERE {
            return ANYWHERE;
        }
        place = places[place].otherwise;
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

/// Where a term may stand, its tokens with their letters, its weight.
#[cfg(test)]
pub type Spelled<'a> = (usize, &'a [(TokenId, usize)], f32);

#[cfg(test)]
impl Bias {
    pub fn of_tokens(terms: &[Spelled], end_of_text: TokenId, timestamp_begin: TokenId) -> Self {
        let nodes = vec![Node::default(), Node::default()];
        let mut bias = Self { nodes, depth: 0, end_of_text, timestamp_begin };
        for &(root, tokens, weight) in terms {
            bias.insert(root, tokens.to_vec(), weight);
        }
        bias
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TokenId = 8;
    const TIME: TokenId = 9;

    fn bias(terms: &[Spelled]) -> Bias {
        Bias::of_tokens(terms, END, TIME)
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
    fn the_places_of_a_device_are_those_of_the_trie() {
        // Terms of the tokens 1 to 3, which overlap in every way.
        let mut seed = 1u32;
        let mut draw = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for _ in 0..50 {
            let mut bias = bias(&[]);
            for _ in 0..draw(12) {
                let tokens = (0..1 + draw(5)).map(|_| (1 + draw(3), draw(4) as usize)).collect();
                let root = if draw(2) == 0 { ANYWHERE } else { FIRST };
                bias.insert(root, tokens, if draw(4) == 0 { -1.0 } else { 1.0 });
            }
            let places = bias.places();
            let (mut written, mut place) = (Vec::new(), FIRST);
            for _ in 0..60 {
                let mut found = vec![0.0; 10];
                let mut reached = place;
                loop {
                    for next in &places[places[reached].first..places[reached + 1].first] {
                        let gain = &mut found[next.token as usize];
                        *gain = stronger(*gain, next.gain);
                    }
                    if reached == ANYWHERE {
                        break;
                    }
                    reached = places[reached].otherwise;
                }
                assert_eq!(found, gains(&bias, &written));
                let token = if draw(8) == 0 { TIME } else { 1 + draw(3) };
                written.push(token);
                place = if token == TIME { FIRST } else { after(&places, place, token) };
            }
        }
    }

    #[test]
    fn as_many_terms_as_are_heeded_have_their_places() {
        let tokenizer = Tokenizer::synthetic(1870).expect("large enough");
        // Each as long as it may be, and like no other from its first letters on.
        let terms =
            (0..TERMS_MAX + 10).map(|n| Term { text: format!("{n:04}{}", "x".repeat(60)), weight: 1.0 });
        let places = Bias::new(&terms.collect::<Vec<_>>(), &tokenizer).places();
        assert!((PLACES_MAX / 3..=PLACES_MAX).contains(&places.len()), "{}", places.len());
        let last = format!(" {:04}", TERMS_MAX - 1);
        let reached = |text: &str| {
            tokenizer.encode(text).iter().fold(FIRST, |place, &token| after(&places, place, token))
        };
        assert_ne!(reached(&last), ANYWHERE);
        assert_eq!(reached(&format!(" {TERMS_MAX:04}")), ANYWHERE);
    }

    #[test]
    fn letters_are_counted_for_what_they_say() {
        assert_eq!((letters(" Dr. O'Hara"), letters("東京"), letters(" -")), (7, 4, 0));
        assert_eq!(capitalised("zau al-makan"), "Zau Al-makan");
    }
}
