//! Real speech through real weights: in every container, with silence, and at length.
//!
//! `./setup` fetches the speech and the weights, and makes the encoded copies.

use std::path::PathBuf;
use std::sync::OnceLock;

use verbatim::audio::{self, DecodeOptions, Pcm};
use verbatim::engine::{Config as EngineConfig, Engine, LanguageChoice, Term};
use verbatim::models::{self, ComputeType, Config, DeviceChoice};
use verbatim::transcribe::{TranscribeOptions, Transcriber};
use verbatim::transcript::Transcript;
use verbatim::vad::{Vad, VadOptions};

pub fn cache(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim").join(name);
    assert!(path.exists(), "{} is not there: run ./setup", path.display());
    path
}

pub fn engine(model: &'static str, compute_type: ComputeType) -> Engine {
    let config =
        Config { device: DeviceChoice::Cpu, compute_type, threads: 2, slots: 8, ..Config::default() };
    let load = move || models::load(&cache(model), &config);
    // Tests run side by side on one engine: however slow the machine, none is refused.
    let admission =
        EngineConfig { max_wait_seconds: 3600.0, stall_seconds: 3600.0, ..EngineConfig::default() };
    Engine::start(&admission, load).expect("the model loads")
}

/// With the types that suit this processor; one for all tests.
pub fn transcriber() -> Transcriber {
    static TRANSCRIBER: OnceLock<Transcriber> = OnceLock::new();
    let start = || {
        let vad = Vad::load(&cache("models/silero-vad")).expect("the model loads");
        Transcriber::with_vad(engine("models/base", ComputeType::Auto), vad, VadOptions::default())
    };
    TRANSCRIBER.get_or_init(start).clone()
}

pub fn options() -> TranscribeOptions {
    TranscribeOptions::new(LanguageChoice::Detect { among: Vec::new(), expected: None })
}

/// The first channel of a recording.
pub fn read(path: &str) -> Pcm {
    let bytes = std::fs::read(cache(path)).expect("readable");
    let options = DecodeOptions { raw: None, split_channels: false, limits: audio::Limits::default() };
    audio::decode(bytes.into(), &options).expect(path).channels[0].pcm(..)
}

/// Each passage of the novel with its words.
pub fn passages() -> Vec<(Pcm, String)> {
    let manifest = std::fs::read_to_string(cache("speech/manifest.jsonl")).expect("readable");
    let row = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let text = |name: &str| row[name].as_str().expect("a text").to_owned();
        let (file, said) = (text("file"), text("text"));
        file.starts_with("austen_").then(|| (read(&format!("speech/{file}")), said))
    };
    manifest.lines().filter_map(row).collect()
}

/// Lower case, bare words; `mr.` as it is spoken.
pub fn words(text: &str) -> Vec<String> {
    let bare = |c: char| if c.is_alphanumeric() || c == '\'' { c.to_ascii_lowercase() } else { ' ' };
    let text: String = text.chars().map(bare).collect();
    text.split_whitespace().map(|word| if word == "mr" { "mister".into() } else { word.to_owned() }).collect()
}

