use super::*;
use crate::transcript;
use proptest::prelude::*;

/// Words of a tenth of a second each, one for each that a space begins.
fn spoken(text: &str) -> Vec<transcript::Word> {
    let word = |(index, word): (usize, &str)| transcript::Word {
        text: format!(" {word}"),
        start: index as f64 / 10.0,
        end: (index + 1) as f64 / 10.0,
        probability: 0.9,
        speaker: None,
    };
    text.split(' ').filter(|word| !word.is_empty()).enumerate().map(word).collect()
}

pub(super) fn words(text: &str, options: &Options<'_>) -> Vec<Word> {
    format(gather(&spoken(text)), options)
}

pub(super) fn smart() -> Options<'static> {
    Options { language: "en", smart: true, ..Options::default() }
}

/// Each first text becomes the second; and the second, said so, stays as it is.
#[track_caller]
pub(super) fn become_of(options: &Options<'_>, cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(said, written)| (said, text(&words(said, options)), written))
        .filter(|(_, got, written)| got != *written)
        .map(|(said, got, written)| format!("{said:?}\n     is {got:?}\n  wants {written:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[track_caller]
pub(super) fn stay(options: &Options<'_>, texts: &[&str]) {
    let cases: Vec<_> = texts.iter().map(|text| (*text, *text)).collect();
    become_of(options, &cases);
}

#[test]
fn dictation_takes_commands_only() {
    let dictation = Options { language: "en", dictation: true, ..Options::default() };
    become_of(
        &dictation,
        &[
            ("Hello, comma, how are you? Question mark.", "Hello, how are you?"),
            ("Stop. Period. go on", "Stop. Go on"),
            ("One. Comma. Two", "One, two"),
            ("the end period new paragraph next topic new line item", "the end.\n\nNext topic\nitem"),
            ("great exclamation mark", "great!"),
            ("as follows colon one", "as follows: one"),
        ],
    );
    stay(
        &dictation,
        &["a period of time", "the period ended", "a comma", "a new approach", "period of rest", "comma"],
    );
}

#[test]
fn filler_words_are_stripped_or_spelled() {
    let strip = Options { language: "en", filler_words: FillerWords::Stripped, ..Options::default() };
    become_of(
        &strip,
        &[
            ("Um, I think so.", "I think so."),
            ("Uh so let's say", "So let's say"),
            ("it's not as uh cut and dry", "it's not as cut and dry"),
            ("it was, um. Yes.", "it was. Yes."),
            ("uh-huh, uhhh, mhmm", "uh-huh, mhmm"),
            ("Well, ummm, no.", "Well, no."),
            ("um", ""),
        ],
    );
    stay(&strip, &["uh-huh", "umbrella", "hum", "nuh-uh"]);
    let spell = Options { language: "en", filler_words: FillerWords::Spelled, ..Options::default() };
    become_of(&spell, &[("Ummm, mm-hmm. uhhh", "Um, mhmm. uh")]);
    // It is a word elsewhere.
    for language in ["de", "pt"] {
        stay(&Options { language, ..strip.clone() }, &["um acht Uhr", "um dia"]);
    }
}

#[test]
fn profanity_is_masked_whole() {
    let mask = Options { language: "en", profanity_filter: true, ..Options::default() };
    become_of(
        &mask,
        &[
            ("Oh shit, no!", "Oh ****, no!"),
            ("fucking motherfuckers", "**** ****"),
            ("bull-shit", "****"),
            ("an ass.", "an ****."),
        ],
    );
    stay(&mask, &["class assessment", "Scunthorpe", "shitake", "a cockpit", "Dick", "hello"]);
    let masked = words("Oh shit, no!", &mask);
    assert_eq!((masked[1].bare.as_str(), masked[1].written.as_str()), ("****", "****,"));
}

#[test]
fn terms_are_replaced() {
    let rules = |pairs: &[(&str, Option<&str>)]| -> Vec<Replacement> {
        pairs.iter().map(|(f, r)| Replacement { find: (*f).into(), replace: r.map(Into::into) }).collect()
    };
    let replaced = |text_in: &str, pairs: &[(&str, Option<&str>)]| {
        let rules = rules(pairs);
        let options = Options { language: "es", replace: &rules, ..Options::default() };
        text(&words(text_in, &options))
    };
    assert_eq!(replaced("Hi, Monika.", &[("monika", Some("Monica"))]), "Hi, Monica.");
    assert_eq!(
        replaced("Monika Jon.", &[("monika jon", Some("Monica John")), ("monika", Some("x"))]),
        "Monica John."
    );
    assert_eq!(replaced("Well, monika, no", &[("monika", None)]), "Well, no");
    assert_eq!(replaced("Yes monika.", &[("monika", None)]), "Yes.");
    assert_eq!(replaced("ZenDesk zendesk", &[("ZenDesk", Some("Zendesk"))]), "Zendesk zendesk");
    let both = [("it", Some("the monster")), ("It", Some("The monster"))];
    assert_eq!(replaced("It saw it.", &both), "The monster saw the monster.");
    assert_eq!(replaced("a b", &[("a", Some("b")), ("b", Some("c"))]), "b c");
    assert_eq!(replaced("nothing here", &[("  ", Some("x"))]), "nothing here");

    let rules = rules(&[("kpis", Some("Key Performance Indicators"))]);
    let found = words("the KPIs.", &Options { replace: &rules, ..Options::default() });
    let times: Vec<_> = found.iter().map(|w| (w.written.as_str(), w.bare.as_str(), w.start)).collect();
    assert_eq!(times[1], ("Key", "Key", 0.1));
    assert_eq!((times[3].0, times[3].1), ("Indicators.", "Indicators"));
    assert!((found[2].start - 0.1333).abs() < 1e-3 && found[3].end == 0.2);
}

#[test]
fn pieces_that_no_space_parts_are_one_word() {
    let piece = |text: &str, start: f64| transcript::Word {
        text: text.into(),
        start,
        end: start + 0.1,
        probability: if text == ".5" { 0.5 } else { 1.0 },
        speaker: None,
    };
    let english = gather(&[piece(" Take", 0.0), piece(" 3", 0.1), piece(".5", 0.2), piece(",", 0.3)]);
    assert_eq!(text(&english), "Take 3.5,");
    assert_eq!((english[1].bare.as_str(), english[1].start, english[1].end), ("3.5", 0.1, 0.4));
    assert!((english[1].confidence - 2.5 / 3.0).abs() < 1e-6);
    let chinese = gather(&[piece("你", 0.0), piece("好", 0.1), piece("，", 0.15), piece("世", 0.2)]);
    assert_eq!(
        (chinese.len(), text(&chinese).as_str(), bare_text(&chinese).as_str()),
        (3, "你好，世", "你好世")
    );
}

#[test]
fn other_languages_are_left_alone() {
    let all = |language| Options {
        language,
        smart: true,
        numerals: true,
        measurements: true,
        dictation: true,
        profanity_filter: true,
        filler_words: FillerWords::Stripped,
        replace: &[],
    };
    for (language, text) in
        [("de", "zehn Gramm um acht, comma six am"), ("fr", "dix six comma ten dollars shit")]
    {
        stay(&all(language), &[text]);
    }
}

#[test]
fn sentences_and_paragraphs() {
    let of = |text: &str| paragraphs(&gather(&spoken(text)));
    let said = "Hello there. I met Mr. Smith, J. Doe and Dr. Who at 5 p.m. sharp. Why? So do I. \
                Good! She said “Go.” Then left";
    let found = of(said);
    let texts: Vec<Vec<&str>> =
        found.iter().map(|p| p.sentences.iter().map(|s| s.text.as_str()).collect()).collect();
    assert_eq!(
        texts,
        [
            vec![
                "Hello there.",
                "I met Mr. Smith, J. Doe and Dr. Who at 5 p.m. sharp.",
                "Why?",
                "So do I.",
                "Good!"
            ],
            vec!["She said “Go.”", "Then left"],
        ]
    );
    assert_eq!((found[0].words, found[1].words, found[0].start), (20, 5, 0.0));
    assert_eq!((found[0].sentences[1].start, found[0].end, found[1].start), (0.2, 2.0, 2.0));
    assert!(paragraphs_text(&found).starts_with("\nHello there. I met"));
    assert!(paragraphs_text(&found).ends_with(" Good!\n\nShe said “Go.” Then left"));
    assert_eq!((of("").len(), paragraphs_text(&[])), (0, String::new()));
}

#[test]
fn utterances_end_in_pauses() {
    let mut words = gather(&spoken("a b c d"));
    words[2].start += 0.8;
    words[2].end += 0.8;
    words[3].start += 0.8;
    words[3].end += 0.8;
    let of = |seconds| utterances(&words, seconds).map(text).collect::<Vec<_>>();
    assert_eq!(of(0.79), ["a b", "c d"]);
    assert_eq!(of(1.0), ["a b c d"]);
    assert_eq!(utterances(&[], 0.8).count(), 0);
}

#[test]
fn searches_find_words_and_what_sounds_like_them() {
    let words = gather(&spoken(
        "Hello, this is Steve Fuller. I'm a professor of social epistemology at the University of Warwick. \
                 What is a pistemology, and the branch of philosophy?",
    ));
    let searcher = Searcher::new(&words);
    let hits = searcher.hits("epistemology");
    assert_eq!((hits[0].confidence, hits[0].snippet.as_str()), (1.0, "epistemology"));
    assert_eq!((hits[0].start, hits[0].end), (1.0, 1.1));
    assert_eq!(hits[1].snippet, "a pistemology");
    assert!(hits[1].confidence > 0.5 && hits[1].confidence < 1.0);
    assert!(hits.windows(2).all(|pair| pair[0].confidence >= pair[1].confidence));
    let phrase = searcher.hits("Social Epistemology");
    assert_eq!((phrase[0].confidence, phrase[0].start, phrase[0].end), (1.0, 0.9, 1.1));
    assert_eq!(searcher.hits("philosofie")[0].snippet, "philosophy");
    assert!(searcher.hits("philosofie")[0].confidence > 0.8);
    for nothing in ["xylophone quartet", "", " ", "!?"] {
        assert_eq!(searcher.hits(nothing), [], "{nothing}");
    }
    assert_eq!(Searcher::new(&[]).hits("a"), []);
}

/// Words that the rules look at, mixed with anything.
fn any_word() -> impl Strategy<Value = String> {
    let known = "one|two|five|ten|twelve|nineteen|twenty|ninety|hundred|thousand|million|point|and|a|oh|dollars|\
                 cents|percent|pm|a\\.m\\.|at|dot|com|slash|may|second|of|double|comma|period|new|line|um|grams|\
                 street|3|\\.5|5th|phone|code|twenty-five|email|one|to|past|between|half|8\\.37|8:37pm|\\$55|444|9913|\
                 call|room|b|plus|in|out|Main|kilometers|444\\.814\\.9913";
    prop_oneof![
        3 => (" ?", known, "[,.?]?").prop_map(|(space, word, close)| format!("{space}{word}{close}")),
        1 => any::<String>(),
        1 => " \\PC{0,6}",
    ]
}

fn any_speech() -> impl Strategy<Value = Vec<transcript::Word>> {
    prop::collection::vec((any_word(), 0.0f64..0.5, 0.0f64..0.5), 0..40).prop_map(|pieces| {
        let mut at = 0.0;
        let word = |(text, pause, seconds)| {
            let start = at + pause;
            at = start + seconds;
            transcript::Word { text, start, end: at, probability: 0.5, speaker: None }
        };
        pieces.into_iter().map(word).collect()
    })
}

proptest! {
    /// Whatever is asked of whatever was said: times go forward within the input's, and nothing fails.
    #[test]
    fn times_stay_right(
        speech in any_speech(),
        flags in prop::collection::vec(any::<bool>(), 6),
        find in any_word(),
        language in prop_oneof![3 => Just("en"), 1 => Just("zh"), 1 => Just("fr")],
    ) {
        let rules = [
            Replacement { find: find.clone(), replace: flags[5].then(|| "two  words".to_owned()) },
            Replacement { find: "five".into(), replace: None },
        ];
        let options = Options {
            language,
            smart: flags[0],
            numerals: flags[1],
            measurements: flags[2],
            dictation: flags[3],
            profanity_filter: flags[4],
            filler_words: if flags[4] { FillerWords::Stripped } else { FillerWords::Spelled },
            replace: if flags[5] { &rules } else { &[] },
        };
        let words = format(gather(&speech), &options);
        prop_assert!(words.windows(2).all(|pair| pair[0].end <= pair[1].start + 1e-9));
        prop_assert!(words.iter().all(|word| word.start <= word.end && (0.0..=1.0).contains(&word.confidence)));
        if let (Some(first), Some(last)) = (words.first(), words.last()) {
            prop_assert!(first.start >= speech[0].start && last.end <= speech[speech.len() - 1].end);
        }
        let sentences = paragraphs(&words);
        prop_assert_eq!(sentences.iter().map(|paragraph| paragraph.words).sum::<usize>(), words.len());
        prop_assert_eq!(utterances(&words, 0.2).map(<[Word]>::len).sum::<usize>(), words.len());
        for hit in Searcher::new(&words).hits(&find) {
            prop_assert!(hit.start <= hit.end && hit.confidence > 0.0 && hit.confidence <= 1.0);
        }
    }

    /// Nothing asked, nothing changed but white space.
    #[test]
    fn without_features_the_text_is_unchanged(speech in any_speech(), english in any::<bool>()) {
        let language = if english { "en" } else { "ja" };
        let words = format(gather(&speech), &Options { language, ..Options::default() });
        let heard: String = speech.iter().map(|word| word.text.as_str()).collect();
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        prop_assert_eq!(plain(&text(&words)), plain(&heard));
    }

    /// Every cardinal is read back.
    #[test]
    fn cardinals_are_read(value in 10u64..1_000_000) {
        let numerals = Options { language: "en", numerals: true, ..Options::default() };
        prop_assert_eq!(text(&words(&in_words(value), &numerals)), value.to_string());
    }
}

/// A number below a million in words.
fn in_words(value: u64) -> String {
    const SMALL: [&str; 20] = [
        "",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
        "fifteen",
        "sixteen",
        "seventeen",
        "eighteen",
        "nineteen",
    ];
    const TENS: [&str; 10] =
        ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
    let join =
        |left: String, right: u64| if right == 0 { left } else { format!("{left} {}", in_words(right)) };
    match value {
        0..20 => SMALL[value as usize].to_owned(),
        20..100 => join(TENS[value as usize / 10].to_owned(), value % 10),
        100..1000 => join(format!("{} hundred", in_words(value / 100)), value % 100),
        _ => join(format!("{} thousand", in_words(value / 1000)), value % 1000),
    }
}

/// Words of a tenth of a second each, by their speakers.
pub(super) fn said_by(turns: &[(usize, &str)]) -> Vec<transcript::Word> {
    let all: Vec<&str> = turns.iter().map(|(_, text)| *text).collect();
    let mut words = spoken(&all.join(" "));
    let speakers = turns.iter().flat_map(|(speaker, text)| text.split(' ').map(|_| *speaker));
    for (word, index) in words.iter_mut().zip(speakers) {
        word.speaker = Some(transcript::Speaker { index, confidence: 0.5 });
    }
    words
}

#[test]
fn no_word_is_made_of_two_speakers_words() {
    let heard = gather(&said_by(&[(0, "it costs fifty"), (1, "five dollars um"), (0, "comma no sir")]));
    let replace = [Replacement { find: "dollars comma".into(), replace: Some("x".into()) }];
    let options = Options {
        filler_words: FillerWords::Stripped,
        dictation: true,
        numerals: true,
        replace: &replace,
        ..smart()
    };
    let shown = format(heard, &options);
    let turns: Vec<(Option<usize>, String)> =
        by_speaker(&shown).map(|turn| (turn[0].speaker.map(|speaker| speaker.index), text(turn))).collect();
    let expected = [(Some(0), "it costs 50"), (Some(1), "$5"), (Some(0), "comma no sir")];
    assert_eq!(turns, expected.map(|(speaker, text)| (speaker, text.to_owned())));
    let confidences = shown.iter().map(|word| word.speaker.map(|speaker| speaker.confidence));
    assert!(confidences.into_iter().all(|confidence| confidence == Some(0.5)));
}

#[test]
fn utterances_sentences_and_paragraphs_have_one_speaker() {
    let words =
        gather(&said_by(&[(0, "So I thought. We might"), (1, "no never"), (1, "Not me."), (0, "go home.")]));
    let spoken: Vec<String> = utterances(&words, SPLIT_SECONDS).map(text).collect();
    assert_eq!(spoken, ["So I thought. We might", "no never Not me.", "go home."]);
    let found = paragraphs(&words);
    let by = |paragraph: &Paragraph| (paragraph.speaker, paragraph.sentences.len());
    assert_eq!(found.iter().map(by).collect::<Vec<_>>(), [(Some(0), 2), (Some(1), 1), (Some(0), 1)]);
    assert!(found.iter().all(|one| one.sentences.iter().all(|sentence| sentence.speaker == one.speaker)));
    assert_eq!(
        paragraphs_text(&found),
        "\nSpeaker 0: So I thought. We might\n\nSpeaker 1: no never Not me.\n\nSpeaker 0: go home."
    );
}
