//! Whisper on small random weights: both layouts, batches, refusals. What it makes of real speech
//! with real weights is in `speech.rs`.

use std::path::Path;
use std::sync::Arc;

use verbatim::audio::Pcm;
use verbatim::engine::{
    Class, Config as EngineConfig, DecodingOptions, Engine, LanguageChoice, Recognition, TenantId, Term,
    Window,
};
use verbatim::models::{self, ComputeType, Config, DeviceChoice};

use crate::checkpoint::Checkpoint;

fn start(folder: &Path, compute_type: ComputeType) -> Engine {
    let config =
        Config { device: DeviceChoice::Cpu, compute_type, threads: 2, slots: 8, ..Config::default() };
    let folder = folder.to_owned();
    let admission =
        EngineConfig { max_wait_seconds: 3600.0, stall_seconds: 3600.0, ..EngineConfig::default() };
    Engine::start(&admission, move || models::load(&folder, &config)).expect("the model loads")
}

/// Tones that wander, different for each seed.
fn tones(seed: u32, seconds: f64) -> Pcm {
    let samples = (0..(seconds * 16_000.0) as u32).map(|n| {
        let t = n as f32 / 16_000.0;
        let hertz = 200.0 + 50.0 * seed as f32 + 100.0 * (t * 1.7).sin();
        (t * hertz * std::f32::consts::TAU).sin() * 0.3 * (t * 3.0).cos()
    });
    Pcm::new(samples.collect::<Vec<_>>())
}

fn window(pcm: Pcm) -> Window {
    Window {
        pcm,
        options: DecodingOptions {
            language: LanguageChoice::Named("en".into()),
            word_times: true,
            temperatures: vec![0.0],
            // Random weights say the same again and again.
            compression_ratio_threshold: None,
            no_speech_threshold: None,
            ..DecodingOptions::default()
        },
        class: Class::Interactive,
        tenant: TenantId(0),
        deadline: None,
    }
}

async fn recognize(engine: &Engine, pcm: Pcm) -> Recognition {
    let admission = engine.admit(TenantId::default(), pcm.duration_seconds()).expect("idle");
    engine.recognize(&admission, window(pcm)).await.expect("recognised")
}

/// Words and times; probabilities may differ in their last bit.
fn said(recognition: &Recognition) -> Vec<(String, f64, f64)> {
    let words = recognition.segments.iter().flat_map(|segment| &segment.words);
    words.map(|word| (word.text.clone(), word.start, word.end)).collect()
}

fn text(recognition: &Recognition) -> String {
    recognition.segments.iter().map(|segment| segment.text.as_str()).collect()
}

#[tokio::test]
async fn both_layouts_of_the_same_weights_say_the_same() {
    let checkpoint = Checkpoint::random(1);
    let (hugging_face, ctranslate2, int8) = (folder(), folder(), folder());
    checkpoint.write_hugging_face(hugging_face.path());
    checkpoint.write_ctranslate2(ctranslate2.path(), false);
    checkpoint.write_ctranslate2(int8.path(), true);
    let mut recognitions = Vec::new();
    for folder in [&hugging_face, &ctranslate2, &int8] {
        let engine = start(folder.path(), ComputeType::F32);
        recognitions.push(recognize(&engine, tones(1, 6.0)).await);
    }
    let [first, second, quantised] = recognitions.try_into().expect("three");
    assert!(text(&first).len() > 20, "{}", text(&first));
    assert_eq!(first.segments, second.segments);
    // Random weights make random text of any small change; that it is read and scaled right shows
    // in how probable the model finds its own words.
    let [a, b] = [&first, &quantised].map(|r| r.segments[0].average_log_probability);
    assert!((a - b).abs() < 0.5, "{a} against {b}");
}

