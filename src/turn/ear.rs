//! One speaker's audio to turns: voice activity, the begin of a turn, its pauses and its end.
//!
//! All times are in frames of the speaker's audio, so that the same audio makes the same turns however fast it comes. A clock
//! counts only where audio stops coming: [`Ear::waited`].

mod own_voice;

use own_voice::OwnVoice;

use super::ending::Ending;
use super::evidence::{Evidence, LOOKS, Rules, Words};
use super::{Judgement, Reference, SAMPLES, Turn};
use crate::audio::{Pcm, SAMPLE_RATE};
use crate::turn::echo::{Gate, Verdict};
use crate::vad::{Endpointer, Endpointing, FRAME_SAMPLES, Step, Utterance, Vad, VadStream};

/// Kept before the first frame that counts as speech: words begin softly, and a short first word may stand apart.
const LEAD_SAMPLES: usize = SAMPLE_RATE as usize / 2;
const FRAME_MS: u64 = FRAME_SAMPLES as u64 * 1000 / SAMPLE_RATE as u64;
const FRAME_SECONDS: f64 = FRAME_SAMPLES as f64 / SAMPLE_RATE as f64;
/// Within a turn, a frame is speech down to this much below `threshold`.
const HYSTERESIS: f32 = 0.15;

/// Frames of the speaker's own voice that make words of their own: 0.2 s. Fewer may be mistaken.
const OWN_FRAMES: usize = 6;
/// Frames of speech after [`Noticed::Insists`] that are more than a sign of attention: 0.4 s.
const PERSIST_FRAMES: usize = 13;

/// An event in a speaker's audio.
#[derive(Debug)]
pub enum Noticed {
    /// The speaker began.
    Began,
    /// The speaker has gone on for long enough to stop the agent: the turn so far. It may still be «yeah, right».
    Insists(Utterance),
    /// The speaker has gone on for longer than a listener does who only signals attention.
    Persists,
    /// The speaker pauses, perhaps within a sentence, or the pause has grown.
    Paused(Look),
    /// The speaker goes on after a pause.
    Resumed,
    /// The speaker is done, or has spoken for the longest turn. The number is of the pause that ended it.
    Ended(Utterance, Option<u64>),
    /// It was the agent's own voice.
    Echoed,
}

/// A pause to be judged.
#[derive(Debug)]
pub struct Look {
    /// The pause's number.
    pub pause: u64,
    /// The silence so far, in seconds.
    pub silence: f64,
    /// The end of the turn so far with the silence, for the model of turns.
    pub speech: Pcm,
    /// The whole turn so far, at the first look at each pause.
    pub utterance: Option<Utterance>,
}

pub struct Ear {
    vad: VadStream,
    detector: Detector,
    /// Samples from the lead or from the turn's begin on.
    heard: Vec<f32>,
    /// The probabilities of speech in the frames that end within `heard`.
    probabilities: Vec<f32>,
    /// Samples of an incomplete frame, which the detector has not seen.
    unseen: usize,
    /// The number of pauses so far.
    pauses: u64,
    /// Looks at the present pause; none outside of pauses.
    looks: usize,
    evidence: Evidence,
    gate: Gate,
    own: OwnVoice,
}

impl Ear {
    /// `judged`: a pause ends the turn by the evidence that is handed in, not by silence alone.
    pub fn new(vad: &Vad, turn: &Turn, judged: bool) -> Self {
        Self {
            vad: vad.stream(),
            detector: Detector::new(turn, judged),
            heard: Vec::new(),
            probabilities: Vec::new(),
            unseen: 0,
            pauses: 0,
            looks: 0,
            evidence: Evidence::default(),
            gate: Gate::new(SAMPLE_RATE),
            own: OwnVoice::default(),
        }
    }

