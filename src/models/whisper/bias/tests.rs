//! Terms, and the search among them, on models made up of a few tokens.

use proptest::prelude::*;

use std::sync::Arc;

use super::search::RETURNS_MAX;
use super::*;

/// A model of ten tokens of text, 2 of which goes on with the word before it, the end and a timestamp.
const WORDS: TokenId = 10;
const END: TokenId = WORDS;
const TIME: TokenId = WORDS + 1;
const CONTINUING: TokenId = 2;
/// Near enough for a term of one token and a weight of 2.
const NEAR: f32 = COMMON_MARGIN * 0.8;

/// Where a term may stand, its tokens, its weight.
pub type Spelled<'a> = (usize, &'a [TokenId], f32);

impl Bias {
    /// `continues`: whether a token continues the word before it.
    pub fn of_tokens(
        terms: &[Spelled],
        (end_of_text, timestamp_begin): (TokenId, TokenId),
        continues: impl Fn(TokenId) -> bool,
    ) -> Self {
        let mut trie = Trie::default();
        for &(root, tokens, weight) in terms {
            trie.insert(root, tokens, weight, margin(tokens.len(), weight));
        }
        let continues = (0..end_of_text).map(continues).collect();
        Self { nodes: trie.packed(), end_of_text, timestamp_begin, continues }
    }

    /// The tokens that begin or go on with a term after `written`, and what they gain.
    pub fn edges_after(&self, written: &[TokenId]) -> Vec<(TokenId, f32)> {
        let node = written.iter().fold(FIRST, |node, &token| self.after(node, token));
        let following = self.reached(node).flat_map(|node| self.following(node));
        following.map(|next| (next.token, next.gain)).collect()
    }
}

fn bias(terms: &[Spelled]) -> Arc<Bias> {
    Arc::new(Bias::of_tokens(terms, (END, TIME), |token| token == CONTINUING))
}

/// Decodes at most 40 tokens with terms: `model` gives logits for the tokens before. Returns the tokens and
/// the number of steps.
fn write(bias: &Arc<Bias>, model: impl Fn(&[TokenId]) -> Vec<f32>) -> (Vec<TokenId>, usize) {
    let mut search = Search::new(bias.clone());
    let mut written = Vec::new();
    for step in 0.. {
        let mut logits = model(&written);
        search.penalise(&mut logits);
        let own = likeliest(&logits);
        let own = Choice { token: own, log_probability: 0.0, probability: 1.0 };
        let token = match search.next(&logits, written.len(), own) {
            Step::Own => own.token,
            Step::Term(token) => token,
            Step::Back { written: kept, instead } => {
                written.truncate(kept);
                instead.token
            }
        };
        if token == END || written.len() == 40 {
            return (written, step);
        }
        written.push(token);
        search.wrote(token);
    }
    unreachable!("every step writes a token or takes a term back, at most {RETURNS_MAX} times")
}

fn likeliest(logits: &[f32]) -> TokenId {
    (0..).zip(logits).max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).expect("some").0
}

/// A model that would write `text`, then end; `near`: how likely a token is beside that one after some tokens, as
/// (tokens before, token, how far below the likeliest).
fn model(
    text: &'static [TokenId],
    near: &[(&[TokenId], TokenId, f32)],
) -> impl Fn(&[TokenId]) -> Vec<f32> + use<> {
    let near: Vec<_> = near.iter().map(|&(before, token, below)| (before.to_vec(), token, below)).collect();
    move |written| {
        let mut logits = vec![-50.0; TIME as usize + 1];
        logits[*text.get(written.len()).unwrap_or(&END) as usize] = 0.0;
        for (_, token, below) in near.iter().filter(|(before, ..)| before == written) {
            logits[*token as usize] = -below;
        }
        logits
    }
}

#[test]
fn a_term_near_enough_is_written_and_no_other() {
    let term = bias(&[(ANYWHERE, &[5, 6], 1.0)]);
    let of_two = MARGIN + MARGIN_PER_TOKEN;
    for (below, expected) in [(of_two - 0.1, &[1, 5, 6, 3][..]), (of_two + 0.1, &[1, 4, 4, 3])] {
        let model = model(&[1, 4, 4, 3], &[(&[1], 5, below), (&[1, 5], 6, 0.0)]);
        assert_eq!(write(&term, model).0, expected, "{below} below");
    }
    // Both tokens together.
    let model = model(&[1, 4, 4, 3], &[(&[1], 5, of_two - 1.0), (&[1, 5], 6, 1.1)]);
    assert_eq!(write(&term, model).0, [1, 4, 4, 3]);
}

