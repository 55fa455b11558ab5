//! The languages of Kokoro's voices, which the first letter of a voice's name tells, and who transcribes them.

use misaki_rs::Language as English;

use super::super::espeak::{self, Espeak};
use super::super::phonemes::Phonemes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    American,
    British,
    /// A language that espeak-ng transcribes, as it did for the model's training.
    Transcribed {
        code: &'static str,
        /// The name of its voice there.
        voice: &'static str,
    },
    /// One that nothing here transcribes as the model's training did.
    Unread {
        code: &'static str,
    },
}

impl Language {
    /// Source of the letters: `LANG_CODES` of `hexgrad/kokoro` (`pipeline.py`).
    pub fn of(voice: &str) -> Option<Self> {
        let transcribed = |code, voice| Some(Self::Transcribed { code, voice });
        match voice.chars().next()? {
            'a' => Some(Self::American),
            'b' => Some(Self::British),
            'e' => transcribed("es", "es"),
            'f' => transcribed("fr", "fr-fr"),
            'h' => transcribed("hi", "hi"),
            'i' => transcribed("it", "it"),
            'p' => transcribed("pt", "pt-br"),
            'j' => Some(Self::Unread { code: "ja" }),
            'z' => Some(Self::Unread { code: "zh" }),
            _ => None,
        }
    }

    pub fn code(self) -> &'static str {
        match self {
            Self::American | Self::British => "en",
            Self::Transcribed { code, .. } | Self::Unread { code } => code,
        }
    }

    /// Why this server cannot speak it, if it cannot.
    pub fn unread(self) -> Option<String> {
        match self {
            Self::American | Self::British => None,
            Self::Transcribed { code, .. } => (!espeak::is_installed()).then(|| {
                format!("Its language ({code}) needs the program espeak-ng, which is not installed.")
            }),
            Self::Unread { code } => Some(format!("Its language ({code}) cannot be read here.")),
        }
    }

    pub fn transcriber(self) -> Option<Transcriber> {
        match self {
            Self::American => Some(Transcriber::english(English::EnglishUS)),
            Self::British => Some(Transcriber::english(English::EnglishGB)),
            Self::Transcribed { voice, .. } => Espeak::find(voice).map(Transcriber::Espeak),
            Self::Unread { .. } => None,
        }
    }
}

/// Text to the model's symbols.
pub enum Transcriber {
    English(Box<Phonemes>),
    Espeak(Espeak),
}

impl Transcriber {
    fn english(accent: English) -> Self {
        Self::English(Box::new(Phonemes::new(accent)))
    }

    pub fn transcribe(&self, text: &str) -> Option<String> {
        match self {
            Self::English(phonemes) => phonemes.of(text),
            Self::Espeak(espeak) => Some(to_kokoro(&espeak.transcribe(text)?)),
        }
    }
}

/// Pairs of espeak-ng's IPA, tied, that are one symbol for the model.
///
/// Source: `EspeakG2P` of `hexgrad/misaki` (Apache-2.0).
const TIED: [(&str, &str); 11] = [
    ("a^ɪ", "I"),
    ("a^ʊ", "W"),
    ("d^z", "ʣ"),
    ("d^ʒ", "ʤ"),
    ("e^ɪ", "A"),
    ("o^ʊ", "O"),
    ("ə^ʊ", "Q"),
    ("s^s", "S"),
    ("t^s", "ʦ"),
    ("t^ʃ", "ʧ"),
    ("ɔ^ɪ", "Y"),
];

fn to_kokoro(ipa: &str) -> String {
    let ipa = TIED.iter().fold(ipa.to_owned(), |ipa, (pair, symbol)| ipa.replace(pair, symbol));
    ipa.replace(['^', '-'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_language() {
        for (voice, code) in [("af_heart", "en"), ("bm_george", "en"), ("ef_dora", "es"), ("pf_dora", "pt")] {
            assert_eq!(Language::of(voice).map(Language::code), Some(code), "{voice}");
        }
        assert_eq!(Language::of("xf_x"), None);
        let reason = Language::of("zf_xiaobei").and_then(Language::unread).expect("a reason");
        assert!(reason.contains("(zh)"), "{reason}");
    }

    #[test]
    fn tied_sounds_are_one_symbol() {
        assert_eq!(to_kokoro("ˈot^ʃo d^ʒˈorno, sa^ɪ-t^a"), "ˈoʧo ʤˈorno, sIta");
    }
}
