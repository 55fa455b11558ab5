//! Redaction over `tests/fixtures/redaction.tsv`: numbers as people say them and as the model writes them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use verbatim::format::redact::{Class, Mode, Redactor};
use verbatim::format::{self, FillerWords, Options, Replacement, Word};
use verbatim::transcript;

/// Names of the classes, each with its letter in the corpus.
const CLASSES: [(&str, char); 5] =
    [("numbers", 'n'), ("true", 'n'), ("aggressive_numbers", 'a'), ("ssn", 's'), ("pci", 'p')];
const MODES: [Mode; 2] = [Mode::Mask, Mode::Label];
/// Said within a number, and no part of it.
const ASIDES: [&str; 12] =
    ["um", "uh", "and", "then", "okay", "dash", "hyphen", "slash", "dot", "space", "-", "or"];

pub struct Entry {
    hidden_by: &'static str,
    shown_by: &'static str,
    pub words: Vec<&'static str>,
    /// For each word, whether it stands in braces.
    is_marked: Vec<bool>,
}

impl Entry {
    pub fn text(&self) -> String {
        self.words.join(" ")
    }

    pub fn is_hidden_by(&self, letter: char) -> bool {
        self.hidden_by.contains(letter)
    }

    /// The words that must not be shown, by their places.
    pub fn secrets(&self) -> Vec<usize> {
        let is_secret =
            |at: &usize| self.is_marked[*at] && !ASIDES.contains(&letters(self.words[*at]).as_str());
        (0..self.words.len()).filter(is_secret).collect()
    }
}

pub fn corpus() -> Vec<Entry> {
    let text = include_str!("../fixtures/redaction.tsv");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let [hidden_by, shown_by, sentence] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("three columns: {line}")
            };
            let mut open = false;
            let (mut words, mut is_marked) = (Vec::new(), Vec::new());
            for piece in sentence.split(' ') {
                open |= piece.starts_with('{');
                is_marked.push(open);
                open &= !piece.contains('}');
                words.push(&*piece.replace(['{', '}'], "").leak());
            }
            Entry { hidden_by, shown_by, words, is_marked }
        })
        .collect()
}

fn letters(text: &str) -> String {
    let text = text.to_lowercase();
    let core = text.trim_matches(|c: char| !c.is_alphanumeric());
    if core.is_empty() { text } else { core.to_owned() }
}

fn heard(words: &[&str]) -> Vec<Word> {
    let word = |(index, text): (usize, &&str)| transcript::Word {
        text: format!(" {text}"),
        start: index as f64 / 4.0,
        end: (index + 1) as f64 / 4.0,
        probability: 0.9,
        speaker: None,
    };
    format::gather(&words.iter().enumerate().map(word).collect::<Vec<_>>())
}

fn redactor(class: &str, mode: Mode) -> Redactor {
    Redactor::new(&[Class::named(class).expect("a class")], mode)
}

/// Words of `secrets` that `shown` gives away. What is outside of them may say the same.
pub fn leaks<'a>(words: &[&'a str], secrets: &[usize], shown: &[String]) -> Vec<&'a str> {
    let told: Vec<String> = shown.iter().map(|word| letters(word)).collect();
    let is_told = |at: &&usize| {
        let secret = letters(words[**at]);
        let innocent = |other: usize| !secrets.contains(&other) && letters(words[other]) == secret;
        let innocents = (0..words.len()).filter(|other| innocent(*other)).count();
        told.iter().filter(|word| **word == secret).count() > innocents
    };
    let digits = shown.iter().filter(|word| word.contains(|c: char| c.is_ascii_digit())).count();
    let other_digits = (0..words.len())
        .filter(|at| !secrets.contains(at) && words[*at].contains(|c: char| c.is_ascii_digit()));
    let mut found: Vec<&str> = secrets.iter().filter(is_told).map(|at| words[*at]).collect();
    if digits > other_digits.count() && found.is_empty() {
        found.push("a digit");
    }
    found
}

fn written(words: &[Word]) -> Vec<String> {
    words.iter().map(|word| word.written.clone()).collect()
}

fn text(words: &[Word]) -> String {
    written(words).join(" ")
}

/// Counts of tries and failures, by class and mode.
#[derive(Default)]
struct Report {
    tried: BTreeMap<String, [usize; 2]>,
    wrong: String,
}

