//! Transcriptions by espeak-ng, a program on this machine: text to IPA, in the language of one of its voices.
//!
//! It is a program of its own under the GPL, so that it is asked through a pipe and is no part of this server.

use std::path::PathBuf;

use super::program::{ask, on_path};

const NAME: &str = "espeak-ng";
/// Stretches between two marks; text with more of them is transcribed without its marks.
const STRETCHES_MAX: usize = 60;
/// Marks that the models read as they are.
const MARKS: &str = ";:,.!?¡¿—…\"«»“”()";

pub fn is_installed() -> bool {
    on_path(NAME).is_some()
}

pub struct Espeak {
    program: PathBuf,
    voice: String,
}

impl Espeak {
    /// None without the program.
    pub fn find(voice: &str) -> Option<Self> {
        Some(Self { program: on_path(NAME)?, voice: voice.to_owned() })
    }

    /// The transcription of `text`, with its marks; sounds of one symbol are tied by `^`. None if the program fails.
    pub fn transcribe(&self, text: &str) -> Option<String> {
        let stretches = stretches(text);
        if stretches.len() > STRETCHES_MAX {
            return self.ask(text);
        }
        let mut transcription = String::new();
        for stretch in stretches {
            match stretch {
                Stretch::Words(words) => transcription.push_str(&self.ask(words)?),
                Stretch::Marks(marks) => transcription.push_str(marks),
            }
        }
        Some(transcription)
    }

    fn ask(&self, words: &str) -> Option<String> {
        let arguments = ["-q", "--ipa", "--tie=^", "--stdin", "-v", &self.voice];
        let answer = ask(&self.program, &arguments, words)?;
        Some(without_switches(&answer.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Stretch<'t> {
    Words(&'t str),
    /// Marks and the spaces around them.
    Marks(&'t str),
}

/// Cuts `text` at marks, but not within a number or an address.
fn stretches(text: &str) -> Vec<Stretch<'_>> {
    let is_inner = |at: usize, mark: char| {
        let before = text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let after = text[at + mark.len_utf8()..].chars().next().is_some_and(char::is_alphanumeric);
        before && after
    };
    let is_mark = |(at, c): (usize, char)| MARKS.contains(c) && !is_inner(at, c);
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    let mut begin = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if !is_mark((at, c)) {
            continue;
        }
        let words = text[begin..at].trim();
        let spaces = text[begin..at].trim_end().len();
        let from = if words.is_empty() { begin } else { begin + spaces };
        if !words.is_empty() {
            stretches.push(Stretch::Words(words));
        }
        let mut end = at + c.len_utf8();
        while let Some((next, c)) = characters.next_if(|(at, c)| is_mark((*at, *c)) || c.is_whitespace()) {
            end = next + c.len_utf8();
        }
        stretches.push(Stretch::Marks(&text[from..end]));
        begin = end;
    }
    let words = text[begin..].trim();
    if !words.is_empty() {
        stretches.push(Stretch::Words(words));
    }
    stretches
}

/// Leaves out what espeak-ng says of other languages' words: `(en)` before one.
fn without_switches(ipa: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0_usize;
    for c in ipa.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_marks_and_numbers_stay_whole() {
        let (words, marks) = (Stretch::Words, Stretch::Marks);
        assert_eq!(
            stretches("¿Cuesta 3.50, o 12:30?  Sí"),
            [marks("¿"), words("Cuesta 3.50"), marks(", "), words("o 12:30"), marks("?  "), words("Sí")]
        );
        assert_eq!(stretches("Uno — dos"), [words("Uno"), marks(" — "), words("dos")]);
        assert_eq!(stretches(" ... "), [marks(" ... ")]);
        assert_eq!(stretches(""), []);
    }

    #[test]
    fn words_of_other_languages_are_not_announced() {
        assert_eq!(without_switches("ˈel (en)wˈiː(es) ˈa"), "ˈel wˈiː ˈa");
        assert_eq!(without_switches(")a(b"), "a");
    }

    #[test]
    fn the_program_transcribes_with_marks() {
        let Some(espeak) = Espeak::find("es") else {
            return eprintln!("espeak-ng is not installed: its transcriptions are not tested");
        };
        let ipa = espeak.transcribe("Hola, ¿qué tal?").expect("a transcription");
        assert!(ipa.starts_with("ˈola, ¿k") && ipa.ends_with('?'), "{ipa}");
    }
}
