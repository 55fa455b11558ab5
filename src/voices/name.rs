//! Which names a voice may have. Pure.

pub const NAME_CHARACTERS_MAX: usize = 100;

/// Whether `name`, which has no space around it, may be a voice's: 1 to [`NAME_CHARACTERS_MAX`] characters that are seen.
pub fn is_valid(name: &str) -> bool {
    let length = name.chars().count();
    let mut previous = None;
    let is_hidden = |character: char| {
        let before = previous.replace(character);
        character.is_control()
            || (is_format(character) && !(is_joiner(character) && before.is_some_and(is_joined)))
    };
    (1..=NAME_CHARACTERS_MAX).contains(&length)
        && !name.chars().any(is_hidden)
        && !name.chars().last().is_some_and(is_joiner)
}

/// Characters of the general categories Cf, Zl and Zp (Unicode 16): they are not seen, and change how others are, so that one
/// name could look like another.
fn is_format(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

/// The zero-width joiner and non-joiner.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// Whether `character` is of the blocks from Arabic to Myanmar, whose spelling needs joiners, as in Persian and Sinhala names.
fn is_joined(character: char) -> bool {
    matches!(character, '\u{620}'..='\u{109f}') && !is_format(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_script_are_valid() {
        let joined = [
            "\u{0db4}\u{0dca}\u{200d}\u{0dbb}\u{0dd2}\u{0dba}\u{0dcf}",
            "\u{0639}\u{0644}\u{06cc}\u{200c}\u{0631}\u{0636}\u{0627}",
        ];
        let longest = "é".repeat(NAME_CHARACTERS_MAX);
        for name in
            ["Ada", "Ada Lovelace-King", "José", "李小龍", "O’Brien 🎧", &longest].into_iter().chain(joined)
        {
            assert!(is_valid(name), "{name:?}");
        }
    }

    #[test]
    fn names_with_characters_that_are_not_seen_are_not() {
        let long = "x".repeat(NAME_CHARACTERS_MAX + 1);
        let hidden = ["", "a\nb", "\u{7}", "\u{85}", &long];
        let format = [
            "Ada\u{202e}",
            "\u{200b}Ada",
            "A\u{200d}da",
            "Ada\u{2060}",
            "Ada\u{ad}",
            "A\u{feff}da",
            "A\u{2066}da\u{2069}",
            "A\u{2028}da",
            "Ada\u{e0041}",
            "\u{0639}\u{200c}\u{200c}\u{0639}",
            "\u{0639}\u{200c}",
            "\u{200c}",
        ];
        for name in hidden.into_iter().chain(format) {
            assert!(!is_valid(name), "{name:?}");
        }
    }
}