impl Report {
    fn count(&mut self, class: &str, mode: Mode, wrong: Option<String>) {
        let counts = self.tried.entry(format!("{class} {mode:?}")).or_default();
        counts[0] += 1;
        if let Some(wrong) = wrong {
            counts[1] += 1;
            let _ = writeln!(self.wrong, "{class} {mode:?}: {wrong}");
        }
    }

    #[track_caller]
    fn check(self, what: &str) {
        for (which, [tried, wrong]) in &self.tried {
            println!("{which:26} {wrong:4} of {tried:6} {what}");
        }
        assert!(!self.tried.is_empty(), "nothing was tried");
        assert!(self.wrong.is_empty(), "{what}:\n{}", self.wrong);
    }
}

/// Every entry with every class that hides it, in both modes.
fn for_each_hidden(mut visit: impl FnMut(&Entry, &str, Mode, &mut Report), what: &str) {
    let mut report = Report::default();
    for entry in corpus() {
        for (class, _) in CLASSES.iter().filter(|(_, letter)| entry.is_hidden_by(*letter)) {
            for mode in MODES {
                visit(&entry, class, mode, &mut report);
            }
        }
    }
    report.check(what);
}

#[test]
fn the_corpus_is_large_and_has_what_must_stay_readable() {
    let corpus = corpus();
    assert!(corpus.len() >= 300, "{}", corpus.len());
    for letter in ['n', 'a', 's', 'p'] {
        let hidden = corpus.iter().filter(|entry| entry.is_hidden_by(letter)).count();
        assert!(hidden >= 90, "{letter} hides {hidden}");
    }
    for letter in ['s', 'p'] {
        let shown = corpus.iter().filter(|entry| entry.shown_by.contains(letter)).count();
        assert!(shown >= 90, "{letter} shows {shown}");
    }
}

#[test]
fn finals_hide_what_their_class_says() {
    let hide = |entry: &Entry, class: &str, mode: Mode, report: &mut Report| {
        let shown = redactor(class, mode).redact(heard(&entry.words), true);
        let leaks = leaks(&entry.words, &entry.secrets(), &written(&shown));
        let wrong = format!("{leaks:?} of {:?} in {:?}", entry.text(), text(&shown));
        report.count(class, mode, (!leaks.is_empty()).then_some(wrong));
    };
    for_each_hidden(hide, "finals leak");
}

#[test]
fn finals_show_what_is_no_secret_and_every_other_word() {
    let mut report = Report::default();
    for entry in corpus() {
        for (class, letter) in CLASSES {
            for mode in MODES {
                let shown = text(&redactor(class, mode).redact(heard(&entry.words), true));
                let is_shown = entry.shown_by.contains(letter);
                let mut wrong = is_shown && shown != entry.text();
                // Outside of the number nothing changes, whatever becomes of it.
                let (Some(first), Some(last)) = (
                    entry.is_marked.iter().position(|marked| *marked),
                    entry.is_marked.iter().rposition(|marked| *marked),
                ) else {
                    panic!("no number: {}", entry.text())
                };
                wrong |= !shown.starts_with(&entry.words[..first].join(" "));
                wrong |= !shown.ends_with(&entry.words[last + 1..].join(" "));
                report.count(class, mode, wrong.then(|| format!("{:?} is {shown:?}", entry.text())));
            }
        }
    }
    report.check("finals hide too much");
}

/// No interim result shows, in any prefix, digits that the final one hides.
#[test]
fn no_interim_shows_what_the_final_hides() {
    let mut report = Report::default();
    for entry in corpus() {
        for (class, letter) in CLASSES {
            let last = redactor(class, Mode::Mask).redact(heard(&entry.words), true);
            let hidden = |at: &usize| last[*at].written != entry.words[*at];
            let mut secrets: Vec<usize> = (0..entry.words.len()).filter(hidden).collect();
            secrets.extend(entry.secrets().into_iter().filter(|_| entry.is_hidden_by(letter)));
            for mode in MODES {
                for length in 1..=entry.words.len() {
                    let words = &entry.words[..length];
                    let secrets: Vec<usize> = secrets.iter().copied().filter(|at| *at < length).collect();
                    let shown = redactor(class, mode).redact(heard(words), false);
                    let leaks = leaks(words, &secrets, &written(&shown));
                    let wrong = format!("{leaks:?} of {:?} in {:?}", words.join(" "), text(&shown));
                    report.count(class, mode, (!leaks.is_empty()).then_some(wrong));
                }
            }
        }
    }
    report.check("interims leak");
}

