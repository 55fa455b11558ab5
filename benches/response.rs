//! The cost of an answer after the model is done: ten minutes of speech with words, from transcript to
//! bytes of JSON.

use std::hint::black_box;
use std::time::SystemTime;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use verbatim::api::Parameters;
use verbatim::api::answer::{Asked, Heard, response};
use verbatim::engine::ModelInfo;
use verbatim::transcript::{DetectedLanguage, Segment, Transcript, Word};

/// About 150 words a minute, in segments of 15.
fn ten_minutes() -> Transcript {
    let word = |index: usize| Word {
        text: format!(" word{},", index % 1000),
        start: index as f64 * 0.4,
        end: index as f64 * 0.4 + 0.32,
        probability: 0.5 + (index % 500) as f32 / 1000.0,
        speaker: None,
    };
    let segment = |first: usize| {
        let words: Vec<_> = (first..first + 15).map(word).collect();
        Segment { text: words.iter().map(|word| word.text.as_str()).collect(), words, ..Segment::default() }
    };
    Transcript {
        segments: (0..1500).step_by(15).map(segment).collect(),
        language: DetectedLanguage { code: "en".into(), probability: 1.0 },
        duration: 600.0,
        languages: Vec::new(),
        voice_without_words: 0.0,
    }
}

fn answer(criterion: &mut Criterion) {
    let parameters = Parameters::parse("punctuate=true").expect("a query");
    let model = ModelInfo {
        name: "base".into(),
        uuid: uuid::Uuid::nil(),
        languages: vec!["en".into()],
        slots: 1,
        encode_batch: 1,
        device: String::new(),
        prompt_tokens: verbatim::engine::TokenCount::default(),
    };
    let transcripts = [ten_minutes()];
    let asked = Asked {
        request_id: uuid::Uuid::nil(),
        created: SystemTime::UNIX_EPOCH,
        parameters: &parameters,
        words: true,
    };
    let heard = Heard {
        sha256: [0; 32],
        duration_seconds: 600.0,
        source_channels: 1,
        damaged: false,
        transcripts: &transcripts,
        names: &[],
        model: &model,
    };
    let built = response(&asked, &heard);
    let bytes = serde_json::to_vec(&built).expect("JSON").len();

    let mut group = criterion.benchmark_group("response_of_ten_minutes");
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("build", |bencher| bencher.iter(|| response(black_box(&asked), black_box(&heard))));
    group.bench_function("write", |bencher| bencher.iter(|| serde_json::to_vec(black_box(&built))));
    group.finish();
}

criterion_group!(benches, answer);
criterion_main!(benches);