/// Substitutions, insertions and deletions between two texts (Levenshtein, over words).
pub fn word_errors(said: &str, heard: &str) -> usize {
    let (said, heard) = (words(said), words(heard));
    let mut row: Vec<usize> = (0..=heard.len()).collect();
    for (i, word) in said.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in heard.iter().enumerate() {
            let substituted = diagonal + usize::from(word != other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[heard.len()]
}

pub async fn transcribe(transcriber: &Transcriber, pcm: Pcm) -> Transcript {
    transcriber.transcribe(pcm, &options()).await.expect("transcribed")
}

#[tokio::test]
async fn passages_of_a_novel_are_heard_in_every_number_type() {
    let transcribers = [
        transcriber(),
        Transcriber::new(engine("models/base", ComputeType::F32)),
        Transcriber::new(engine("models/base", ComputeType::Bf16)),
    ];
    for transcriber in transcribers {
        let device = &transcriber.model().device;
        let (mut errors, mut total) = (0, 0);
        for (pcm, said) in passages() {
            let transcript = transcribe(&transcriber, pcm).await;
            assert_eq!(transcript.language.code, "en", "{device}");
            assert!(transcript.confidence() > 0.8, "{device}: {}", transcript.confidence());
            errors += word_errors(&said, &transcript.text());
            total += words(&said).len();
        }
        // 66 words, clearly read: one slip is allowed for.
        assert!(errors <= 1, "{device}: {errors} errors in {total} words");
    }
}

#[tokio::test]
async fn a_term_that_is_expected_is_heard_and_one_that_is_not_said_changes_nothing() {
    let transcriber = transcriber();
    let hear = async |file: &str, language: &str, terms: &[&str]| {
        let term = |text: &&str| Term { text: (*text).to_owned(), weight: 1.0 };
        let language = LanguageChoice::Named(language.to_owned());
        let options = TranscribeOptions { language, bias: terms.iter().map(term).collect(), ..options() };
        transcriber.transcribe(read(file), &options).await.expect("transcribed").text()
    };
    let fox = "speech/pt_pangrama.wav";
    let misheard = hear(fox, "pt", &[]).await;
    assert!(!words(&misheard).contains(&"marrom".to_owned()), "{misheard}");
    let heard = hear(fox, "pt", &["marrom"]).await;
    assert!(words(&heard).contains(&"marrom".to_owned()), "{heard}");
    assert_eq!(
        word_errors("A rápida raposa marrom salta sobre o cachorro preguiçoso.", &heard),
        0,
        "{heard}"
    );
    for (file, language) in [(fox, "pt"), ("speech/austen_0870.wav", "en")] {
        let unrelated = hear(file, language, &["Zarathustra", "Nuzhat al-Zaman", "Okafor"]).await;
        assert_eq!(unrelated, hear(file, language, &[]).await, "{file}");
    }
}

/// Terms help to transcribe what was said, and write nothing else, whatever their weight: each of these weights once made
/// one word of all.
#[tokio::test]
async fn a_term_changes_no_other_word_at_any_weight() {
    let transcriber = transcriber();
    let hear = async |pcm: &Pcm, terms: Vec<Term>| {
        let language = LanguageChoice::Named("en".to_owned());
        let options = TranscribeOptions { language, bias: terms.into(), ..options() };
        words(&transcriber.transcribe(pcm.clone(), &options).await.expect("transcribed").text())
    };
    let without_word = |words: &[String], left_out: &str| {
        words.iter().filter(|word| *word != left_out).cloned().collect::<Vec<_>>()
    };
    let clips = ["jfk.wav", "austen_0870.wav", "austen_0890.wav", "en_quick_brown_fox.wav"];
    for (number, clip) in clips.into_iter().enumerate() {
        let pcm = read(&format!("speech/{clip}"));
        let said = hear(&pcm, Vec::new()).await;
        assert!(said.len() > 5, "{clip}: {said:?}");
        // Words of this clip and of another, the first of each and one from its middle.
        let absent = ["banana", "temperature", "fellow", "selfish"][number];
        for term in [said[0].as_str(), &said[said.len() / 2], absent] {
            let term = |weight| vec![Term { text: term.to_owned(), weight }];
            for weight in [0.5, 1.0, 2.0, 5.0, 10.0] {
                assert_eq!(hear(&pcm, term(weight)).await, said, "{clip}: {:?}", term(weight));
            }
            for weight in [-1.0, -10.0] {
                let heard = hear(&pcm, term(weight)).await;
                let text = &term(weight)[0].text;
                // Another word may stand in the place of each that is unwanted.
                let places = said.iter().filter(|word| *word == text).count();
                let kept = without_word(&said, text).join(" ");
                let errors = word_errors(&kept, &without_word(&heard, text).join(" "));
                assert!(errors <= places, "{clip}: {:?}: {heard:?}", term(weight));
            }
        }
        let hundred =
            (0..100).map(|n| Term { text: SOME_NAMES[n % SOME_NAMES.len()].repeat(1 + n / 20), weight: 1.0 });
        assert_eq!(hear(&pcm, hundred.collect()).await, said, "{clip}: a hundred terms");
    }
}

const SOME_NAMES: [&str; 20] = [
    "Okafor",
    "Nguyen",
    "Zarathustra",
    "Krieger",
    "Helstone",
    "Ljubljana",
    "Siobhan",
    "Xanadu",
    "Metoprolol",
    "Lisinopril",
    "Kubernetes",
    "Postgres",
    "Wojciech",
    "Reykjavik",
    "Quetzalcoatl",
    "Beaumont",
    "Tchaikovsky",
    "Oyelaran",
    "Systrom",
    "Anaphylaxis",
];

#[tokio::test]
async fn every_container_says_the_same() {
    let transcriber = transcriber();
    let expected = words(&transcribe(&transcriber, read("fixtures/pcm16.wav")).await.text());
    assert!(expected.len() > 15);
    let mut containers = 0;
    for entry in std::fs::read_dir(cache("fixtures")).expect("readable") {
        let name = entry.expect("readable").file_name().into_string().expect("plain names");
        if name.starts_with('.') || !name.contains('.') {
            continue;
        }
        let transcript = transcribe(&transcriber, read(&format!("fixtures/{name}"))).await;
        assert_eq!(words(&transcript.text()), expected, "{name}");
        containers += 1;
    }
    assert!(containers >= 15, "only {containers} fixtures");
}

#[tokio::test]
async fn nothing_is_written_over_silence_and_noise() {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 24) as f32 - 0.5
    };
    for amplitude in [0.0, 0.001, 0.05, 0.3] {
        let samples: Vec<f32> = (0..60 * 16_000).map(|_| noise() * amplitude).collect();
        let transcript = transcribe(&transcriber(), Pcm::new(samples)).await;
        assert_eq!(transcript.text(), "", "noise of {amplitude}");
        assert_eq!(transcript.duration, 60.0);
    }
}

#[tokio::test]
async fn nine_minutes_come_back_whole_and_in_time() {
    let passages = passages();
    let mut samples: Vec<f32> = Vec::new();
    let mut said = String::new();
    let mut last_start = 0.0;
    while samples.len() < 540 * 16_000 {
        for (pcm, text) in &passages {
            last_start = samples.len() as f64 / 16_000.0;
            samples.extend(pcm.samples());
            samples.extend([0.0; 8_000]);
            said.push_str(text);
            said.push(' ');
        }
    }
    let alone = transcribe(&transcriber(), passages[passages.len() - 1].0.clone()).await;
    let whole = transcribe(&transcriber(), Pcm::new(samples)).await;
    let (errors, total) = (word_errors(&said, &whole.text()), words(&said).len());
    assert!(errors * 100 <= total * 3, "{errors} errors in {total} words: {}", whole.text());
    let times: Vec<f64> = whole.words().flat_map(|word| [word.start, word.end]).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "word times go back");
    // The last word of the last passage has the time that it has when the passage is transcribed alone.
    let end = |transcript: &Transcript| transcript.words().last().map(|word| word.end).expect("words");
    let drift = end(&whole) - last_start - end(&alone);
    assert!(drift.abs() <= 0.1, "the last word is {drift:.3} s off");
}