/// A result may end inside a number: at a pause, or at the client's request.
#[test]
fn no_final_shows_its_part_of_a_number_that_is_cut() {
    let cut = |entry: &Entry, class: &str, mode: Mode, report: &mut Report| {
        let secrets = entry.secrets();
        for at in 1..entry.words.len() {
            let mut redactor = redactor(class, mode);
            let (first, second) = entry.words.split_at(at);
            let mut shown = redactor.redact(heard(first), true);
            // Interims of the second part see the first as well.
            for length in 1..=second.len() {
                let interim = redactor.redact(heard(&second[..length]), false);
                let words = &entry.words[at..at + length];
                let of: Vec<usize> =
                    secrets.iter().filter_map(|s| s.checked_sub(at)).filter(|s| *s < length).collect();
                let leaks = leaks(words, &of, &written(&interim));
                let wrong = format!("{leaks:?} of {words:?} after {first:?} in {:?}", text(&interim));
                report.count(class, mode, (!leaks.is_empty()).then_some(wrong));
            }
            shown.extend(redactor.redact(heard(second), true));
            let leaks = leaks(&entry.words, &secrets, &written(&shown));
            let wrong = format!("{leaks:?} of {first:?} | {second:?} in {:?}", text(&shown));
            report.count(class, mode, (!leaks.is_empty()).then_some(wrong));
        }
    };
    for_each_hidden(cut, "cut numbers leak");
}

/// Slow speakers: a final for each word.
#[test]
fn no_final_of_one_word_shows_its_part_of_a_number() {
    let pieces = |entry: &Entry, class: &str, mode: Mode, report: &mut Report| {
        let mut redactor = redactor(class, mode);
        let each = entry.words.iter().flat_map(|word| redactor.redact(heard(&[word]), true));
        let shown: Vec<Word> = each.collect();
        let leaks = leaks(&entry.words, &entry.secrets(), &written(&shown));
        let wrong = format!("{leaks:?} of {:?} in {:?}", entry.text(), text(&shown));
        report.count(class, mode, (!leaks.is_empty()).then_some(wrong));
    };
    for_each_hidden(pieces, "words by themselves leak");
}

/// The other features work on the redacted text.
#[test]
fn no_other_feature_brings_a_number_back() {
    let replace = [("dogs", Some("cats")), ("um", None), ("number", Some("figure"))]
        .map(|(find, replace)| Replacement { find: find.into(), replace: replace.map(Into::into) });
    let plain = Options { language: "en", ..Options::default() };
    let features = [
        Options { smart: true, ..plain.clone() },
        Options { numerals: true, ..plain.clone() },
        Options { numerals: true, measurements: true, filler_words: FillerWords::Stripped, ..plain.clone() },
        Options { dictation: true, smart: true, profanity_filter: true, ..plain.clone() },
        Options { smart: true, replace: &replace, filler_words: FillerWords::Spelled, ..plain.clone() },
    ];
    let shape = |entry: &Entry, class: &str, mode: Mode, report: &mut Report| {
        for options in &features {
            for is_final in [true, false] {
                let hidden = redactor(class, mode).redact(heard(&entry.words), is_final);
                let shown = format::format(hidden, options);
                let bare: Vec<String> = shown.iter().map(|word| word.bare.clone()).collect();
                let digits =
                    |words: &[String]| words.iter().any(|word| word.contains(|c: char| c.is_ascii_digit()));
                let leaks = digits(&bare) || digits(&written(&shown));
                let wrong = format!("{:?} is {:?} with {options:?}", entry.text(), text(&shown));
                report.count(class, mode, leaks.then_some(wrong));
            }
        }
    };
    for_each_hidden(shape, "features leak");
}

#[test]
fn a_label_stands_for_a_whole_number_and_is_never_glued_to_another() {
    let label = |entry: &Entry, class: &str, mode: Mode, report: &mut Report| {
        if mode == Mode::Label {
            let words = redactor(class, mode).redact(heard(&entry.words), true);
            let shown = format::text(&words);
            let labels = shown.matches('[').count();
            let spaced = !shown.contains("][") && words.iter().all(|word| !word.bare.contains("] ["));
            let whole = !matches!(class, "ssn" | "pci") || labels == 1;
            let wrong = !spaced || labels == 0 || !whole;
            report.count(class, mode, wrong.then(|| format!("{:?} is {shown:?}", entry.text())));
        }
    };
    for_each_hidden(label, "labels are wrong");
}
