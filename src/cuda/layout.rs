//! The memory layout of the structures that host and device exchange, as in `kernels/prelude.cu`.

/// The results that a row should produce.
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
    /// The token and its position; `None` for the slot's last token at its next position.
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

/// The state in which a slot begins an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// The attempt ends at this many tokens.
    pub tokens_max: usize,
    /// The attempt does not end before that.
    pub forced: bool,
    /// 0 takes the likeliest token; above 0 tokens are sampled.
    pub temperature: f32,
    pub seed: u32,
    /// Whether the slot has a trie of terms.
    pub terms: bool,
}

impl State {
    pub const BYTES: usize = 88;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        // No token, position or timestamp yet; the start counts as a timestamp.
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

/// A token of a term in a trie (Aho and Corasick, 1975), which is an array in breadth-first order: a node's followers
/// are adjacent, ordered by token. The tokens written so far have reached one deepest node and, without the first few
/// of them, the chain of its `otherwise`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrieNode {
    pub token: u32,
    /// Above 0: the margin, in nats, by which the term's tokens up to here may together lie below the likeliest ones.
    /// Below 0: the penalty on the logit of an unwanted term's last token.
    pub gain: f32,
    /// Index of its first follower; its followers end where the next node's begin.
    pub first: usize,
    /// The node that its tokens lead to without the first one or more; for a term at a segment's start, the node that
    /// they lead to elsewhere.
    pub otherwise: usize,
    /// The first token of the wanted term that ends here.
    pub opening: Option<u32>,
}

impl TrieNode {
    pub const BYTES: usize = 20;
    /// The root of terms that may begin anywhere.
    pub const ANYWHERE: usize = 0;
    /// The root of terms that begin after a timestamp or at the start.
    pub const FIRST: usize = 1;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend((self.token as i32).to_ne_bytes());
        bytes.extend(self.gain.to_ne_bytes());
        let opening = self.opening.map_or(-1, |token| token as i32);
        let numbers = [int(self.first), int(self.otherwise), opening];
        bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
    }
}

/// The result of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub token: Option<u32>,
    /// The attempt has ended.
    pub finished: bool,
    /// Tokens of the attempt before it; fewer than before if a term was taken back.
    pub written: usize,
    pub log_probability: f32,
    /// Probability among text tokens, before the rules; at most 1.
    pub probability: f32,
    pub no_speech: f32,
}

impl Outcome {
    pub const BYTES: usize = 24;

    /// Parses the outcomes in `bytes`.
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

/// Rows of a slot whose alignment costs are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    pub slot: usize,
    /// Audio positions that are no padding, at least 1: the columns of the costs.
    pub positions: usize,
    pub rows: usize,
    /// Index of its first row among the rows of all requests.
    pub first: usize,
    /// Index of its first cost among those of all requests.
    pub costs: usize,
}

impl Alignment {
    pub const BYTES: usize = 20;

    pub fn write(&self, bytes: &mut Vec<u8>) {
        let &Self { slot, positions, rows, first, costs } = self;
        let numbers = [slot, positions, rows, first, costs].map(int);
        bytes.extend(numbers.into_iter().flat_map(i32::to_ne_bytes));
    }
}

fn int(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
