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

/// Every parameter of the contract and of the wire format, with a value that asks for something.
const ALL: &[(&str, &str)] = &[
    ("alternatives", "3"),
    ("callback", "https://client.example/done"),
    ("callback_method", "put"),
    ("channels", "2"),
    ("custom_intent", "buy"),
    ("custom_intent_mode", "strict"),
    ("custom_topic", "weather"),
    ("custom_topic_mode", "extended"),
    ("detect_entities", "true"),
    ("detect_language", "true"),
    ("diarization", "true"),
    ("diarize", "true"),
    ("diarize_model", "latest"),
    ("diarize_version", "2021-07-14.0"),
    ("dictation", "true"),
    ("encoding", "flac"),
    ("extra", "key:value"),
    ("filler_words", "true"),
    ("intents", "true"),
    ("keyterm", "Verbatim"),
    ("keywords", "verbatim:2"),
    ("lang", "es"),
    ("language", "es"),
    ("measurements", "true"),
    ("metadata", r#"{"a":1}"#),
    ("mip_opt_out", "true"),
    ("model", "nova-3"),
    ("multichannel", "true"),
    ("numerals", "true"),
    ("paragraphs", "true"),
    ("profanity_filter", "true"),
    ("punctuate", "true"),
    ("redact", "pci"),
    ("replace", "a:b"),
    ("sample_rate", "8000"),
    ("search", "hello"),
    ("sentiment", "true"),
    ("smart_format", "true"),
    ("summarize", "v2"),
    ("tag", "one"),
    ("tier", "enhanced"),
    ("topics", "true"),
    ("utt_split", "0.5"),
    ("utterances", "true"),
    ("version", "2021-01-01"),
];

#[test]
fn every_parameter_is_kept_or_named_as_unsupported() {
    // They ask for nothing alone: modes of two others, and an opt-out of what is never done.
    let silent = ["custom_intent_mode", "custom_topic_mode", "mip_opt_out"];
    for (name, value) in ALL {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
        let changed = parse(&query) != Parameters::default();
        assert_eq!(changed, !silent.contains(name), "{query}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_unsupported() {
    for query in [
        "",
        "numerals=false&diarize=false&utterances=false&smart_format=false&summarize=false&redact=false",
        "diarize_model=false&topics=false&version=latest&alternatives=1&punctuate=true&mip_opt_out=true",
        "language=es&detect_language=true&multichannel=true&tag=a&extra=k:v&encoding=linear16&sample_rate=8000",
    ] {
        assert_eq!(parse(query).unsupported(), [""; 0], "{query}");
    }
    assert_eq!(parse("topics=true&topics=true&diarization=true").unsupported(), ["diarize", "topics"]);
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
        "tag=a&tag=b&search=x&search=y&keyterm=K&replace=a:b&replace=c&extra=k:1&extra=k:2:3&redact=true",
    );
    assert_eq!(all.tags, ["a", "b"]);
    assert_eq!(all.search, ["x", "y"]);
    assert_eq!(all.keyterms, ["K"]);
    assert_eq!(all.redact, ["numbers"]);
    assert_eq!(all.replace[0], Replacement { find: "a".into(), replace: Some("b".into()) });
    assert_eq!(all.replace[1], Replacement { find: "c".into(), replace: None });
    assert_eq!(all.extra, BTreeMap::from([("k".to_owned(), "2:3".to_owned())]));
    let many = "search=x&".repeat(SEARCH_MAX + 1);
    assert_eq!(refusal(&many), "too many values for `search`: at most 50");
}

#[test]
fn languages_to_detect_are_a_switch_or_a_list() {
    assert_eq!(parse("detect_language=true").detect_language, DetectLanguage::Any);
    assert_eq!(parse("detect_language=false").detect_language, DetectLanguage::Off);
    let among = DetectLanguage::Among(vec!["en".into(), "es".into()]);
    assert_eq!(parse("detect_language=en&detect_language=es").detect_language, among);
    assert_eq!(parse("detect_language=en&detect_language=true&detect_language=es").detect_language, among);
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
        which in 0..ALL.len(),
        value in prop_oneof![any::<String>(), "[0-9.eE+-]{0,12}", "(true|false|v2|[a-z]{1,8}(:[a-z]{0,8})?)"],
    ) {
        let pair = form_urlencoded::Serializer::new(String::new()).append_pair(ALL[which].0, &value).finish();
        let first = Parameters::parse(&pair);
        prop_assert_eq!(&first, &Parameters::parse(&pair));
        if let Err(error) = first {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// The order of parameters means nothing.
    #[test]
    fn order_means_nothing(order in Just(ALL.to_vec()).prop_shuffle()) {
        let query = |pairs: &[(&str, &str)]| {
            let mut query = form_urlencoded::Serializer::new(String::new());
            query.extend_pairs(pairs.iter().filter(|(name, _)| *name != "lang"));
            query.finish()
        };
        let mut shuffled = parse(&query(&order));
        let mut straight = parse(&query(ALL));
        shuffled.intelligence.sort_unstable();
        straight.intelligence.sort_unstable();
        prop_assert_eq!(shuffled, straight);
    }
}