#[test]
fn a_term_that_fails_leaves_no_trace() {
    let long = bias(&[(ANYWHERE, &[5, 6, 7], 1.0)]);
    let near = [(&[1][..], 5, 1.0), (&[1, 5], 6, 1.0)];
    assert_eq!(write(&long, model(&[1, 4, 4, 3], &near)).0, [1, 4, 4, 3]);
    // Nor does one that turns out to begin another word.
    let whole = bias(&[(ANYWHERE, &[5], 2.0)]);
    for (after, expected) in [(CONTINUING, [1, 4, 4]), (3, [1, 5, 3])] {
        let near = [(&[1][..], 5, NEAR), (&[1, 5], after, -1.0)];
        assert_eq!(write(&whole, model(&[1, 4, 4], &near)).0, expected);
    }
    // Nor one that the end of the text or a timestamp cuts short.
    for after in [END, TIME] {
        let near = [(&[1][..], 5, 1.0), (&[1, 5], after, -1.0)];
        assert_eq!(write(&long, model(&[1, 4, 3], &near)).0, [1, 4, 3]);
    }
}

#[test]
fn a_term_is_not_repeated_for_its_own_sake() {
    let term = bias(&[(ANYWHERE, &[5], 2.0), (ANYWHERE, &[6, 7], 1.0)]);
    let near = [(&[][..], 5, NEAR), (&[5], 5, NEAR)];
    assert_eq!(write(&term, model(&[1, 4, 3], &near)).0, [5, 4, 3]);
    let near = [(&[][..], 6, 1.0), (&[6], 7, 0.0), (&[6, 7], 6, 1.0), (&[6, 7, 6], 7, 0.0)];
    assert_eq!(write(&term, model(&[1, 4, 3, 3], &near)).0, [6, 7, 3, 3]);
    // Said twice it is written twice.
    assert_eq!(write(&term, model(&[5, 5, 6, 7, 6, 7], &[])).0, [5, 5, 6, 7, 6, 7]);
}

#[test]
fn the_longer_of_two_terms_stands_where_it_is_likelier() {
    let terms = bias(&[(ANYWHERE, &[5, 6], 1.0), (ANYWHERE, &[5, 6, 7], 1.0)]);
    let near = [(&[][..], 5, 1.0), (&[5], 6, 0.0)];
    assert_eq!(write(&terms, model(&[1, 1, 3], &near)).0, [5, 6, 3]);
    assert_eq!(write(&terms, model(&[1, 1, 7], &near)).0, [5, 6, 7]);
}

#[test]
fn some_terms_stand_first_alone() {
    let term = bias(&[(FIRST, &[5], 2.0)]);
    let near = [(&[][..], 5, NEAR), (&[5], 5, NEAR), (&[5, 4, TIME], 5, NEAR)];
    assert_eq!(write(&term, model(&[1, 4, TIME, 3], &near)).0, [5, 4, TIME, 5]);
}

#[test]
fn nothing_is_written_where_nothing_would_be() {
    let term = bias(&[(ANYWHERE, &[5], 10.0)]);
    for likeliest in [END, TIME] {
        let mut logits = vec![-50.0; TIME as usize + 1];
        (logits[likeliest as usize], logits[5]) = (0.0, -0.1);
        let own = Choice { token: likeliest, log_probability: 0.0, probability: 1.0 };
        assert_eq!(Search::new(term.clone()).next(&logits, 0, own), Step::Own);
        assert!(Search::new(bias(&[(ANYWHERE, &[5], -1.0)])).penalise(&mut logits).is_empty());
    }
}

#[test]
fn the_last_token_of_an_unwanted_term_loses() {
    let unwanted = bias(&[(ANYWHERE, &[5, 6], -2.0)]);
    let near = |below| [(&[5][..], 7, below)];
    assert_eq!(write(&unwanted, model(&[5, 6], &near(2.0 * UNWANTED - 0.1))).0, [5, 7]);
    assert_eq!(write(&unwanted, model(&[5, 6], &near(2.0 * UNWANTED + 0.1))).0, [5, 6]);
    assert_eq!(write(&unwanted, model(&[6, 6], &[(&[6], 7, 0.1)])).0, [6, 6], "its last token alone is free");
    // A term of both kinds is unwanted.
    let both = bias(&[(ANYWHERE, &[5], 3.0), (ANYWHERE, &[5], -1.0)]);
    assert_eq!(write(&both, model(&[5, 3], &[(&[], 4, 1.0)])).0, [4, 3]);
}

#[test]
fn a_margin_is_bounded_and_follows_the_weight() {
    assert!(
        margin(2, 1.2) > margin(2, 1.0) && margin(2, 0.5) < margin(2, 1.0) && margin(3, 1.0) > margin(2, 1.0)
    );
    assert_eq!([0.5, 1.0, 1.25, 2.0, 10.0].map(|weight| margin(1, weight)), [0.0, 0.0, 0.25, 0.5, 0.5]);
    assert_eq!(margin(32, 1e9), MARGIN_MAX * WEIGHT_MAX);
    assert_eq!(margin(3, 0.0), 0.0);
}

prop_compose! {
    fn any_terms()(
        terms in prop::collection::vec((0..2_usize, prop::collection::vec(0..WORDS, 1..5), -3.0_f32..10.0), 0..12),
    ) -> Vec<(usize, Vec<TokenId>, f32)> {
        terms
    }
}

