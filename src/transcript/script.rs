//! Languages and scripts that set no spaces between words.

/// Chinese, Cantonese, Japanese, Thai, Lao, Burmese and Khmer, by Whisper's codes.
const UNSPACED_LANGUAGES: [&str; 7] = ["zh", "yue", "ja", "th", "lo", "my", "km"];

/// Whether words of `language`, a Whisper code such as `en`, have spaces between them.
pub fn is_spaced(language: &str) -> bool {
    !UNSPACED_LANGUAGES.contains(&language)
}

/// Whether `letter` belongs to a script without spaces between words: Thai and Lao, Burmese, Khmer, kana (half-width
/// too), Han.
pub fn is_unspaced(letter: char) -> bool {
    matches!(letter,
        '\u{0e00}'..='\u{0eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Whether `letter` belongs to an alphabet without spaces between words, of which a word takes more letters than of Han
/// and kana: Thai and Lao, Burmese, Khmer.
pub fn is_unspaced_alphabet(letter: char) -> bool {
    is_unspaced(letter) && letter < '\u{3000}'
}

/// Whether a sentence ends at `mark`. Those of ASCII may stand within a number or a name, too.
pub fn ends_sentence(mark: char) -> bool {
    matches!(
        mark,
        '.' | '!'
            | '?'
            | ';'
            | '…'
            | '。'
            | '｡'
            | '！'
            | '？'
            | '।'
            | '॥'
            | '؟'
            | '۔'
            | '။'
            | '។'
            | '៕'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_without_spaces_is_in_a_script_without_spaces() {
        for (language, text) in [
            ("zh", "东京"),
            ("yue", "東京"),
            ("ja", "々ひらカナ漢字"),
            ("ja", "ｶﾅ"),
            ("th", "ไทย"),
            ("lo", "ລາວ"),
            ("my", "မြန်မာ"),
            ("km", "ខ្មែរ"),
        ] {
            assert!(!is_spaced(language), "{language}");
            assert!(text.chars().all(is_unspaced), "{text}");
        }
    }

    #[test]
    fn alphabets_and_full_width_latin_are_spaced() {
        for (language, text) in
            [("en", "a1"), ("ru", "да"), ("ar", "نعم"), ("hi", "हाँ"), ("ko", "한국어"), ("en", "Ａ１")]
        {
            assert!(is_spaced(language), "{language}");
            assert!(!text.chars().any(is_unspaced), "{text}");
        }
    }
}
