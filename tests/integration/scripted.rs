//! A scripted model: the samples of a window say what it hears.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use verbatim::audio::Pcm;
use verbatim::engine::{
    Alignment, Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, Progress, SlotId, SpeechModel,
    StepOutcome,
};
use verbatim::transcript::{DetectedLanguage, Segment, Word};

/// A window that says `word` after `steps` decode steps; `seconds` long.
pub fn speech(word: u16, steps: u16, seconds: f64) -> Pcm {
    let mut samples = vec![0.0; (seconds * 16_000.0) as usize];
    samples[0] = f32::from(word);
    samples[1] = f32::from(steps);
    Pcm::new(samples)
}

/// The calls of the model and of its alignments, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Encode(Vec<u16>),
    /// These were asked for and are not encoded yet.
    StillEncoding(Vec<u16>),
    /// And were waited for.
    WaitEncoded(Vec<u16>),
    Begin(u16, f32),
    Step(Vec<u16>),
    Align(u16),
    /// On a thread beside the model's.
    AlignmentBegins(u16),
    AlignmentEnds(u16),
}

#[derive(Default)]
pub struct Script {
    /// Windows with these words get this average log-probability below the given temperature.
    pub improbable_below: HashMap<u16, f32>,
    /// Attempts at windows with these words end in a loop below the given temperature, with this many seconds of the window
    /// before it.
    pub looped_below: HashMap<u16, (f32, f64)>,
    /// Encoding a window with this word fails.
    pub fails_on: Option<u16>,
    /// Encoding waits for one message on this channel.
    pub gate: Option<Receiver<()>>,
    /// Counted on by the test while it does.
    pub progress: Progress,
    /// So does each step.
    pub step_gate: Option<Receiver<()>>,
    /// So does each alignment.
    pub align_gate: Option<Receiver<()>>,
    /// The most windows that are encoded together; 2 by default.
    pub encode_batch: Option<usize>,
    /// Words whose windows are being encoded until a test removes them.
    pub still_encoding: Arc<Mutex<BTreeSet<u16>>>,
    /// Encoding a window with this word panics.
    pub panics_on: Option<u16>,
    /// The alignment of a window with this word fails.
    pub align_fails_on: Option<u16>,
    /// The alignment of a window with this word panics.
    pub align_panics_on: Option<u16>,
    /// Windows whose word this divides are silence, over which the model invents something improbable.
    pub silence: Option<u16>,
}

pub struct ScriptedModel {
    info: ModelInfo,
    script: Script,
    align_gate: Option<Arc<Mutex<Receiver<()>>>>,
    slots: HashMap<SlotId, Running>,
    pub calls: Arc<Mutex<Vec<Call>>>,
}

struct Running {
    word: u16,
    steps: u16,
    left: u16,
    seconds: f64,
    temperature: f32,
}

impl ScriptedModel {
    pub fn new(slots: usize, mut script: Script) -> Self {
        let info = ModelInfo {
            name: "scripted".into(),
            uuid: uuid::Uuid::nil(),
            languages: vec!["en".into(), "de".into()],
            slots,
            encode_batch: script.encode_batch.unwrap_or(2),
            device: "script".into(),
            prompt_tokens: verbatim::engine::TokenCount::default(),
        };
        let align_gate = script.align_gate.take().map(|gate| Arc::new(Mutex::new(gate)));
        Self { info, script, align_gate, slots: HashMap::new(), calls: Arc::default() }
    }

    fn note(&self, call: Call) {
        note(&self.calls, call);
    }

    fn is_still_encoding(&self, word: u16) -> bool {
        self.script.still_encoding.lock().expect("no test panics while it holds this").contains(&word)
    }
}

fn note(calls: &Mutex<Vec<Call>>, call: Call) {
    calls.lock().expect("no test panics while it holds this").push(call);
}

/// Moves the first word of a window to its first quarter of a second.
struct ScriptedAlignment {
    word: u16,
    calls: Arc<Mutex<Vec<Call>>>,
    gate: Option<Arc<Mutex<Receiver<()>>>>,
    fails: bool,
    panics: bool,
}

impl Alignment for ScriptedAlignment {
    fn finish(self: Box<Self>, hypothesis: &mut Hypothesis) -> Result<(), Error> {
        note(&self.calls, Call::AlignmentBegins(self.word));
        if let Some(gate) = &self.gate {
            let _ = gate.lock().expect("a panic comes after this").recv();
        }
        assert!(!self.panics, "as the script says");
        if self.fails {
            return Err(Error::ModelFailed("as the script says".into()));
        }
        if let Some(word) = hypothesis.segments.iter_mut().flat_map(|segment| &mut segment.words).next() {
            word.start = 0.25;
        }
        note(&self.calls, Call::AlignmentEnds(self.word));
        Ok(())
    }
}

