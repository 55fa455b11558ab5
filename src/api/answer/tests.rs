use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::transcript::{DetectedLanguage, Segment};

fn model() -> ModelInfo {
    ModelInfo {
        name: "base".into(),
        uuid: Uuid::from_u128(7),
        languages: vec!["en".into(), "es".into()],
        slots: 1,
        encode_batch: 1,
        device: String::new(),
        prompt_tokens: Default::default(),
    }
}

fn transcript(words: &[&str]) -> Transcript {
    let word = |(index, text): (usize, &&str)| crate::transcript::Word {
        text: (*text).to_owned(),
        start: index as f64 * 0.1 + 0.2,
        end: index as f64 * 0.1 + 0.3,
        probability: 0.9,
        speaker: None,
    };
    let segment = Segment {
        text: words.concat(),
        words: words.iter().enumerate().map(word).collect(),
        ..Segment::default()
    };
    Transcript {
        segments: vec![segment],
        language: DetectedLanguage { code: "en".into(), probability: 0.75 },
        duration: 2.0,
        languages: Vec::new(),
        voice_without_words: 0.0,
    }
}

fn answer(query: &str, words: bool, transcripts: &[Transcript]) -> serde_json::Value {
    answer_with_names(query, words, transcripts, &[])
}

/// `names`: those of each channel's speakers.
fn answer_with_names(
    query: &str,
    words: bool,
    transcripts: &[Transcript],
    names: &[Vec<Option<Identified>>],
) -> serde_json::Value {
    let parameters = Parameters::parse(query).unwrap();
    let asked = Asked {
        request_id: Uuid::from_u128(1),
        created: UNIX_EPOCH + Duration::from_millis(1_707_249_376_180),
        parameters: &parameters,
        words,
    };
    let heard = Heard {
        sha256: [0xab; 32],
        duration_seconds: 25.933_312_51,
        source_channels: 2,
        damaged: false,
        transcripts,
        names,
        model: &model(),
    };
    serde_json::to_value(response(&asked, &heard)).unwrap()
}

fn alternative(query: &str, words: bool, spoken: &[&str]) -> serde_json::Value {
    answer(query, words, &[transcript(spoken)])["results"]["channels"][0]["alternatives"][0].clone()
}

#[test]
fn the_response_has_the_fields_of_the_wire_format() {
    let answer = answer("", true, &[transcript(&[" Hello,", " world."])]);
    let expected = serde_json::json!({
        "metadata": {
            "transaction_key": "deprecated",
            "request_id": "00000000-0000-0000-0000-000000000001",
            "sha256": "ab".repeat(32),
            "created": "2024-02-06T19:56:16.180Z",
            "duration": 25.933313,
            "channels": 2,
            "models": ["00000000-0000-0000-0000-000000000007"],
            "model_info": {
                "00000000-0000-0000-0000-000000000007":
                    {"name": "base", "version": env!("CARGO_PKG_VERSION"), "arch": "whisper"}
            },
        },
        "results": {"channels": [{"alternatives": [{
            "transcript": "Hello, world.",
            "confidence": 0.9,
            "words": [
                {"word": "hello", "start": 0.2, "end": 0.3, "confidence": 0.9},
                {"word": "world", "start": 0.3, "end": 0.4, "confidence": 0.9},
            ],
        }]}]},
    });
    assert_eq!(answer, expected);
}

#[test]
fn words_are_absent_unless_asked_for() {
    assert!(alternative("", false, &[" Hello."]).get("words").is_none());
    assert_eq!(alternative("", true, &[])["words"], serde_json::json!([]));
}

#[test]
fn silence_is_an_empty_transcript() {
    let silence = alternative("", true, &[]);
    assert_eq!(silence, serde_json::json!({"transcript": "", "confidence": 0.0, "words": []}));
}

