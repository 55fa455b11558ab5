use proptest::prelude::*;

use super::*;

fn parse(query: &str) -> Parameters {
    Parameters::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"))
}

fn refusal(query: &str) -> String {
    match Parameters::parse(query) {
        Ok(parameters) => panic!("{query} was taken: {parameters:?}"),
        Err(error) => error.to_string(),
    }
}

/// Every name, with a value that asks for something.
fn all() -> Vec<(&'static str, &'static str)> {
    let value = |row: &Parameter| match row.kind {
        Kind::Flag => "true",
        Kind::OneOf(names) => names.last().copied().unwrap_or_default(),
        Kind::Count { .. } => "8000",
        Kind::Number { .. } | Kind::Seconds { .. } => "0.5",
        Kind::Pause { .. } => "10",
        Kind::Url => "https://client.example/done",
        Kind::Languages { .. } => "es",
        Kind::Items { .. } => "pci:2",
        Kind::Texts { .. } => "key:value",
        Kind::Text => "v2",
    };
    let names = |row: &'static Parameter| std::iter::once(row.name).chain(row.aliases.iter().copied());
    let of_few = |name: &str| {
        matches!(name, "channels" | "alternatives")
            || name.ends_with("_speakers") && name != "identify_speakers"
            || name == "speakers_expected"
    };
    TABLE
        .iter()
        .flat_map(|row| names(row).map(move |name| (name, if of_few(name) { "3" } else { value(row) })))
        .collect()
}

fn pair(name: &str, value: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish()
}

