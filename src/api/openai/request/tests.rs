use serde_json::json;

use super::*;

const MANY: &[&str] = &["en", "es", "zh", "de"];

fn model(languages: &[&str]) -> ModelInfo {
    ModelInfo {
        name: "m".into(),
        uuid: uuid::Uuid::nil(),
        languages: languages.iter().map(|language| (*language).to_owned()).collect(),
        slots: 1,
        encode_batch: 1,
        device: String::new(),
        prompt_tokens: Default::default(),
    }
}

fn fields(given: &[(&str, &str)]) -> Vec<Field> {
    let field = |(name, value): &(&str, &str)| {
        let (name, key) = name.split_once('[').unwrap_or((name, "]"));
        let (name, key) = (name.to_owned(), key.trim_end_matches(']').to_owned());
        Field { name, key, value: (*value).to_owned() }
    };
    given.iter().map(field).collect()
}

fn parse(given: &[(&str, &str)]) -> Asked {
    Asked::parse(fields(given), Task::Transcribe, &model(MANY)).expect("valid")
}

/// The parameter at fault.
fn refused(given: &[(&str, &str)]) -> String {
    let failure = Asked::parse(fields(given), Task::Transcribe, &model(MANY)).expect_err("not valid");
    assert_eq!(failure.status(), 400);
    let body = failure.own_body().expect("a body");
    body["error"]["param"].as_str().expect("a parameter").to_owned()
}

#[test]
fn without_fields_a_file_is_transcribed_as_json() {
    let asked = parse(&[]);
    assert_eq!(asked.format, ResponseFormat::Json);
    assert_eq!(asked.language, LanguageChoice::Detect { among: Vec::new(), expected: None });
    assert!(!asked.streams && !asked.log_probabilities && asked.prompt.is_none());
    let empty = parse(&[("language", ""), ("prompt", " "), ("response_format", "")]);
    assert_eq!((empty.language, empty.prompt), (asked.language, None));
}

#[test]
fn lists_come_with_and_without_brackets() {
    for name in ["timestamp_granularities[]", "timestamp_granularities", "timestamp_granularities[0]"] {
        let given = [("response_format", "verbose_json"), (name, "word")];
        assert_eq!(
            {
                let asked = parse(&given);
                [asked.words, asked.segments]
            },
            [true, false],
            "{name}"
        );
        let both = [given[0], given[1], (name, "segment")];
        assert_eq!(
            {
                let asked = parse(&both);
                [asked.words, asked.segments]
            },
            [true, true],
            "{name}"
        );
    }
    let asked = parse(&[("response_format", "verbose_json")]);
    assert_eq!([asked.words, asked.segments], [false, true]);
    assert!(parse(&[("include[]", "logprobs")]).log_probabilities);
    let keywords = parse(&[("keywords[]", "Verbatim"), ("keywords[]", " Ada ")]).keywords;
    assert_eq!(keywords.iter().map(|term| term.text.as_str()).collect::<Vec<_>>(), ["Verbatim", "Ada"]);
}

#[test]
fn languages_are_codes_tags_or_names() {
    for tag in ["es", "es-419", "ES", "spanish", "Spanish"] {
        assert_eq!(parse(&[("language", tag)]).language, LanguageChoice::Named("es".into()), "{tag}");
    }
    let among = parse(&[("languages[]", "es"), ("languages[]", "de")]).language;
    assert_eq!(among, LanguageChoice::Detect { among: vec!["es".into(), "de".into()], expected: None });
    assert_eq!(parse(&[("languages", "es")]).language, LanguageChoice::Named("es".into()));
    for tag in ["xx", "french", "klingon", "e", "en/us", "*"] {
        assert_eq!(refused(&[("language", tag)]), "language", "{tag}");
    }
    assert_eq!(refused(&[("languages[]", "xx")]), "languages");
}

#[test]
fn what_makes_no_sense_names_its_parameter() {
    for (name, value) in [
        ("response_format", "xml"),
        ("temperature", "2"),
        ("temperature", "NaN"),
        ("temperature", "warm"),
        ("stream", "perhaps"),
        ("include", "everything"),
        ("timestamp_granularities", "minute"),
        ("chunking_strategy", "manual"),
        ("chunking_strategy", "{\"type\":\"server_vad\",\"threshold\":\"loud\"}"),
        ("chunking_strategy[threshold]", "0.5"),
    ] {
        let expected = name.split('[').next().unwrap();
        assert_eq!(refused(&[(name, value)]), expected, "{name}={value}");
    }
    assert_eq!(refused(&[("model", "a"), ("model", "b")]), "model");
    assert_eq!(refused(&[("stream", "true"), ("response_format", "srt")]), "stream");
    let captions = [("timestamp_granularities[]", "segment"), ("response_format", "srt")];
    assert_eq!(refused(&captions), "timestamp_granularities");
    assert_eq!(refused(&[("include[]", "logprobs"), ("response_format", "text")]), "include");
    assert_eq!(refused(&[("known_speaker_names[]", "a")]), "known_speaker_names");
}

#[test]
fn granularities_of_plain_json_get_a_warning() {
    let asked = parse(&[("timestamp_granularities[]", "segment")]);
    assert!(!asked.words && asked.warnings.len() == 1, "{:?}", asked.warnings);
}

#[test]
fn tokens_of_the_prompt_are_counted() {
    assert_eq!(parse(&[("prompt", "Jane Austen, 1811")]).prompt_tokens, 3);
    assert_eq!(parse(&[]).prompt_tokens, 0);
}

#[test]
fn settings_of_speech_detection_get_a_warning() {
    assert!(parse(&[("chunking_strategy", "auto")]).warnings.is_empty());
    assert!(parse(&[("chunking_strategy", "{\"type\":\"server_vad\"}")]).warnings.is_empty());
    let object = json!({"type": "server_vad", "threshold": 0.4, "prefix_padding_ms": 300}).to_string();
    assert_eq!(parse(&[("chunking_strategy", &object)]).warnings.len(), 2);
    let fields = [("chunking_strategy[type]", "server_vad"), ("chunking_strategy[threshold]", "0.4")];
    assert_eq!(parse(&fields).warnings.len(), 1);
}

#[test]
fn translations_have_no_speakers() {
    let given = fields(&[("response_format", "diarized_json")]);
    assert!(Asked::parse(given, Task::Translate, &model(MANY)).is_err());
}
