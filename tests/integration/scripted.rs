//! A scripted model: the samples of a window say what it hears.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use verbatim::audio::Pcm;
use verbatim::engine::{
    Attempt, EncodeRequest, Error, Hypothesis, ModelInfo, SlotId, SpeechModel, StepOutcome,
};
use verbatim::transcript::{DetectedLanguage, Segment, Word};

/// A window that says `word` after `steps` decode steps; `seconds` long.
pub fn speech(word: u16, steps: u16, seconds: f64) -> Pcm {
    let mut samples = vec![0.0; (seconds * 16_000.0) as usize];
    samples[0] = f32::from(word);
    samples[1] = f32::from(steps);
    Pcm::new(samples)
}

/// The calls of the model, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    Encode(Vec<u16>),
    Begin(u16, f32),
    Step(Vec<u16>),
    Align(u16),
}

#[derive(Default)]
pub struct Script {
    /// Windows with these words get this average log-probability below the given temperature.
    pub improbable_below: HashMap<u16, f32>,
    /// Encoding a window with this word fails.
    pub fails_on: Option<u16>,
    /// Encoding waits for one message on this channel.
    pub gate: Option<std::sync::mpsc::Receiver<()>>,
    /// So does each step.
    pub step_gate: Option<std::sync::mpsc::Receiver<()>>,
    /// Encoding a window with this word panics.
    pub panics_on: Option<u16>,
    /// Windows whose word this divides are silence, over which the model invents something improbable.
    pub silence: Option<u16>,
}

pub struct ScriptedModel {
    info: ModelInfo,
    script: Script,
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
    pub fn new(slots: usize, script: Script) -> Self {
        let info = ModelInfo {
            name: "scripted".into(),
            uuid: uuid::Uuid::nil(),
            languages: vec!["en".into(), "de".into()],
            slots,
            encode_batch: 2,
            device: "script".into(),
        };
        Self { info, script, slots: HashMap::new(), calls: Arc::default() }
    }

    fn note(&self, call: Call) {
        self.calls.lock().expect("no test panics while it holds this").push(call);
    }
}

impl SpeechModel for ScriptedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
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

    fn begin(&mut self, attempts: &[Attempt]) -> Result<(), Error> {
        for &Attempt { slot, temperature, .. } in attempts {
            let running = self.slots.get_mut(&slot).expect("encoded before");
            running.left = running.steps;
            running.temperature = temperature;
            let word = running.word;
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
            let text = format!(" word{}", running.word);
            let word = Word { text: text.clone(), start: 0.0, end: running.seconds, probability: 0.9 };
            Hypothesis {
                segments: vec![Segment {
                    text,
                    start: 0.0,
                    end: running.seconds,
                    words: vec![word],
                    temperature: running.temperature,
                    ..Segment::default()
                }],
                language: DetectedLanguage { code: "en".into(), probability: 1.0 },
                average_log_probability: if improbable || silence { -3.0 } else { -0.1 },
                no_speech_probability: if silence { 0.9 } else { 0.0 },
                compression_ratio: 1.0,
                consumed_samples: (running.seconds * 16_000.0) as usize,
                tokens: Vec::new(),
                ranges: Vec::new(),
                ends_in_silence: true,
            }
        };
        Ok(slots.iter().map(hypothesis).collect())
    }

    fn align(&mut self, hypotheses: &mut [(SlotId, &mut Hypothesis)]) -> Result<(), Error> {
        for (slot, hypothesis) in hypotheses {
            self.note(Call::Align(self.slots[slot].word));
            for word in hypothesis.segments.iter_mut().flat_map(|segment| &mut segment.words) {
                word.start = 0.25;
            }
        }
        Ok(())
    }

    fn release(&mut self, slot: SlotId) {
        self.slots.remove(&slot);
    }
}