#[test]
fn the_table_has_every_name_once() {
    let mut names: Vec<&str> = all().iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let mut once = names.clone();
    once.dedup();
    assert_eq!(names, once);
    // Of the contract, and of the wire format for files.
    for name in "alternatives callback callback_method channels custom_intent custom_intent_mode custom_topic \
                 custom_topic_mode detect_entities detect_language diarization diarize diarize_model \
                 diarize_version dictation encoding extra filler_words identify_speakers intents keyterm keywords lang language \
                 max_speakers measurements metadata min_speakers mip_opt_out model multichannel numerals paragraphs profanity_filter \
                 punctuate redact replace sample_rate search sentiment smart_format speakers_expected summarize tag tier topics \
                 utt_split utterances version"
        .split_whitespace()
    {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn every_parameter_is_honoured_or_warned_of_or_refused() {
    // They ask for nothing alone: modes of two others, and an opt-out of what is never done.
    let silent = ["custom_intent_mode", "custom_topic_mode", "mip_opt_out"];
    for (name, value) in all() {
        let query = pair(name, value);
        let row = TABLE.iter().find(|row| row.name == name || row.aliases.contains(&name)).unwrap();
        if row.effect == Effect::Refused {
            assert!(Parameters::parse(&query).is_err(), "{query}");
            continue;
        }
        let parameters = parse(&query);
        assert_eq!(parameters != Parameters::default(), !silent.contains(&name), "{query}");
        assert_eq!(!parameters.unsupported().is_empty(), row.effect == Effect::Warned, "{query}");
    }
}

#[test]
fn every_default_means_what_is_meant_without_it() {
    for row in TABLE.iter().filter(|row| !row.default.is_empty()) {
        let parameters = parse(&pair(row.name, row.default));
        assert_eq!(parameters.unsupported(), [""; 0], "{}", row.name);
        assert!(!parameters.shows_punctuation() && parameters.diarize.is_empty() && !parameters.multichannel);
    }
    for (row, name) in TABLE.iter().filter_map(|row| match row.kind {
        Kind::OneOf(names) => Some((row, names)),
        _ => None,
    }) {
        for value in name {
            parse(&format!("{}&sample_rate=8000", pair(row.name, value)));
        }
    }
}

#[test]
fn what_is_not_asked_for_is_not_unsupported() {
    for query in [
        "",
        "numerals=false&diarize=false&utterances=false&smart_format=false&summarize=false&redact=false",
        "diarize_model=false&topics=false&version=latest&alternatives=1&punctuate=true&mip_opt_out=true",
        "language=es&detect_language=true&multichannel=true&tag=a&extra=k:v&encoding=linear16&sample_rate=8000",
        "numerals=true&utterances=true&smart_format=true&search=a&replace=a:b&keyterm=a&filler_words=true",
    ] {
        assert_eq!(parse(query).unsupported(), [""; 0], "{query}");
    }
    for name in ["diarize", "diarization", "diarize_model", "diarize_version"] {
        let query = format!("topics=true&{name}=true&language=en");
        assert_eq!(parse(&query).unsupported(), ["topics"]);
        assert!(parse(&query).implies_words() && parse(&query).needs_words());
        assert_eq!(parse(&query).speakers(), Some(speakers::Options::default()));
        assert_eq!(parse(&format!("{name}=false")).speakers(), None);
    }
    assert!(parse("diarize_model=v2&diarize=true").speakers().is_some());
    assert!(parse("identify_speakers=true&diarize=false").speakers().is_some());
    assert!(parse("identify_speakers=false").speakers().is_none());
    assert!(!parse("diarize=true").identify_speakers);
}

#[test]
fn numbers_of_speakers_are_in_order_and_need_a_request_for_speakers() {
    let of = |query: &str| {
        let speakers::Options { min_speakers, max_speakers, speakers_expected } = parse(query).speakers()?;
        Some((min_speakers, max_speakers, speakers_expected))
    };
    assert_eq!(of("diarize=true&min_speakers=2&max_speakers=2"), Some((Some(2), Some(2), None)));
    assert_eq!(of("diarization=true&speakers_expected=3&min_speakers=1"), Some((Some(1), None, Some(3))));
    assert_eq!(refusal("min_speakers=4&max_speakers=3"), "`min_speakers` is greater than `max_speakers`");
    assert_eq!(
        refusal("speakers_expected=4&max_speakers=3"),
        "`speakers_expected` is greater than `max_speakers`"
    );
    for query in
        ["min_speakers=0", "max_speakers=101", "speakers_expected=-1", "min_speakers=2&min_speakers=2"]
    {
        assert!(Parameters::parse(query).is_err(), "{query}");
    }
    assert_eq!(
        parse("max_speakers=3&speakers_expected=2").idle_speaker_limits(),
        ["max_speakers", "speakers_expected"]
    );
    assert_eq!(parse("max_speakers=3&diarize_model=v2").idle_speaker_limits(), [""; 0]);
}

#[test]
fn redaction_is_for_streams() {
    for query in ["redact=pci", "redact=true", "redact=ssn&redact=numbers"] {
        assert_eq!(refusal(query), "`redact` is available on the streaming endpoint only");
    }
}

#[test]
fn booleans_are_true_or_false() {
    for (text, value) in [("true", true), ("True", true), ("false", false), ("FALSE", false)] {
        assert_eq!(parse(&format!("punctuate={text}")).punctuate, Some(value));
        assert_eq!(parse(&format!("multichannel={text}")).multichannel, value);
    }
    assert_eq!(refusal("punctuate=yes"), "invalid value `yes` for `punctuate`: expected true or false");
    for query in ["punctuate=", "punctuate", "punctuate=1", "diarize=v2", "multichannel=%74rue%20"] {
        refusal(query);
    }
}

#[test]
fn one_value_is_given_once() {
    assert_eq!(refusal("model=a&model=b"), "duplicate field `model`");
    assert_eq!(refusal("language=en&lang=en"), "duplicate field `lang`");
    assert_eq!(
        refusal("encoding=linear16&sample_rate=8000&sample_rate=8000"),
        "duplicate field `sample_rate`"
    );
}

#[test]
fn repeated_keys_make_lists() {
    let all = parse(
        "tag=a,b&tag=b&search=x&search=y,z%20w,&keyterm=K&replace=a:b,c&replace=c&extra=k:1&extra=k:2:3\
         &keywords=a,b:2.5&keywords=c:-1",
    );
    assert_eq!(all.tags, ["a,b", "b"]);
    assert_eq!(all.search, ["x", "y", "z w"]);
    assert_eq!(all.keyterms, ["K"]);
    let keywords: Vec<_> = all.keywords.iter().map(|k| (k.word.as_str(), k.intensifier)).collect();
    assert_eq!(keywords, [("a", 1.0), ("b", 2.5), ("c", -1.0)]);
    assert_eq!(all.replace[0], Replacement { find: "a".into(), replace: Some("b,c".into()) });
    assert_eq!(all.replace[1], Replacement { find: "c".into(), replace: None });
    assert_eq!(all.extra, BTreeMap::from([("k".to_owned(), "2:3".to_owned())]));
    let many = "search=x&".repeat(51);
    assert_eq!(refusal(&many), "too many values for `search`: at most 50");
    let terms = format!("keyterm={}", "a+".repeat(63));
    let many = format!("{terms}&").repeat(8);
    assert!(refusal(&many).starts_with("Keyterm limit exceeded."));
    for query in
        ["search=,", "keywords=a:b", "keywords=:2", "keywords=a:inf", &format!("search={}", "x".repeat(129))]
    {
        refusal(query);
    }
}

#[test]
fn languages_to_detect_are_a_switch_or_a_list() {
    assert_eq!(parse("detect_language=true").detect_language, DetectLanguage::Any);
    assert_eq!(parse("detect_language=false").detect_language, DetectLanguage::Off);
    let among = DetectLanguage::Among(vec!["en".into(), "es".into()]);
    assert_eq!(parse("detect_language=en&detect_language=es").detect_language, among);
    assert_eq!(parse("detect_language=en&detect_language=true&detect_language=es").detect_language, among);
    assert_eq!(parse("detect_language=en,es").detect_language, among);
    refusal("detect_language=");
}

#[test]
fn raw_audio_needs_its_rate() {
    let raw = parse("encoding=LINEAR16&sample_rate=16000&channels=2");
    assert_eq!(
        (raw.encoding, raw.sample_rate_hz, raw.channels),
        (Some(Encoding::Linear16), Some(16_000), Some(2))
    );
    assert_eq!(parse("encoding=flac").encoding, Some(Encoding::Flac));
    for query in [
        "encoding=linear16",
        "encoding=mp5",
        "encoding=",
        "sample_rate=0",
        "sample_rate=3999",
        "sample_rate=-8000",
        "sample_rate=8000.5",
        "sample_rate=99999999999",
        "channels=0",
        "channels=21",
    ] {
        refusal(query);
    }
    // Read only with an encoding, so without one they say nothing wrong.
    parse("sample_rate=44100&channels=2");
}

#[test]
fn callbacks_are_web_addresses() {
    assert_eq!(parse("callback=https%3A%2F%2Fc.example%2F").callback.unwrap().as_str(), "https://c.example/");
    assert_eq!(parse("callback_method=put").callback_method, CallbackMethod::Put);
    for query in ["callback=", "callback=c.example", "callback=ftp://c.example/", "callback_method=GET"] {
        refusal(query);
    }
}

#[test]
fn unknown_names_are_ignored() {
    assert_eq!(parse("nonsense=1&nonsense=2&=&&=x&Punctuate=maybe"), Parameters::default());
}

#[test]
fn long_values_are_cut_in_messages() {
    assert!(refusal(&format!("punctuate={}", "x".repeat(10_000))).len() < 200);
}

proptest! {
    #[test]
    fn any_query_is_answered(query in any::<String>()) {
        let _ = Parameters::parse(&query);
    }

    /// Any value for any known name is taken or refused, and what is taken reads the same again.
    #[test]
    fn any_value_of_a_known_name_is_answered(
        name in prop::sample::select(all()),
        value in prop_oneof![any::<String>(), "[0-9.eE+-]{0,12}", "(true|false|v2|[a-z]{1,8}(:[a-z]{0,8})?)"],
    ) {
        let query = pair(name.0, &value);
        let first = Parameters::parse(&query);
        prop_assert_eq!(&first, &Parameters::parse(&query));
        if let Err(error) = first {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// The order of parameters means nothing.
    #[test]
    fn order_means_nothing(order in Just(all()).prop_shuffle()) {
        let query = |pairs: &[(&str, &str)]| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            let one = |(name, _): &&(&str, &str)| !matches!(*name, "lang" | "diarization" | "redact");
            query.extend_pairs(pairs.iter().filter(one));
            query.finish()
        };
        let shuffled = parse(&query(&order));
        let straight = parse(&query(&all()));
        prop_assert_eq!(shuffled, straight);
    }
}