fn of(terms: &[(usize, Vec<TokenId>, f32)]) -> Arc<Bias> {
    bias(&terms.iter().map(|(root, tokens, weight)| (*root, &tokens[..], *weight)).collect::<Vec<_>>())
}

proptest! {
    /// Whatever the terms and their weights, a model whose words lie far apart writes what it would without them;
    /// and whatever the model, it comes to an end.
    #[test]
    fn nothing_is_written_against_the_evidence(terms in any_terms(), seed: u64, spread in 0.5_f32..40.0) {
        let wanted: Vec<_> = terms.into_iter().filter(|(.., weight)| *weight > 0.0).collect();
        let model = |written: &[TokenId]| {
            let mut state = seed;
            written.iter().for_each(|&token| state = state.wrapping_mul(31).wrapping_add(u64::from(token) + 1));
            let mut logits: Vec<f32> = (0..=TIME).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1 << 24) as f32 * spread
            }).collect();
            logits[TIME as usize] -= 5.0;
            logits[END as usize] -= 5.0;
            logits
        };
        let (without, _) = write(&of(&[]), model);
        let (with, steps) = write(&of(&wanted), model);
        prop_assert!(steps <= 41 + RETURNS_MAX * 5);
        // How far what is written lies below what the model would have written at each position.
        let mut loss = 0.0;
        let mut terms_written = 0.0;
        for (at, &token) in with.iter().enumerate() {
            let logits = model(&with[..at]);
            let below = logits[likeliest(&logits) as usize] - logits[token as usize];
            prop_assert!(below <= MARGIN_MAX * WEIGHT_MAX);
            loss += below;
            terms_written += f32::from(u8::from(below > 0.0));
        }
        prop_assert!(loss <= terms_written * MARGIN_MAX * WEIGHT_MAX);
        if loss == 0.0 {
            prop_assert_eq!(with, without);
        }
    }

    #[test]
    fn the_nodes_reached_are_those_of_all_endings_of_the_text(
        terms in any_terms(), text in prop::collection::vec(0..=TIME, 0..40),
    ) {
        let bias = of(&terms);
        let mut node = FIRST;
        for (at, &token) in text.iter().enumerate() {
            let written = &text[..at];
            let mut expected: Vec<TokenId> = terms
                .iter()
                .flat_map(|(root, tokens, _)| {
                    let goes_on = |&length: &usize| {
                        let (before, begun) = written.split_at(written.len() - length);
                        let is_first = before.last().is_none_or(|&token| token >= TIME);
                        begun == &tokens[..length] && (*root == ANYWHERE || is_first) && !begun.contains(&TIME)
                    };
                    let lengths = (0..tokens.len().min(written.len() + 1)).filter(goes_on);
                    lengths.map(|length| tokens[length]).collect::<Vec<_>>()
                })
                .collect();
            let mut found: Vec<TokenId> =
                bias.reached(node).flat_map(|node| bias.following(node)).map(|next| next.token).collect();
            for tokens in [&mut expected, &mut found] {
                tokens.sort_unstable();
                tokens.dedup();
            }
            prop_assert_eq!(found, expected);
            node = bias.after(node, token);
        }
    }
}

#[test]
fn as_many_terms_as_are_heeded_have_their_nodes() {
    let tokenizer = Tokenizer::synthetic(1870).expect("large enough");
    // Each as long as it may be, and like no other from its first letters on.
    let terms = (0..TERMS_MAX + 10).map(|n| Term { text: format!("{n:04}{}", "x".repeat(60)), weight: 1.0 });
    let bias = Bias::new(&terms.collect::<Vec<_>>(), &tokenizer);
    assert!((NODES_MAX / 3..=NODES_MAX).contains(&bias.nodes().len()), "{}", bias.nodes().len());
    let last = format!(" {:04}", TERMS_MAX - 1);
    let reached =
        |text: &str| tokenizer.encode(text).iter().fold(FIRST, |node, &token| bias.after(node, token));
    assert_ne!(reached(&last), ANYWHERE);
    assert_eq!(reached(&format!(" {TERMS_MAX:04}")), ANYWHERE);
}

#[test]
fn a_word_goes_on_with_letters() {
    for (bytes, continues) in [
        (&b"ry"[..], true),
        (b"9", true),
        ("é".as_bytes(), true),
        (b"\xC3", true),
        (b" a", false),
        (b"'s", false),
        (b",", false),
        ("京".as_bytes(), false),
        (b"\xE4\xBA", false),
        (b"", false),
    ] {
        assert_eq!(continues_word(bytes), continues, "{bytes:?}");
    }
    assert_eq!(capitalised("zau al-makan"), "Zau Al-makan");
}

#[test]
fn only_letters_of_scripts_with_spaces_continue_a_word() {
    for (text, continues) in
        [("a", true), ("é", true), ("1", true), (" a", false), ("东", false), ("ខ", false), ("ﾅ", false)]
    {
        assert_eq!(continues_word(text.as_bytes()), continues, "{text}");
    }
}