#[test]
fn punctuated_words_come_with_punctuation() {
    for query in
        ["punctuate=true", "smart_format=true", "paragraphs=true", "punctuate=false&smart_format=true"]
    {
        let alternative = alternative(query, true, &[" Hello,", " world."]);
        assert_eq!(alternative["words"][0]["word"], "hello", "{query}");
        assert_eq!(alternative["words"][0]["punctuated_word"], "Hello,", "{query}");
        assert_eq!(alternative["transcript"], "Hello, world.", "{query}");
    }
    let without = alternative("punctuate=false", true, &[" Hello,", " world.", " —"]);
    assert!(without["words"][0].get("punctuated_word").is_none());
    assert_eq!(without["transcript"], "hello world —");
    assert_eq!(alternative("punctuate=false", false, &["你好", "，世界。"])["transcript"], "你好世界");
}

#[test]
fn words_are_bare() {
    for (written, bare_word) in [
        (" Hello,", "hello"),
        (" “Don't!”", "don't"),
        (" (e.g.", "e.g"),
        (" $5.50,", "$5.50"),
        (" 50%.", "50%"),
        (" C++", "c++"),
        (" well-known…", "well-known"),
        (" ¿Qué?", "qué"),
        (" ÉCOLE", "école"),
        ("。世界」", "世界"),
        (" -", "-"),
    ] {
        assert_eq!(alternative("", true, &[written])["words"][0]["word"], bare_word, "{written:?}");
    }
    assert_eq!(alternative("", true, &[""])["words"], serde_json::json!([]));
}

#[test]
fn pieces_of_a_number_are_one_word() {
    let alternative = alternative("", true, &[" Pi", " is", " 3", ".14"]);
    assert_eq!(alternative["transcript"], "Pi is 3.14");
    assert_eq!(
        alternative["words"][2],
        serde_json::json!({"word": "3.14", "start": 0.4, "end": 0.6, "confidence": 0.9})
    );
}

#[test]
fn a_merged_word_has_its_words_time() {
    let alternative =
        alternative("smart_format=true", true, &[" It", " costs", " fifty", " five", " dollars."]);
    assert_eq!(alternative["transcript"], "It costs $55.");
    assert_eq!(
        alternative["words"][2],
        serde_json::json!({"word": "$55", "punctuated_word": "$55.", "start": 0.4, "end": 0.7, "confidence": 0.9})
    );
    assert_eq!(alternative["paragraphs"]["transcript"], "\nIt costs $55.");
}

#[test]
fn paragraphs_have_sentences() {
    let spoken = [" One.", " Two", " words.", " Three.", " Four.", " Five.", " Six."];
    let paragraphs = &alternative("paragraphs=true", true, &spoken)["paragraphs"];
    assert_eq!(paragraphs["transcript"], "\nOne. Two words. Three. Four. Five.\n\nSix.");
    assert_eq!(
        paragraphs["paragraphs"][1],
        serde_json::json!({"sentences": [{"text": "Six.", "start": 0.8, "end": 0.9}],
                           "num_words": 1, "start": 0.8, "end": 0.9})
    );
    assert_eq!(paragraphs["paragraphs"][0]["num_words"], 6);
    assert!(alternative("", true, &spoken).get("paragraphs").is_none());
    let silence = serde_json::json!({"transcript": "", "paragraphs": []});
    assert_eq!(alternative("paragraphs=true", true, &[])["paragraphs"], silence);
}

