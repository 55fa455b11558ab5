//! The thread that owns the model. It speaks several texts at once, window by window: first the one whose listener runs
//! out of sound soonest.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::mpsc::UnboundedSender;

use super::super::error::VoiceError;
use super::super::synthesizer::{Failed, Part};
use super::super::wav::VOICE_RATE;
use super::languages::{Language, Transcriber};
use super::model::{Course, Model, Statistics};
use super::styles::Styles;
use super::symbols::{pieces, symbol};
use crate::onnx;

/// Texts that are spoken at once, and texts that wait.
const JOBS_MAX: usize = 64;
const QUEUE_MAX: usize = 64;
/// How long a text without a listener may wait.
const NO_HURRY: Duration = Duration::from_secs(60);

/// A text to say. What it says is bounded by the text, and so is its channel.
pub struct Order {
    pub text: String,
    pub voice: String,
    pub speed: f32,
    pub is_urgent: bool,
    pub sound: UnboundedSender<Result<Part, Failed>>,
}

/// A handle on the thread, which ends with it.
pub struct Thread(Sender<Order>);

impl Thread {
    /// # Errors
    /// [`VoiceError::Model`].
    pub fn start(models: PathBuf) -> Result<Self, VoiceError> {
        let (orders, queue) = bounded(QUEUE_MAX);
        let serve = move || {
            onnx::step_back();
            let speaker = Speaker {
                models,
                styles: HashMap::new(),
                statistics: HashMap::new(),
                model: None,
                transcribers: HashMap::new(),
            };
            serve(speaker, &queue);
        };
        let thread = std::thread::Builder::new().name("kokoro".into()).spawn(serve);
        thread.map_err(|error| VoiceError::Model(onnx::Error::Thread(error)))?;
        Ok(Self(orders))
    }

    /// Whether there is room for the text.
    pub fn ask(&self, order: Order) -> bool {
        self.0.try_send(order).is_ok()
    }
}

/// A text that is being said.
struct Job {
    order: Order,
    /// When the listener has heard everything that was said.
    due: Instant,
    /// Runs of the model that are yet to begin; none before the text was read.
    runs: Option<VecDeque<Vec<i64>>>,
    course: Option<Course>,
    /// Symbols that were said, of all.
    said: usize,
    all: usize,
    has_sound: bool,
}

impl Job {
    fn new(order: Order) -> Self {
        let due = Instant::now() + if order.is_urgent { Duration::ZERO } else { NO_HURRY };
        Self { order, due, runs: None, course: None, said: 0, all: 0, has_sound: false }
    }
}

fn serve(mut speaker: Speaker, queue: &Receiver<Order>) {
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        if jobs.is_empty() {
            let Ok(order) = queue.recv() else { return };
            jobs.push(Job::new(order));
        }
        let room = JOBS_MAX.saturating_sub(jobs.len());
        jobs.extend(queue.try_iter().take(room).map(Job::new));
        jobs.retain(|job| !job.order.sound.is_closed());
        let Some(at) = (0..jobs.len()).min_by_key(|at| jobs.get(*at).map(|job| job.due)) else { continue };
        let Some(job) = jobs.get_mut(at) else { continue };
        let said = catch_unwind(AssertUnwindSafe(|| speaker.go_on(job)));
        let said = said.unwrap_or_else(|_| {
            tracing::error!(model = "kokoro", "the model's thread panicked, and goes on");
            Said::Failed
        });
        match said {
            Said::Nothing => {}
            Said::Part(part) => {
                let time = Duration::from_secs_f64(part.samples.len() as f64 / f64::from(VOICE_RATE));
                job.due = job.due.max(Instant::now()) + time;
                drop(job.order.sound.send(Ok(part)));
            }
            Said::All => drop(jobs.swap_remove(at)),
            Said::Failed => drop(jobs.swap_remove(at).order.sound.send(Err(Failed))),
        }
    }
}

enum Said {
    /// There is no sound yet.
    Nothing,
    Part(Part),
    All,
    Failed,
}

struct Speaker {
    models: PathBuf,
    /// By voice.
    styles: HashMap<String, Styles>,
    /// By voice.
    statistics: HashMap<String, Statistics>,
    model: Option<Model>,
    transcribers: HashMap<Language, Transcriber>,
}

impl Speaker {
    fn go_on(&mut self, job: &mut Job) -> Said {
        self.step(job).unwrap_or(Said::Failed)
    }

    fn step(&mut self, job: &mut Job) -> Option<Said> {
        let Order { text, voice, speed, .. } = &job.order;
        let model = match &mut self.model {
            Some(model) => model,
            none => none.insert(warned(Model::load(&self.models))?),
        };
        let Some(runs) = &mut job.runs else {
            let language = Language::of(voice)?;
            let transcriber = match self.transcribers.entry(language) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(language.transcriber()?),
            };
            let transcription = transcriber.transcribe(text)?;
            let symbols: Vec<(char, i64)> = transcription.chars().filter_map(symbol).collect();
            let ids = |piece: &[(char, i64)]| piece.iter().map(|(_, id)| *id).collect::<Vec<_>>();
            let runs: VecDeque<Vec<i64>> = pieces(&symbols).into_iter().map(ids).collect();
            job.all = runs.iter().map(Vec::len).sum();
            job.has_sound = runs.is_empty();
            job.runs = Some(runs);
            // Text without a symbol is silent.
            let silence = Part { samples: Vec::new(), until: 1.0 };
            return Some(if job.has_sound { Said::Part(silence) } else { Said::Nothing });
        };
        let Some(course) = &mut job.course else {
            let Some(run) = runs.pop_front() else {
                return job.has_sound.then_some(Said::All);
            };
            if !self.styles.contains_key(voice) {
                self.styles.insert(voice.clone(), warned(Styles::read(&self.models, voice))?);
            }
            let style = self.styles.get(voice)?.of(run.len())?;
            job.course = Some(warned(model.begin(&run, style, *speed))?);
            job.said += run.len();
            return Some(Said::Nothing);
        };
        let statistics = self.statistics.entry(voice.clone()).or_default();
        let sound = warned(model.go_on(course, statistics))?;
        let length = course.symbols();
        if sound.is_last {
            job.course = None;
        }
        if sound.samples.is_empty() {
            return Some(Said::Nothing);
        }
        job.has_sound = true;
        let said = job.said as f32 - length as f32 * (1.0 - sound.until);
        Some(Said::Part(Part { samples: sound.samples, until: said / job.all.max(1) as f32 }))
    }
}

fn warned<T, E: std::error::Error>(outcome: Result<T, E>) -> Option<T> {
    outcome.inspect_err(|error| tracing::warn!(%error, "the voice's model cannot be used")).ok()
}