    /// Takes the next samples, at [`SAMPLE_RATE`]. `agent`: the agent's voice, and when the samples began, in seconds on its
    /// clock.
    pub fn listen(
        &mut self,
        samples: &[f32],
        rules: &Rules,
        agent: Option<(&Reference, f64)>,
    ) -> Vec<Noticed> {
        let mut noticed = Vec::new();
        for (index, piece) in samples.chunks(FRAME_SAMPLES).enumerate() {
            let agent = agent.map(|(reference, seconds)| (reference, seconds + index as f64 * FRAME_SECONDS));
            if let Some((reference, seconds)) = agent {
                self.gate.hear(seconds, piece, reference);
            }
            let reference = agent
                .filter(|(reference, seconds)| reference.may_be_heard(*seconds))
                .map(|(reference, _)| reference);
            self.heard.extend_from_slice(piece);
            self.unseen += piece.len();
            for probability in self.vad.push(piece) {
                self.unseen = self.unseen.saturating_sub(FRAME_SAMPLES);
                self.probabilities.push(probability);
                self.frame(probability, rules, reference, &mut noticed);
            }
        }
        let endpointer = &self.detector.endpointer;
        if !endpointer.in_utterance() {
            // Only the lead is kept, with the speech that may become the turn's begin.
            let seen = LEAD_SAMPLES + endpointer.voiced_frames() * FRAME_SAMPLES;
            self.heard.drain(..self.heard.len().saturating_sub(seen + self.unseen));
            let frames = seen.div_ceil(FRAME_SAMPLES);
            self.probabilities.drain(..self.probabilities.len().saturating_sub(frames));
        }
        noticed
    }

    fn frame(
        &mut self,
        probability: f32,
        rules: &Rules,
        reference: Option<&Reference>,
        noticed: &mut Vec<Noticed>,
    ) {
        match self.detector.frame(probability) {
            Heard::Nothing => {}
            Heard::Began => {
                self.own = OwnVoice::begun(self.own_frames(reference));
                noticed.push(Noticed::Began);
            }
            Heard::Speech => {
                if std::mem::take(&mut self.looks) > 0 {
                    noticed.push(Noticed::Resumed);
                }
                let verdict = self.verdict(reference);
                let frame = self.seen().saturating_sub(FRAME_SAMPLES);
                self.own.take(verdict, frame);
                let insist = self.detector.insist_frames;
                if self.own.reaches(insist) {
                    noticed.push(Noticed::Insists(self.so_far(self.begin())));
                }
                if self.own.reaches(insist + PERSIST_FRAMES) {
                    noticed.push(Noticed::Persists);
                }
            }
            Heard::Silence if self.detector.endpointer.is_paused() => self.pause(rules, reference, noticed),
            Heard::Silence => {}
            Heard::Ended if self.is_echo(reference) => noticed.push(self.echoed()),
            Heard::Ended => noticed.push(Noticed::Ended(self.end_turn(), None)),
        }
    }

    /// The frames of speech that have just begun a turn, as far as they are the speaker's.
    fn own_frames(&self, reference: Option<&Reference>) -> usize {
        let voiced = self.detector.endpointer.voiced_frames();
        let is_told_apart = reference.is_some() && self.gate.knows_path();
        if is_told_apart { self.gate.own_frames(voiced) } else { voiced }
    }

    /// Whose voice the turn's last audio is, if that can be told.
    fn verdict(&mut self, reference: Option<&Reference>) -> Option<Verdict> {
        let seconds = self.detector.endpointer.frames() as f64 * FRAME_SECONDS;
        reference.and_then(|reference| self.gate.verdict(reference, seconds))
    }

    /// Whether the turn so far is the agent's voice alone.
    fn is_echo(&mut self, reference: Option<&Reference>) -> bool {
        if !self.own.is_compared() {
            let verdict = self.verdict(reference);
            self.own.note(verdict);
        }
        let least = if self.gate.knows_path() { OWN_FRAMES } else { self.detector.insist_frames };
        self.own.is_echo(least)
    }

