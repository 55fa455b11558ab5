//! The symbols that Kokoro reads.
//!
//! Source: the model's `config.json` (hexgrad/Kokoro-82M, Apache-2.0).

/// Symbols per run: longer inputs sound hurried, and their first sound comes late.
const SYMBOLS_MAX: usize = 300;

/// The model's symbols and their numbers.
#[rustfmt::skip]
const SYMBOLS: &[(char, i64)] = &[
    (';', 1), (':', 2), (',', 3), ('.', 4), ('!', 5), ('?', 6), ('—', 9), ('…', 10), ('"', 11), ('(', 12),
    (')', 13), ('“', 14), ('”', 15), (' ', 16), ('\u{303}', 17), ('ʣ', 18), ('ʥ', 19), ('ʦ', 20), ('ʨ', 21),
    ('ᵝ', 22), ('ꭧ', 23), ('A', 24), ('I', 25), ('O', 31), ('Q', 33), ('S', 35), ('T', 36), ('W', 39),
    ('Y', 41), ('ᵊ', 42), ('a', 43), ('b', 44), ('c', 45), ('d', 46), ('e', 47), ('f', 48), ('h', 50),
    ('i', 51), ('j', 52), ('k', 53), ('l', 54), ('m', 55), ('n', 56), ('o', 57), ('p', 58), ('q', 59),
    ('r', 60), ('s', 61), ('t', 62), ('u', 63), ('v', 64), ('w', 65), ('x', 66), ('y', 67), ('z', 68),
    ('ɑ', 69), ('ɐ', 70), ('ɒ', 71), ('æ', 72), ('β', 75), ('ɔ', 76), ('ɕ', 77), ('ç', 78), ('ɖ', 80),
    ('ð', 81), ('ʤ', 82), ('ə', 83), ('ɚ', 85), ('ɛ', 86), ('ɜ', 87), ('ɟ', 90), ('ɡ', 92), ('ɥ', 99),
    ('ɨ', 101), ('ɪ', 102), ('ʝ', 103), ('ɯ', 110), ('ɰ', 111), ('ŋ', 112), ('ɳ', 113), ('ɲ', 114),
    ('ɴ', 115), ('ø', 116), ('ɸ', 118), ('θ', 119), ('œ', 120), ('ɹ', 123), ('ɾ', 125), ('ɻ', 126),
    ('ʁ', 128), ('ɽ', 129), ('ʂ', 130), ('ʃ', 131), ('ʈ', 132), ('ʧ', 133), ('ʊ', 135), ('ʋ', 136),
    ('ʌ', 138), ('ɣ', 139), ('ɤ', 140), ('χ', 142), ('ʎ', 143), ('ʒ', 147), ('ʔ', 148), ('ˈ', 156),
    ('ˌ', 157), ('ː', 158), ('ʰ', 162), ('ʲ', 164), ('↓', 169), ('→', 171), ('↗', 172), ('↘', 173),
    ('ᵻ', 177),
];

/// The model's symbol for a character of a transcription; none if it has none.
pub fn symbol(c: char) -> Option<(char, i64)> {
    SYMBOLS.iter().find(|(symbol, _)| *symbol == c).copied()
}

/// Splits `symbols` into pieces of at most [`SYMBOLS_MAX`], at pauses or else between words.
pub fn pieces(symbols: &[(char, i64)]) -> Vec<&[(char, i64)]> {
    let mut pieces = Vec::new();
    let mut rest = symbols;
    while rest.len() > SYMBOLS_MAX {
        let head = rest.get(..SYMBOLS_MAX).unwrap_or_default();
        let last = |ends: &[char]| head.iter().rposition(|(c, _)| ends.contains(c));
        let cut = last(&[',', ';', ':', '.', '—']).or_else(|| last(&[' '])).map_or(SYMBOLS_MAX, |at| at + 1);
        let (piece, others) = rest.split_at(cut);
        pieces.push(piece);
        rest = others;
    }
    pieces.push(rest);
    pieces.retain(|piece| piece.iter().any(|(c, _)| c.is_alphabetic()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_where_one_pauses() {
        let symbols = |text: &str| text.chars().filter_map(symbol).collect::<Vec<_>>();
        let text = "ab, ".repeat(70) + &"abc ".repeat(200) + &"a".repeat(700);
        let all = symbols(&text);
        let cut = pieces(&all);
        let lengths: Vec<usize> = cut.iter().map(|piece| piece.len()).collect();
        assert!(cut.concat() == all, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length <= SYMBOLS_MAX), "{lengths:?}");
        assert_eq!(lengths.first(), Some(&279));
        assert_eq!(pieces(&symbols(".")), Vec::<&[(char, i64)]>::new());
    }
}
