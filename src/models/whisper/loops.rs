//! Loops, found while they are being written: the model says the same again and again until its tokens run out.
//!
//! Real repetition stays: a sentence said twice, a telephone number of the same digits, `no, no, no, no`.

use super::tokenizer::{TokenId, Tokenizer};
use crate::engine::Token;
use crate::transcript::script::{self, is_unspaced, is_unspaced_alphabet};

/// The most tokens of what a loop repeats: twelve words, each of a few tokens.
const TOKENS_MAX: usize = 36;
const WORDS_MAX: usize = 12;
/// The fewest words of a phrase.
const PHRASE_WORDS: usize = 3;
/// A phrase without the end of a sentence that comes so many times in a row is a loop, ...
const PHRASE_TIMES: usize = 3;
/// ... or so many if it has at most so many words, as people count in fours and chant `four more years`, ...
const SHORT_PHRASE_TIMES: usize = 6;
const SHORT_PHRASE_WORDS: usize = 5;
/// ... if all of it is longer than the longest telephone number (15 digits, ITU-T E.164), which is often read out in
/// groups. Anything else, down to a single token, is a loop if it comes so many times.
const LONG: usize = 16;
/// Characters of a word, where words are written without spaces: in Han and kana, ...
const CHARACTERS_PER_WORD: usize = 2;
/// ... and in Thai, Lao, Burmese and Khmer, whose vowels and tones are characters of their own.
const LETTERS_PER_WORD: usize = 4;

/// The number of `tokens` up to the end of what they have begun to repeat, if they end in a loop. Timestamps do not
/// count: a loop may write one after each time.
pub fn before_loop(tokens: &[Token], tokenizer: &Tokenizer) -> Option<usize> {
    let last = tokens.last().filter(|last| tokenizer.is_text(last.id))?;
    // Most tokens did not come shortly before, so that nothing else need be looked at. Each has two timestamps at most.
    if !tokens.iter().rev().skip(1).take(3 * TOKENS_MAX).any(|token| token.id == last.id) {
        return None;
    }
    let text: Vec<(usize, TokenId)> =
        tokens.iter().map(|token| token.id).enumerate().filter(|&(_, id)| tokenizer.is_text(id)).collect();
    let mut longest = 0;
    for length in 1..=TOKENS_MAX.min(text.len()) {
        let is_same = |&index: &usize| text[index].1 == text[index - length].1;
        let same = (length..text.len()).rev().take_while(is_same).count();
        let run = same + length;
        // A shorter piece already explains this run.
        if same == 0 || run <= longest {
            continue;
        }
        longest = run;
        let piece: Vec<TokenId> = text[text.len() - length..].iter().map(|&(_, id)| id).collect();
        let times = run / length;
        let enough = match words_of_phrase(&piece, tokenizer) {
            Some(..=SHORT_PHRASE_WORDS) => SHORT_PHRASE_TIMES,
            Some(_) => PHRASE_TIMES,
            None => LONG,
        };
        if times >= enough && times * length >= LONG {
            let first = text.len() - run;
            return Some(text[first + length - 1].0 + 1);
        }
    }
    None
}

/// The number of words in `piece`, if they can be a phrase: not too few or too many, with letters, and no end of a sentence.
fn words_of_phrase(piece: &[TokenId], tokenizer: &Tokenizer) -> Option<usize> {
    let bytes: Vec<&[u8]> = piece.iter().map(|&token| tokenizer.bytes(token)).collect();
    let spaces = bytes.iter().filter(|bytes| bytes.starts_with(b" ")).count();
    // Twice, as its edges may lie within a character.
    let twice = bytes.concat().repeat(2);
    let twice = String::from_utf8_lossy(&twice);
    let count = |is_counted: fn(char) -> bool| twice.chars().filter(|&c| is_counted(c)).count().div_ceil(2);
    let unspaced = count(is_unspaced);
    let words = if unspaced == 0 {
        spaces.max(1)
    } else {
        let letters = count(is_unspaced_alphabet);
        (unspaced - letters) / CHARACTERS_PER_WORD + letters / LETTERS_PER_WORD
    };
    // Where words have no spaces between them, a space ends a phrase or a sentence.
    let has_end = ends_sentence(&twice) || (unspaced > 0 && spaces > 0);
    let has_letters = twice.contains(char::is_alphabetic);
    ((PHRASE_WORDS..=WORDS_MAX).contains(&words) && has_letters && !has_end).then_some(words)
}