    fn echoed(&mut self) -> Noticed {
        self.end_turn();
        Noticed::Echoed
    }

    /// A frame of silence in a pause that is judged.
    fn pause(&mut self, rules: &Rules, reference: Option<&Reference>, noticed: &mut Vec<Noticed>) {
        let silence = self.silence();
        if self.looks == 0 {
            if self.is_echo(reference) {
                return noticed.push(self.echoed());
            }
            self.pauses += 1;
            self.evidence = Evidence::default();
        }
        if self.looks == 0 || LOOKS.get(self.looks).is_some_and(|look| silence >= *look) {
            noticed.push(Noticed::Paused(self.look(silence)));
            self.looks += 1;
        }
        if let Some(utterance) = self.end_after(silence, rules) {
            noticed.push(Noticed::Ended(utterance, Some(self.pauses)));
        }
    }

    fn look(&self, silence: f64) -> Look {
        let is_first = self.looks == 0;
        let from =
            if is_first { self.begin() } else { self.seen().saturating_sub(SAMPLES).max(self.begin()) };
        let utterance = self.so_far(from);
        let length = utterance.pcm.len();
        let speech = utterance.pcm.slice(length.saturating_sub(SAMPLES)..length);
        Look { pause: self.pauses, silence, speech, utterance: is_first.then_some(utterance) }
    }

    /// The turn from the sample `from` on.
    fn so_far(&self, from: usize) -> Utterance {
        let pcm = Pcm::new(self.heard.get(from..self.seen()).unwrap_or_default());
        let first = self.probabilities.len().saturating_sub(pcm.len().div_ceil(FRAME_SAMPLES));
        Utterance::new(pcm, self.probabilities.get(first..).unwrap_or_default().to_vec())
    }

    /// The model's answer to a look at a pause after so much `silence`; none: it cannot tell. Returns the utterance if that
    /// ends the turn.
    pub fn judged(
        &mut self,
        pause: u64,
        silence: f64,
        probability: Option<f32>,
        rules: &Rules,
    ) -> Option<Utterance> {
        self.is_in(pause).then_some(())?;
        let judgement = match probability {
            Some(probability) => Judgement::Complete { probability: probability.into(), after: silence },
            None if self.evidence.judgement == Judgement::Awaited => Judgement::Unknown,
            None => return None,
        };
        let anew = Evidence { judgement, ..self.evidence };
        // By confidence, silence counts from the first look on: a later look may only bring the end nearer.
        let is_known = self.evidence.judgement != Judgement::Awaited;
        if rules.threshold.is_none() || !is_known || anew.silence(rules) < self.evidence.silence(rules) {
            self.evidence = anew;
        }
        self.end_after(self.silence(), rules)
    }

    /// How the words before a pause end. Returns the utterance if that ends the turn.
    pub fn recognised(&mut self, pause: u64, ending: Ending, rules: &Rules) -> Option<Utterance> {
        self.is_in(pause).then_some(())?;
        self.evidence.words = Words::Known(ending);
        self.end_after(self.silence(), rules)
    }

    /// So much silence has passed by the clock, in seconds, for audio may have stopped coming. Returns the utterance if that
    /// ends the turn.
    pub fn waited(&mut self, pause: u64, silence: f64, rules: &Rules) -> Option<Utterance> {
        self.is_in(pause).then_some(())?;
        self.end_after(silence, rules)
    }

    /// The silence, in seconds, that ends the turn by its pause as far as is known, and the silence so far. `None` if the
    /// speaker has gone on.
    pub fn awaits(&self, pause: u64, rules: &Rules) -> Option<(f64, f64)> {
        self.is_in(pause).then(|| (self.evidence.silence(rules), self.silence()))
    }

    /// Whether the turn has probably ended with its pause `pause`.
    pub fn has_probably_ended(&self, pause: u64) -> bool {
        self.is_in(pause) && self.evidence.is_probable()
    }