#[test]
fn utterances_of_all_channels_are_in_order_of_time() {
    let mut left = transcript(&[" Hello", " there.", " Bye."]);
    left.segments[0].words[2].start = 3.0;
    left.segments[0].words[2].end = 3.5;
    let right = transcript(&[" Hi."]);
    let query = "utterances=true&punctuate=false&multichannel=true";
    let results = answer(query, false, &[left.clone(), right.clone()])["results"].clone();
    let utterances = results["utterances"].as_array().unwrap();
    let told: Vec<_> = utterances
        .iter()
        .map(|u| {
            (u["channel"].as_u64().unwrap(), u["transcript"].as_str().unwrap(), u["start"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(told, [(0, "hello there", 0.2), (1, "hi", 0.2), (0, "bye", 3.0)]);
    assert_eq!(utterances[0]["words"][1]["word"], "there");
    assert_eq!((&utterances[0]["end"], &utterances[0]["confidence"]), (&0.4.into(), &0.9.into()));
    let ids: std::collections::HashSet<_> = utterances.iter().map(|u| u["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(answer(query, false, &[left.clone(), right])["results"], results);
    let merged = answer("utterances=true&utt_split=5", false, &[left]);
    assert_eq!(merged["results"]["utterances"].as_array().unwrap().len(), 1);
}

#[test]
fn searches_are_answered_by_channel() {
    let spoken = [" Oh", " shit,", " a", " pistemology."];
    let channel =
        answer("search=epistemology&search=xyz&profanity_filter=true", false, &[transcript(&spoken)]);
    let search = &channel["results"]["channels"][0]["search"];
    assert_eq!(
        (&search[0]["query"], &search[1]),
        (&"epistemology".into(), &serde_json::json!({"query": "xyz", "hits": []}))
    );
    assert_eq!(search[0]["hits"][0]["snippet"], "a pistemology");
    assert_eq!(search[0]["hits"][0]["start"], 0.4);
    let masked = answer("search=shit&profanity_filter=true", false, &[transcript(&spoken)]);
    assert!(!masked["results"]["channels"][0]["search"][0]["hits"].to_string().contains("shit"));
}

#[test]
fn several_languages_are_told_word_by_word() {
    let alternative = alternative("language=multi", true, &[" Hello"]);
    assert_eq!(alternative["languages"], serde_json::json!(["en"]));
    assert_eq!(alternative["words"][0]["language"], "en");
}

#[test]
fn a_language_that_was_detected_is_told_where_that_was_asked() {
    for query in ["detect_language=true", "language=multi", "detect_language=en&detect_language=es"] {
        let answer = answer(query, false, &[transcript(&[" a"])]);
        assert_eq!(answer["results"]["channels"][0]["detected_language"], "en", "{query}");
        assert_eq!(answer["results"]["channels"][0]["language_confidence"], 0.75, "{query}");
    }
    let named = answer("language=en", false, &[transcript(&[" a"])]);
    assert!(named["results"]["channels"][0].get("detected_language").is_none());
}

#[test]
fn each_channel_has_its_entry() {
    let answer = answer("multichannel=true", false, &[transcript(&[" Left."]), transcript(&[" Right."])]);
    assert_eq!(answer["results"]["channels"].as_array().unwrap().len(), 2);
    assert_eq!(answer["results"]["channels"][1]["alternatives"][0]["transcript"], "Right.");
}

#[test]
fn what_had_no_effect_is_warned_of() {
    let metadata = &answer("summarize=true&model=nova-3&tag=t&extra=k:v", false, &[])["metadata"];
    assert_eq!(metadata["tags"], serde_json::json!(["t"]));
    assert_eq!(metadata["extra"], serde_json::json!({"k": "v"}));
    assert_eq!(
        metadata["warnings"],
        serde_json::json!([
            {"parameter": "summarize", "type": "unsupported_parameter",
             "message": "`summarize` is not supported and had no effect."},
            {"parameter": "model", "type": "unsupported_model",
             "message": "The model asked for is not served here; `base` was used."},
        ])
    );
    let mut spanish = transcript(&[" diez"]);
    spanish.language.code = "es".into();
    let query = "numerals=true&smart_format=true&keywords=a:0";
    let warnings = &answer(query, false, &[spanish])["metadata"]["warnings"];
    let told = |index: usize| (warnings[index]["parameter"].as_str(), warnings[index]["type"].as_str());
    assert_eq!(told(0), (Some("numerals"), Some("unsupported_language")));
    assert_eq!(told(1), (Some("keywords"), Some("partly_used")));
    assert_eq!(warnings.as_array().unwrap().len(), 2);
    assert!(answer("numerals=true", false, &[transcript(&[" ten"])])["metadata"].get("warnings").is_none());
}

/// `turns`: the speaker of each of their words, and the words.
fn conversation(turns: &[(usize, &[&str])]) -> Transcript {
    let words: Vec<&str> = turns.iter().flat_map(|(_, words)| words.iter().copied()).collect();
    let mut conversation = transcript(&words);
    let speakers = turns.iter().flat_map(|(speaker, words)| words.iter().map(|_| *speaker));
    for (word, index) in conversation.segments.iter_mut().flat_map(|segment| &mut segment.words).zip(speakers)
    {
        word.speaker = Some(crate::transcript::Speaker { index, confidence: 0.75 });
    }
    conversation
}

#[test]
fn speakers_are_named_by_words_utterances_sentences_and_paragraphs() {
    let said = conversation(&[(0, &[" It's", " fifty"]), (1, &[" five", " dollars."]), (0, &[" Right."])]);
    let query = "diarize=true&smart_format=true&utterances=true";
    let answer = answer(query, true, &[said.clone(), said]);
    let info = &answer["metadata"]["diarize_info"];
    assert!(info["model_uuid"].is_string() && info["arch"].is_string(), "{info}");
    for channel in answer["results"]["channels"].as_array().unwrap() {
        let alternative = &channel["alternatives"][0];
        let words: Vec<(&str, u64)> = alternative["words"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| (word["punctuated_word"].as_str().unwrap(), word["speaker"].as_u64().unwrap()))
            .collect();
        // Not `$55`: two speakers said it.
        assert_eq!(words, [("It's", 0), ("50", 0), ("$5.", 1), ("Right.", 0)]);
        assert!(
            alternative["words"].as_array().unwrap().iter().all(|word| word["speaker_confidence"] == 0.75)
        );
        let paragraphs = &alternative["paragraphs"];
        assert_eq!(paragraphs["transcript"], "\nSpeaker 0: It's 50\n\nSpeaker 1: $5.\n\nSpeaker 0: Right.");
        for (index, speaker) in [0, 1, 0].into_iter().enumerate() {
            let paragraph = &paragraphs["paragraphs"][index];
            assert_eq!(
                (&paragraph["speaker"], &paragraph["sentences"][0]["speaker"]),
                (&speaker.into(), &speaker.into())
            );
        }
    }
    let utterances = answer["results"]["utterances"].as_array().unwrap();
    let of = |utterance: &serde_json::Value| (utterance["channel"].as_u64(), utterance["speaker"].as_u64());
    let mut spoken: Vec<_> = utterances.iter().map(of).collect();
    spoken.sort_unstable();
    let expected = [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (1, 1)];
    assert_eq!(spoken, expected.map(|(channel, speaker)| (Some(channel), Some(speaker))));
}

#[test]
fn names_stand_wherever_numbers_do_and_with_those_who_have_one_alone() {
    let said = conversation(&[(0, &[" It's", " late."]), (1, &[" Right."])]);
    let ada = Identified { name: "Ada".into(), confidence: 0.75 };
    let query = "identify_speakers=true&paragraphs=true&utterances=true";
    let answer = answer_with_names(query, true, &[said], &[vec![None, Some(ada)]]);
    let alternative = &answer["results"]["channels"][0]["alternatives"][0];
    let paragraphs = &alternative["paragraphs"];
    assert_eq!(paragraphs["transcript"], "\nSpeaker 0: It's late.\n\nSpeaker 1: Right.");
    let parts = |speaker: usize| {
        let paragraph = &paragraphs["paragraphs"][speaker];
        let word = &alternative["words"][speaker * 2];
        [paragraph, &paragraph["sentences"][0], word, &answer["results"]["utterances"][speaker]]
    };
    for part in parts(1) {
        assert_eq!((&part["speaker"], &part["speaker_name"]), (&1.into(), &"Ada".into()), "{part}");
        assert_eq!(part["speaker_name_confidence"], 0.75, "{part}");
    }
    for part in parts(0) {
        assert_eq!(part["speaker"], 0, "{part}");
        assert!(
            part.get("speaker_name").is_none() && part.get("speaker_name_confidence").is_none(),
            "{part}"
        );
    }
}

#[test]
fn no_speaker_is_named_unless_they_are_told_apart() {
    let answer = answer("utterances=true&paragraphs=true", true, &[transcript(&[" Hello.", " You."])]);
    assert!(!answer.to_string().contains("speaker"), "{answer}");
    assert!(answer["metadata"].get("diarize_info").is_none());
}