impl SpeechModel for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn progress(&self) -> Progress {
        self.script.progress.clone()
    }

    fn encode(&mut self, requests: &[EncodeRequest]) -> Result<(), Error> {
        if let Some(gate) = &self.script.gate {
            // A closed gate is an open one: the test has let go of it.
            let _ = gate.recv();
        }
        let mut words = Vec::new();
        for request in requests {
            let samples = request.pcm.samples();
            let (word, steps) = (samples[0] as u16, samples[1] as u16);
            assert!(!self.slots.contains_key(&request.slot), "slot {:?} is taken", request.slot);
            assert_ne!(self.script.panics_on, Some(word), "as the script says");
            if self.script.fails_on == Some(word) {
                return Err(Error::ModelFailed("as the script says".into()));
            }
            let seconds = request.pcm.duration_seconds();
            self.slots.insert(request.slot, Running { word, steps, left: steps, seconds, temperature: 0.0 });
            words.push(word);
        }
        self.note(Call::Encode(words));
        Ok(())
    }

    fn is_encoded(&mut self, slots: &[SlotId]) -> Result<bool, Error> {
        let words: Vec<u16> = slots.iter().map(|slot| self.slots[slot].word).collect();
        let is_encoded = !words.iter().any(|&word| self.is_still_encoding(word));
        if !is_encoded {
            self.note(Call::StillEncoding(words));
        }
        Ok(is_encoded)
    }

    fn wait_encoded(&mut self, slots: &[SlotId]) -> Result<(), Error> {
        let words: Vec<u16> = slots.iter().map(|slot| self.slots[slot].word).collect();
        while words.iter().any(|&word| self.is_still_encoding(word)) {
            std::thread::yield_now();
        }
        self.note(Call::WaitEncoded(words));
        Ok(())
    }

    fn begin(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        for &Attempt { slot, temperature, .. } in attempts {
            let running = self.slots.get_mut(&slot).expect("encoded before");
            running.left = running.steps;
            running.temperature = temperature;
            let word = running.word;
            assert!(!self.is_still_encoding(word), "time to encode would count as time to decode");
            self.note(Call::Begin(word, temperature));
        }
        Ok(())
    }

    fn step(&mut self, slots: &[SlotId]) -> Result<Vec<StepOutcome>, Error> {
        if let Some(gate) = &self.script.step_gate {
            let _ = gate.recv();
        }
        let mut words = Vec::new();
        let mut outcomes = Vec::new();
        for slot in slots {
            let running = self.slots.get_mut(slot).expect("begun before");
            words.push(running.word);
            running.left = running.left.saturating_sub(1);
            outcomes.push(if running.left == 0 { StepOutcome::Finished } else { StepOutcome::Running });
        }
        self.note(Call::Step(words));
        Ok(outcomes)
    }

    fn finish(&mut self, slots: &[SlotId]) -> Result<Vec<Hypothesis>, Error> {
        let hypothesis = |slot: &SlotId| {
            let running = &self.slots[slot];
            let improbable =
                self.script.improbable_below.get(&running.word).is_some_and(|&t| running.temperature < t);
            let silence = self.script.silence.is_some_and(|divisor| running.word.is_multiple_of(divisor));
            let before_loop = self.script.looped_below.get(&running.word);
            let before_loop = before_loop.filter(|(below, _)| running.temperature < *below);
            let text = format!(" word{}", running.word);
            // All of the window is accounted for, half a second by each word.
            let word = |half: usize| {
                let (start, text) = (half as f64 / 2.0, if half == 0 { text.clone() } else { String::new() });
                Word { text, start, end: (start + 0.5).min(running.seconds), probability: 0.9, speaker: None }
            };
            let words = (0..(2.0 * running.seconds).ceil().max(1.0) as usize).map(word).collect();
            Hypothesis {
                segments: vec![Segment {
                    text,
                    start: 0.0,
                    end: running.seconds,
                    words,
                    temperature: running.temperature,
                    looped: before_loop.is_some(),
                    ..Segment::default()
                }],
                language: DetectedLanguage { code: "en".into(), probability: 1.0 },
                average_log_probability: if improbable || silence { -3.0 } else { -0.1 },
                no_speech_probability: if silence { 0.9 } else { 0.0 },
                compression_ratio: 1.0,
                consumed_samples: (before_loop.map_or(running.seconds, |(_, until)| *until) * 16_000.0)
                    as usize,
                tokens: Vec::new(),
                ranges: Vec::new(),
                ends_in_silence: true,
            }
        };
        Ok(slots.iter().map(hypothesis).collect())
    }

    fn align(&mut self, accepted: &[(SlotId, &Hypothesis)]) -> Result<Vec<Box<dyn Alignment>>, Error> {
        let alignment = |(slot, _): &(SlotId, &Hypothesis)| {
            let word = self.slots[slot].word;
            self.note(Call::Align(word));
            Box::new(ScriptedAlignment {
                word,
                calls: self.calls.clone(),
                gate: self.align_gate.clone(),
                fails: self.script.align_fails_on == Some(word),
                panics: self.script.align_panics_on == Some(word),
            }) as Box<dyn Alignment>
        };
        Ok(accepted.iter().map(alignment).collect())
    }

    fn release(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }
}
