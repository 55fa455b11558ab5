use proptest::prelude::*;

use super::*;
use crate::format::{gather, text};
use crate::transcript;

const ALL: [Class; 4] = [Class::Numbers, Class::AggressiveNumbers, Class::Ssn, Class::Pci];

fn heard(words: &[impl AsRef<str>]) -> Vec<Word> {
    let word = |(index, text): (usize, &_)| transcript::Word {
        text: format!(" {}", AsRef::<str>::as_ref(text)),
        start: index as f64,
        end: index as f64 + 0.5,
        probability: 0.5,
        speaker: None,
    };
    gather(&words.iter().enumerate().map(word).collect::<Vec<_>>())
}

fn split(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// Results in order, finals but for those in brackets; what is shown of each.
#[track_caller]
fn results(class: Class, mode: Mode, cases: &[(&str, &str)]) {
    let mut redactor = Redactor::new(&[class], mode);
    for (said, expected) in cases {
        let interim = said.strip_prefix('[').and_then(|said| said.strip_suffix(']'));
        let words = heard(&split(interim.unwrap_or(said)));
        let shown = text(&redactor.redact(words, interim.is_none()));
        assert_eq!(shown, *expected, "{class:?}: {said}");
    }
}

#[test]
fn numbers_go_by_their_class() {
    use Class::{AggressiveNumbers, Numbers, Pci, Ssn};
    for (class, said, expected) in [
        (Numbers, "call 555 0199 at once", "call *** **** at once"),
        (Numbers, "I have 2 dogs here", "I have 2 dogs here"),
        (Numbers, "it is four five six seven, yes", "it is * * * *, yes"),
        (Numbers, "the code is 12", "the code is **"),
        (Numbers, "in twenty-one days or one day", "in twenty-one days or one day"),
        (Numbers, "two hundred and five people", "* ** and * people"),
        (AggressiveNumbers, "I have two dogs and 3 cats here", "I have * dogs and * cats here"),
        (AggressiveNumbers, "a 3-year-old and a two-year-old", "a *-year-old and a *-year-old"),
        (AggressiveNumbers, "Oh, the $20 of 1990s", "Oh, the $** of *****"),
        (Ssn, "mine is 123-45-6789 I think", "mine is ***-**-**** I think"),
        (Ssn, "mine is 123 45 dash 6789 I think", "mine is *** ** dash **** I think"),
        (Ssn, "mine is 1-2-3. For 5-6-7-8-9. Yes", "mine is *-*-*. * *-*-*-*-*. Yes"),
        (
            Ssn,
            "mine is 123-45-6789 and 555 123 4567 is the phone",
            "mine is ***-**-**** and 555 123 4567 is the phone",
        ),
        (Ssn, "it was in 1984 I think", "it was in 1984 I think"),
        (Ssn, "1984 was a good year", "1984 was a good year"),
        (Ssn, "I was born in 1984.", "I was born in 1984."),
        (Ssn, "I have two.", "I have two."),
        (Ssn, "I want that one.", "I want that one."),
        (Ssn, "my social is 12", "my social is **"),
        (Ssn, "the last four of my social are 6789 there", "the last four of my social are **** there"),
        (Ssn, "social security began in 1935 or so", "social security began in 1935 or so"),
        (Pci, "take 4111 1111 1111 1111 please now", "take **** **** **** **** please now"),
        (Pci, "the cvv is 123 and more", "the cvv is *** and more"),
        (Pci, "it expires in 12/27 or so", "it expires in **/** or so"),
        (Pci, "it expires in 30 days or so", "it expires in 30 days or so"),
        (Pci, "we were 250 people there", "we were 250 people there"),
        (Pci, "call 555-123-4567, 555-987-6543 or so", "call 555-123-4567, 555-987-6543 or so"),
    ] {
        results(class, Mode::Mask, &[(said, expected)]);
    }
}

#[test]
fn labels_say_what_was_there() {
    let said = split("it is 123-45-6789, or 4111 1111. 1111 1111, you see.");
    let mut redactor = Redactor::new(&[Class::Ssn, Class::Pci], Mode::Label);
    let shown = redactor.redact(heard(&said), true);
    assert_eq!(text(&shown), "it is [SSN], or [PCI], you see.");
    assert_eq!((shown[4].bare.as_str(), shown[4].start, shown[4].end), ("[PCI]", 4.0, 7.5));
    let mut off = Redactor::new(&[], Mode::Label);
    assert_eq!(off.redact(heard(&said), true), heard(&said));
    results(
        Class::Numbers,
        Mode::Label,
        &[("three dogs, 405, 606 cats here", "three dogs, [NUMBER], [NUMBER] cats here")],
    );
}

#[test]
fn pieces_that_no_space_parts_have_one_label() {
    let piece = |text: &str| transcript::Word {
        text: text.into(),
        start: 0.0,
        end: 0.0,
        probability: 1.0,
        speaker: None,
    };
    let pieces = [" it's", " 123", "-45", "-6789", ".", " 我", "的", "12", "345"].map(piece);
    let mut redactor = Redactor::new(&[Class::Numbers], Mode::Label);
    assert_eq!(text(&redactor.redact(gather(&pieces), true)), "it's [NUMBER]. 我的[NUMBER]");
}

#[test]
fn a_number_over_several_results_is_hidden_in_each() {
    results(
        Class::Ssn,
        Mode::Mask,
        &[
            ("[my social is 123456-]", "my social is ******-"),
            ("my social is 12", "my social is **"),
            ("[3]", "*"),
            ("3 45", "* **"),
            ("6789 and that's it all right now", "**** and that's it all right now"),
            ("1984 was good", "1984 was good"),
        ],
    );
    results(
        Class::Ssn,
        Mode::Mask,
        &[("One.", "*."), ("Two.", "*."), ("Oh.", "*."), ("4-5-6-7-8-9.", "*-*-*-*-*-*.")],
    );
    results(
        Class::Pci,
        Mode::Label,
        &[("it is 4111 1111", "it is [PCI]"), ("1111 1111 okay thanks", "[PCI] okay thanks")],
    );
    results(Class::Pci, Mode::Mask, &[("my CVV is", "my CVV is"), ("123 you know", "*** you know")]);
}

#[test]
fn an_interim_holds_back_what_is_not_decided() {
    results(
        Class::Ssn,
        Mode::Mask,
        &[
            ("[I was born in 1984]", "I was born in"),
            ("[I was born in 1984 in]", "I was born in"),
            ("[I was born in 1984 in Ohio, yes]", "I was born in 1984 in Ohio, yes"),
            ("[that one]", "that"),
            ("[going to]", "going"),
            ("[call 555-123-4567 now]", "call 555-123-4567 now"),
        ],
    );
}

/// Words of every kind that redaction knows.
fn any_word() -> impl Strategy<Value = String> {
    let words = "one|two|four|oh|Oh|o|twenty|nineteen|eighty|hundred|thousand|double|triple|zeros|five-six|123|4|12|1-2-3|\
                 6789|1984|4111|12/27|123-45-6789|\\$20|3rd|AB123|three-year-old|for|to|won|um|and|dash|then|-|in|at|have|\
                 social|security|card|cvv|number|is|expires|days|that|the|May|dogs|born";
    (words, "[,.?-]?").prop_map(|(word, close)| format!("{word}{close}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// No interim of any beginning shows a word that the final hides.
    #[test]
    fn interims_show_no_more_than_finals(
        past in prop::collection::vec(any_word(), 0..6),
        said in prop::collection::vec(any_word(), 1..14),
    ) {
        for class in ALL {
            let mut redactor = Redactor::new(&[class], Mode::Mask);
            redactor.redact(heard(&past), true);
            let shown = redactor.clone().redact(heard(&said), true);
            prop_assert_eq!(shown.len(), said.len());
            for length in 1..=said.len() {
                let interim = redactor.redact(heard(&said[..length]), false);
                for (at, word) in interim.iter().enumerate() {
                    let is_hidden = shown[at].written != said[at];
                    prop_assert!(
                        !is_hidden || word.written != said[at],
                        "{:?} {:?}: {} shown of {:?}, final {}", class, past, word.written, said, text(&shown)
                    );
                }
            }
        }
    }

    /// Times stay in order, and nothing is shown that was not said or is a label.
    #[test]
    fn labels_keep_order(said in prop::collection::vec(any_word(), 1..20), is_final in any::<bool>()) {
        for class in ALL {
            let shown = Redactor::new(&[class], Mode::Label).redact(heard(&said), is_final);
            prop_assert!(shown.windows(2).all(|pair| pair[0].end <= pair[1].start));
            for word in &shown {
                let is_label = word.written.starts_with(class.label());
                prop_assert!(is_label || said.contains(&word.written), "{}", word.written);
            }
        }
    }
}

#[test]
fn a_label_stands_for_one_speakers_words() {
    let mut words = heard(&split("my card is 4111 1111 1111 1111 thanks"));
    for (at, word) in words.iter_mut().enumerate() {
        word.speaker = Some(transcript::Speaker { index: usize::from(at >= 5), confidence: 0.5 });
    }
    let shown = Redactor::new(&[Class::Pci], Mode::Label).redact(words, true);
    let labels: Vec<(&str, usize)> = shown
        .iter()
        .filter(|word| word.written == "[PCI]")
        .filter_map(|word| Some((word.written.as_str(), word.speaker?.index)))
        .collect();
    assert_eq!(labels, [("[PCI]", 0), ("[PCI]", 1)], "{shown:?}");
    assert!(!text(&shown).contains("1111"));
}
