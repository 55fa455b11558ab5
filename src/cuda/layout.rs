//! What crosses between host and device, number by number: the structures of `kernels/prelude.cu`.

/// What is asked of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The probability that there is no speech.
    pub no_speech: bool,
    /// The next token.
    pub choice: bool,
}

/// One token of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// `None` fills a launch up.
    pub slot: Option<usize>,
    /// The token and where it goes; `None`: as the slot's state says.
    pub given: Option<(u32, usize)>,
    /// Index of the first row of this launch that belongs to the same run of tokens.
    pub first: usize,
    pub wanted: Wanted,
}

impl Row {
    pub const BYTES: usize = 20;

    pub const NONE: Self =
        Self { slot: None, given: None, first: 0, wanted: Wanted { no_speech: false, choice: false } };

    /// The slot's next token after its last one, in row `index`.
    pub fn step(slot: usize, index: usize) -> Self {
        Self {
            slot: Some(slot),
            given: None,
            first: index,
            wanted: Wanted { no_speech: false, choice: true },
        }
    }

    pub fn write(&self, bytes: &mut Vec<u8>) {
        let (token, position) = self.given.map_or((-1, -1), |(token, at)| (token as i32, int(at)));
        let wanted = i32::from(self.wanted.no_speech) + 2 * i32::from(self.wanted.choice);
        let numbers = [self.slot.map_or(-1, int), position, token, int(self.first), wanted];
        bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
    }
}

/// What a slot begins an attempt with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// The attempt ends with so many tokens.
    pub tokens_max: usize,
    /// The end of the text is not written before that.
    pub forced: bool,
    /// 0: the likeliest token.
    pub temperature: f32,
    pub seed: u32,
    /// Whether the slot has a trie of terms.
    pub terms: bool,
}

impl State {
    pub const BYTES: usize = 88;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        // No token, position or timestamp yet; before the first token there is as if a timestamp.
        let numbers = [0, 0, 0, -1, 0, 1, 0, int(self.tokens_max), i32::from(self.forced)];
        bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
        bytes.extend(self.temperature.to_ne_bytes());
        bytes.extend(self.seed.to_ne_bytes());
        bytes.extend((if self.terms { int(TrieNode::FIRST) } else { -1 }).to_ne_bytes());
        // No term is on trial, and none was taken back.
        let trial = [-1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(trial.into_iter().flat_map(i32::to_ne_bytes));
    }
}

/// A token of a term, in a trie that is an array: breadth first, so that the nodes that follow a node stand in a
/// row, here in the order of their tokens. Where the tokens written so far lead to, and where they lead without the
/// first few of them, is every node that they have reached (Aho and Corasick, 1975).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrieNode {
    pub token: u32,
    /// Above 0: how far below the likeliest tokens the tokens of a term up to here may lie, in nats, together. Below
    /// 0: what the logit of an unwanted term's last token loses.
    pub gain: f32,
    /// The first of the nodes that follow it, up to the first one of the next node.
    pub first: usize,
    /// Where its tokens lead without the first one or more; of one that stands at a segment's beginning alone, where
    /// they lead elsewhere.
    pub otherwise: usize,
    /// The first token of the wanted term that ends here.
    pub opening: Option<u32>,
}

impl TrieNode {
    pub const BYTES: usize = 20;
    /// Before any token of a term that may stand anywhere.
    pub const ANYWHERE: usize = 0;
    /// The same after a timestamp, and at the beginning.
    pub const FIRST: usize = 1;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.token as i32).to_ne_bytes());
        bytes.extend(self.gain.to_ne_bytes());
        let opening = self.opening.map_or(-1, |token| token as i32);
        let numbers = [int(self.first), int(self.otherwise), opening];
        bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
    }
}

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub token: Option<u32>,
    /// The attempt is at its end.
    pub finished: bool,
    /// The tokens of the attempt that stand before it: fewer than there were where a term was taken back.
    pub written: usize,
    pub log_probability: f32,
    /// Among text, before the rules; at most 1.
    pub probability: f32,
    pub no_speech: f32,
}

impl Outcome {
    pub const BYTES: usize = 24;

    /// Of bytes that hold whole outcomes.
    pub fn read_all(bytes: &[u8]) -> Vec<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let (outcomes, _) = words.as_chunks::<6>();
        let of = |&[token, finished, written, log_probability, probability, no_speech]: &[[u8; 4]; 6]| Self {
            token: u32::try_from(i32::from_ne_bytes(token)).ok(),
            finished: i32::from_ne_bytes(finished) != 0,
            written: usize::try_from(i32::from_ne_bytes(written)).unwrap_or(0),
            log_probability: f32::from_ne_bytes(log_probability),
            probability: f32::from_ne_bytes(probability),
            no_speech: f32::from_ne_bytes(no_speech),
        };
        outcomes.iter().map(of).collect()
    }
}

fn int(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