/// Whether a sentence ends within the `text`, which says something twice.
fn ends_sentence(text: &str) -> bool {
    let mut after = text.chars().skip(1);
    text.chars().any(|character| {
        let before_space = after.next().is_none_or(char::is_whitespace);
        script::ends_sentence(character) && (before_space || !character.is_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of bytes, and words of its own after them.
    fn tokenizer() -> Tokenizer {
        Tokenizer::synthetic(51_865).expect("large enough")
    }

    /// A token for each byte of a word, as of a model that knows none of the words.
    fn written(text: &str, tokenizer: &Tokenizer) -> Vec<Token> {
        let tokens = tokenizer.encode(text).into_iter();
        tokens.map(|id| Token { id, probability: 1.0 }).collect()
    }

    /// `count` tokens, each of a word with a space before it.
    fn words(count: u32) -> Vec<Token> {
        (0..count).map(|n| Token { id: 2000 + n, probability: 1.0 }).collect()
    }

    fn times(count: usize, piece: &[Token]) -> Vec<Token> {
        piece.repeat(count)
    }

    /// The first number of tokens at which a loop is found while `tokens` are written, and what comes before it.
    fn found(tokens: &[Token], tokenizer: &Tokenizer) -> Option<(usize, usize)> {
        (1..=tokens.len()).find_map(|end| Some((end, before_loop(&tokens[..end], tokenizer)?)))
    }

    #[test]
    fn a_phrase_is_a_loop_when_it_has_come_a_third_time() {
        let tokenizer = tokenizer();
        let phrase = words(6);
        let before = Token { id: 3000, probability: 1.0 };
        let said = [vec![before], times(30, &phrase)].concat();
        assert_eq!(found(&said, &tokenizer), Some((19, 7)), "and its first time stays");
        assert_eq!(found(&[vec![before], times(2, &phrase), vec![before]].concat(), &tokenizer), None);
        // Longer than any phrase.
        assert_eq!(found(&times(4, &words(13)), &tokenizer), None);
        // As people count in fours, or chant.
        assert_eq!(found(&times(5, &words(4)), &tokenizer), None);
        assert_eq!(found(&times(9, &words(4)), &tokenizer), Some((24, 4)));
    }

    #[test]
    fn timestamps_between_do_not_hide_a_loop() {
        let tokenizer = tokenizer();
        let time = |n: usize| Token { id: tokenizer.special.timestamp_begin + n as u32, probability: 1.0 };
        let mut said = vec![time(0)];
        for n in 0..30 {
            said.extend(words(6));
            said.extend([time(50 * n + 50), time(50 * n + 50)]);
        }
        assert_eq!(found(&said, &tokenizer), Some((23, 7)));
    }

    #[test]
    fn laughter_for_half_a_minute_is_a_loop_and_a_few_times_no_is_none() {
        let tokenizer = tokenizer();
        let ha = &words(1);
        assert_eq!(found(&times(60, ha), &tokenizer), Some((16, 1)));
        let no = &words(2);
        assert_eq!(found(&times(15, no), &tokenizer), None);
        assert_eq!(found(&times(16, no), &tokenizer), Some((32, 2)));
    }

    #[test]
    fn what_is_said_twice_and_digits_as_long_as_a_telephone_number_stay() {
        let tokenizer = tokenizer();
        let sentence = [words(11), written(".", &tokenizer)].concat();
        assert_eq!(found(&times(2, &sentence), &tokenizer), None);
        assert_eq!(found(&times(15, &sentence), &tokenizer), None, "a sentence may be said more often");
        let [one, two, three]: [Token; 3] = words(3).try_into().expect("three");
        let four = [one, one, one, one, two];
        assert_eq!(found(&times(2, &four), &tokenizer), None);
        assert_eq!(found(&times(15, &[one]), &tokenizer), None);
        assert_eq!(found(&times(5, &[one, two, three]), &tokenizer), None);
        assert_eq!(found(&times(7, &[one, two]), &tokenizer), None);
    }

    #[test]
    fn loops_without_spaces_are_found() {
        let tokenizer = tokenizer();
        let phrase = written("我们应该去那里", &tokenizer);
        assert!(phrase.len() <= TOKENS_MAX, "{}", phrase.len());
        let length = phrase.len();
        assert_eq!(found(&times(10, &phrase), &tokenizer), Some((6 * length, length)), "a short one");
        assert_eq!(found(&times(2, &phrase), &tokenizer), None);
        let phrase = written("我们现在应该马上去那里看", &tokenizer);
        assert_eq!(phrase.len(), TOKENS_MAX);
        assert_eq!(found(&times(4, &phrase), &tokenizer), Some((3 * TOKENS_MAX, TOKENS_MAX)));
        let sentence = written("我们应该去那里。", &tokenizer);
        assert_eq!(found(&times(3, &sentence), &tokenizer), None);
        // Two characters are a word, and a word is no phrase.
        assert_eq!(found(&times(15, &written("好的", &tokenizer)), &tokenizer), None);
    }

    #[test]
    fn a_phrase_in_thai_or_khmer_may_be_said_as_often_as_one_with_spaces() {
        let tokenizer = tokenizer();
        for said in ["ขอบคุณมาก", "ขอบ คุณมาก", "ไปที่นั่นไป"]
        {
            let phrase = written(said, &tokenizer);
            assert!(phrase.len() <= TOKENS_MAX, "{}", phrase.len());
            assert_eq!(found(&times(15, &phrase), &tokenizer), None, "{said}");
            assert!(found(&times(16, &phrase), &tokenizer).is_some(), "{said}");
        }
        let sentence = written("អរគុណ។", &tokenizer);
        assert_eq!(found(&times(15, &sentence), &tokenizer), None);
    }
}