#[tokio::test]
async fn a_window_alone_and_in_a_full_batch_says_the_same() {
    let folder = folder();
    Checkpoint::random(2).write_hugging_face(folder.path());
    for compute_type in [ComputeType::F32, ComputeType::Bf16] {
        let engine = start(folder.path(), compute_type);
        let mut alone = Vec::new();
        for seed in 0..8 {
            alone.push(recognize(&engine, tones(seed, 2.0 + f64::from(seed))).await);
        }
        let together: Vec<_> = (0..8)
            .map(|seed| {
                let engine = engine.clone();
                tokio::spawn(async move { recognize(&engine, tones(seed, 2.0 + f64::from(seed))).await })
            })
            .collect();
        for (alone, together) in alone.iter().zip(together) {
            assert_eq!(said(alone), said(&together.await.expect("no panic")), "{compute_type:?}");
        }
    }
}

#[tokio::test]
async fn terms_of_one_window_do_not_reach_its_batch_mates() {
    let folder = folder();
    Checkpoint::random(2).write_hugging_face(folder.path());
    let engine = start(folder.path(), ComputeType::F32);
    let plain = recognize(&engine, tones(0, 4.0)).await;
    // Unwanted: the letter that it begins with otherwise.
    let letter = text(&plain).trim().chars().take(1).collect();
    let unwanted: Arc<[Term]> = Arc::new([Term { text: letter, weight: -10.0 }]);
    let ask = |seed: u32| {
        let (engine, mut window) = (engine.clone(), window(tones(seed / 2, 4.0)));
        if seed % 2 == 1 {
            window.options.bias = unwanted.clone();
        }
        async move {
            let admission = engine.admit(TenantId::default(), 4.0).expect("room");
            engine.recognize(&admission, window).await.expect("recognised")
        }
    };
    let mut alone = Vec::new();
    for seed in 0..8 {
        alone.push(said(&ask(seed).await));
    }
    assert_ne!(alone[0], alone[1], "terms change what is said");
    let together: Vec<_> = (0..8).map(|seed| tokio::spawn(ask(seed))).collect();
    for (alone, together) in alone.iter().zip(together) {
        assert_eq!(*alone, said(&together.await.expect("no panic")));
    }
}

#[tokio::test]
async fn word_times_are_ordered_and_within_the_window() {
    let folder = folder();
    Checkpoint::random(3).write_hugging_face(folder.path());
    let engine = start(folder.path(), ComputeType::F32);
    let recognition = recognize(&engine, tones(1, 5.0)).await;
    let words: Vec<_> = recognition.segments.iter().flat_map(|segment| &segment.words).collect();
    assert!(!words.is_empty());
    for word in &words {
        assert!(0.0 <= word.start && word.start <= word.end && word.end <= 5.0, "{word:?}");
        assert!((0.0..=1.0).contains(&word.probability), "{word:?}");
    }
    assert!(words.windows(2).all(|pair| pair[0].start <= pair[1].start), "{words:?}");
    assert!(recognition.consumed_samples > 0 && recognition.consumed_samples <= 5 * 16_000);
}

#[test]
fn a_damaged_checkpoint_is_refused_with_its_reason() {
    let config = Config { device: DeviceChoice::Cpu, ..Config::default() };
    let refusal = |folder: &Path| match models::load(folder, &config) {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    };
    let empty = folder();
    assert!(refusal(empty.path()).contains("neither model.safetensors nor model.bin"));

    let cut = folder();
    Checkpoint::random(4).write_ctranslate2(cut.path(), false);
    let model = cut.path().join("model.bin");
    let bytes = std::fs::read(&model).expect("written above");
    for length in [0, 3, 20, 1000, bytes.len() / 2, bytes.len() - 60] {
        std::fs::write(&model, &bytes[..length]).expect("writable");
        assert!(refusal(cut.path()).contains("not those of a Whisper model"), "cut to {length} bytes");
    }

    let mismatched = folder();
    Checkpoint::random(5).write_ctranslate2(mismatched.path(), false);
    let tokenizer = mismatched.path().join("tokenizer.json");
    let text = std::fs::read_to_string(&tokenizer).expect("written above");
    std::fs::write(&tokenizer, text.replace("<|transcribe|>", "<|something|>")).expect("writable");
    assert!(refusal(mismatched.path()).contains("lacks the token <|transcribe|>"));
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}