    /// Ends the turn by its pause number `pause` and returns the utterance, unless speech has gone on since.
    pub fn end(&mut self, pause: u64) -> Option<Utterance> {
        self.is_in(pause).then(|| self.end_turn())
    }

    /// The turn so far, once it has more than `samples`.
    pub fn beyond(&self, samples: usize) -> Option<Utterance> {
        let begin = self.begin();
        (self.seen().saturating_sub(begin) > samples).then(|| self.so_far(begin))
    }

    /// Ends the turn in the middle: what was heard so far is the utterance.
    pub fn finish(mut self) -> Utterance {
        self.take()
    }

    fn is_in(&self, pause: u64) -> bool {
        pause == self.pauses && self.looks > 0 && self.detector.endpointer.is_paused()
    }

    fn end_after(&mut self, silence: f64, rules: &Rules) -> Option<Utterance> {
        (silence >= self.evidence.silence(rules)).then(|| self.end_turn())
    }

    fn end_turn(&mut self) -> Utterance {
        self.detector.endpointer.end();
        self.take()
    }

    /// The silence so far, in seconds.
    fn silence(&self) -> f64 {
        self.detector.endpointer.silent_frames() as f64 * FRAME_SECONDS
    }

    /// The samples that the detector has seen.
    fn seen(&self) -> usize {
        self.heard.len() - self.unseen.min(self.heard.len())
    }

    /// The sample at which the speaker's voice begins, after the agent's.
    fn begin(&self) -> usize {
        self.own.begins().map_or(0, |begins| begins.saturating_sub(LEAD_SAMPLES))
    }

    /// Takes the audio up to the last whole frame.
    fn take(&mut self) -> Utterance {
        let (begin, end) = (self.begin(), self.seen());
        let rest = self.heard.split_off(end);
        let mut heard = std::mem::replace(&mut self.heard, rest);
        let mut probabilities = std::mem::take(&mut self.probabilities);
        heard.drain(..begin.min(heard.len()));
        // The first frame may begin before the audio.
        let frames = heard.len().div_ceil(FRAME_SAMPLES);
        probabilities.drain(..probabilities.len().saturating_sub(frames));
        (self.looks, self.own) = (0, OwnVoice::default());
        Utterance::new(Pcm::new(heard), probabilities)
    }
}

/// Turns out of utterances, frame by frame. Pure.
struct Detector {
    endpointer: Endpointer,
    insist_frames: usize,
    /// Whether a pause does not end the turn by itself.
    judged: bool,
    frames_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Began,
    Speech,
    Silence,
    Ended,
}

impl Detector {
    fn new(turn: &Turn, judged: bool) -> Self {
        let frames = |ms: u64| usize::try_from(ms / FRAME_MS).unwrap_or(usize::MAX).max(1);
        let begin_frames = frames(turn.start_ms);
        let stay = (turn.threshold - HYSTERESIS).max(0.01);
        let endpointing = Endpointing {
            begin: turn.threshold,
            stay,
            resume: stay,
            begin_frames,
            pause_frames: Some(frames(if judged { turn.pause_ms } else { turn.silence_ms })),
        };
        Self {
            endpointer: Endpointer::new(endpointing),
            insist_frames: frames(turn.interrupt_ms).max(begin_frames + 1),
            judged,
            frames_max: frames(turn.seconds_max.saturating_mul(1000)),
        }
    }

    fn frame(&mut self, probability: f32) -> Heard {
        let step = self.endpointer.frame(probability);
        match step {
            Step::Outside => return Heard::Nothing,
            Step::Began => return Heard::Began,
            Step::Speech | Step::Silence | Step::Pause => {}
        }
        let is_over = step == Step::Pause && !self.judged;
        if is_over || self.endpointer.frames() >= self.frames_max {
            return Heard::Ended;
        }
        if step == Step::Speech { Heard::Speech } else { Heard::Silence }
    }
}

#[cfg(test)]
mod tests;
