//! The engine's own overhead, with a model that does nothing: for each window, and for each step while a
//! thousand windows wait.
//!
//! `cargo bench --bench scheduler`

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{FutureExt as _, stream};
use verbatim::audio::Pcm;
use verbatim::engine::{
    Attempt, AudioPermit, Class, Config, DecodingOptions, EncodeRequest, Engine, Error, Hypothesis,
    LanguageChoice, ModelInfo, SlotId, SpeechModel, StepOutcome, TenantId, Window,
};
use verbatim::transcript::DetectedLanguage;

const SLOTS: usize = 16;
const QUEUED: usize = 1000;

/// Ends each window with its first step; or, with `steps`, runs so many with all slots in use, tells how long
/// they took, and ends all.
struct Nothing {
    info: ModelInfo,
    steps: Option<Steps>,
}

struct Steps {
    /// Encoding waits here until all windows are queued.
    gate: Receiver<()>,
    count: u64,
    begun: Option<Instant>,
    took: SyncSender<Duration>,
}

impl SpeechModel for Nothing {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn encode(&mut self, _: &[EncodeRequest]) -> Result<(), Error> {
        if let Some(steps) = &self.steps {
            // Closed after the first message: then it is open.
            let _ = steps.gate.recv();
        }
        Ok(())
    }

    fn begin(&mut self, _: &[Attempt]) -> Result<(), Error> {
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        let outcome = match &mut self.steps {
            Some(steps) if steps.count > 0 => {
                if slots.len() == SLOTS {
                    steps.count -= 1;
                    let begun = *steps.begun.get_or_insert_with(Instant::now);
                    if steps.count == 0 {
                        let _ = steps.took.try_send(begun.elapsed());
                    }
                }
                StepOutcome::Running
            }
            _ => StepOutcome::Finished,
        };
        Ok(vec![outcome; slots.len()])
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let nothing = Hypothesis {
            segments: Vec::new(),
            language: DetectedLanguage { code: "en".into(), probability: 1.0 },
            average_log_probability: 0.0,
            no_speech_probability: 0.0,
            compression_ratio: 1.0,
            consumed_samples: 1,
            tokens: Vec::new(),
            ranges: Vec::new(),
            ends_in_silence: true,
        };
        Ok(vec![nothing; slots.len()])
    }

    fn release(&mut self, _: SlotId) {}
}

fn engine(steps: Option<Steps>) -> Engine {
    let info = ModelInfo {
        name: "nothing".into(),
        uuid: uuid::Uuid::nil(),
        languages: vec!["en".into()],
        slots: SLOTS,
        encode_batch: SLOTS,
        device: "none".into(),
        prompt_tokens: verbatim::engine::TokenCount::default(),
    };
    let model = Nothing { info, steps };
    let load = move || Ok::<Box<dyn SpeechModel>, Infallible>(Box::new(model));
    Engine::start(&Config::unbounded(), load).expect("it loads")
}

/// Windows of ten tenants in turn.
fn window(pcm: &Pcm, number: u64) -> Window {
    Window {
        pcm: pcm.clone(),
        options: DecodingOptions {
            language: LanguageChoice::Named("en".into()),
            ..DecodingOptions::default()
        },
        class: Class::Interactive,
        tenant: TenantId(number % 10),
        deadline: None,
    }
}

async fn recognize(engine: &Engine, admission: &AudioPermit, window: Window) {
    engine.recognize(admission, window).await.expect("recognised");
}

fn scheduler(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let pcm = Pcm::new(vec![0.0; 16_000]);
    let mut group = criterion.benchmark_group("scheduler");
    group.bench_function("window, 1000 queued", |bencher| {
        let engine = engine(None);
        let admission = engine.admit(TenantId::default(), 1.0).expect("no bound");
        bencher.iter_custom(|count| {
            let begun = Instant::now();
            let windows = stream::iter(0..count)
                .map(|number| recognize(&engine, &admission, window(&pcm, number)))
                .buffer_unordered(QUEUED)
                .for_each(|()| std::future::ready(()));
            runtime.block_on(windows);
            begun.elapsed()
        });
    });
    group.bench_function("step of 16 slots, 1000 queued", |bencher| {
        bencher.iter_custom(|count| {
            let ((open, gate), (took, measured)) = (mpsc::channel(), mpsc::sync_channel(1));
            let engine = engine(Some(Steps { gate, count, begun: None, took }));
            let admission = engine.admit(TenantId::default(), 1.0).expect("no bound");
            let mut windows: FuturesUnordered<_> = (0..(SLOTS + QUEUED) as u64)
                .map(|number| recognize(&engine, &admission, window(&pcm, number)))
                .collect();
            // Polled once, all are handed over; none is done before the gate opens.
            assert!(windows.next().now_or_never().is_none());
            drop(open);
            measured.recv().expect("the engine runs")
        });
    });
    group.finish();
}

criterion_group!(benches, scheduler);
criterion_main!(benches);
