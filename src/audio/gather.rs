//! The collection of decoded frames: channels are mixed or split, resampled, and held to the limits.

use super::error::Error;
use super::limits::Limits;
use super::pcm::SAMPLE_RATE;
use super::resample::Resampling;
use super::sound::{Recorder, Sound};

/// Full scale is 1; samples far above it are damage.
const SAMPLE_LIMIT: f32 = 8.0;
/// Changes of format within one file, as in concatenated files: each costs a new resampler.
const CHANGES_MAX: usize = 256;

/// A decoded file.
#[derive(Debug)]
pub struct Decoded {
    /// One, or one for each source channel; all of one length.
    pub channels: Vec<Sound>,
    pub source_channels: u16,
    pub source_sample_rate_hz: u32,
    pub duration_seconds: f64,
    /// Part of the file could not be decoded; the rest is here.
    pub damaged: bool,
}

/// A decoder's progress so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Samples at [`SAMPLE_RATE`] that it holds, all output channels counted.
    pub output_samples: u64,
    /// Samples of the file that it has decoded, all channels counted: the measure of its work.
    pub source_samples: u64,
}

impl Progress {
    /// The memory of its output.
    pub fn held_bytes(&self) -> u64 {
        self.output_samples * size_of::<i16>() as u64
    }
}

/// The place where a reader stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At the end of the bytes, or where the container says that it ends.
    Whole,
    /// At bytes that cannot be read.
    Broken,
    /// Where another stream begins, as in a radio's.
    Next,
}

/// Collects the output of one reader.
pub struct Gather {
    limits: Limits,
    split: bool,
    is_stream: bool,
    state: Option<State>,
    damaged: bool,
}

struct State {
    /// The format of the current frames.
    sample_rate_hz: u32,
    channels: usize,
    /// Frames since the last change of format.
    frames: u64,
    max_frames: u64,
    /// Audio before that change.
    seconds_before: f64,
    changes: usize,
    /// Samples of all channels since the source began.
    source_samples: u64,
    /// The format in which the source began, and the most channels that it has had.
    source_sample_rate_hz: u32,
    source_channels: usize,
    outputs: Vec<Output>,
    /// One channel of one push, kept for its memory.
    lane: Vec<f32>,
}

struct Output {
    resampling: Resampling,
    /// The output so far; empty for a stream, whose output is taken as it comes.
    recorder: Recorder,
}

impl Output {
    /// For a file, only samples that cannot be resampled yet stay in `f32`.
    fn push(&mut self, samples: &[f32], is_stream: bool) -> Result<(), Error> {
        self.resampling.push(samples)?;
        if !is_stream {
            self.resampling.drain(|samples| self.recorder.push(samples));
        }
        Ok(())
    }
}

impl Gather {
    /// For a file. `split`: source channels are kept apart.
    pub fn new(split: bool, limits: Limits) -> Self {
        Self { limits, split, is_stream: false, state: None, damaged: false }
    }

    /// For a stream of unknown length, whose output is taken with [`Self::take`].
    pub fn stream(split: bool, max_channels: usize) -> Self {
        let limits = Limits { max_seconds: f64::INFINITY, max_channels };
        Self { limits, split, is_stream: true, state: None, damaged: false }
    }

    /// Sets the format of the frames to come; may be called again, with another format if the channels are
    /// mixed.
    pub fn begin(&mut self, channels: usize, sample_rate_hz: u32) -> Result<(), Error> {
        if self.state.as_ref().is_some_and(|state| state.is_of(channels, sample_rate_hz)) {
            return Ok(());
        }
        if channels == 0 || channels > self.limits.max_channels {
            return Err(Error::Corrupt(format!(
                "{channels} channels, of which at most {} are read",
                self.limits.max_channels
            )));
        }
        if let Some(state) = &mut self.state {
            let is_another = self.split && state.channels != channels;
            if is_another || state.changes == CHANGES_MAX {
                return Err(Error::Corrupt("its format changes on the way".into()));
            }
            return state.change(channels, sample_rate_hz, &self.limits);
        }
        let outputs = if self.split { channels } else { 1 };
        let resampling = if self.is_stream { Resampling::prompt } else { Resampling::new };
        let output = || Ok(Output { resampling: resampling(sample_rate_hz)?, recorder: Recorder::default() });
        self.state = Some(State {
            sample_rate_hz,
            channels,
            frames: 0,
            max_frames: (self.limits.max_seconds * f64::from(sample_rate_hz)) as u64,
            seconds_before: 0.0,
            changes: 0,
            source_samples: 0,
            source_sample_rate_hz: sample_rate_hz,
            source_channels: channels,
            outputs: (0..outputs).map(|_| output()).collect::<Result<_, Error>>()?,
            lane: Vec::new(),
        });
        Ok(())
    }

    /// Takes interleaved frames. A NaN or an infinity becomes silence: one would spoil a whole spectrum.
    pub fn push(&mut self, samples: &mut [f32]) -> Result<(), Error> {
        let Some(state) = &mut self.state else { return Ok(()) };
        for sample in samples.iter_mut() {
            *sample = if sample.is_finite() { sample.clamp(-SAMPLE_LIMIT, SAMPLE_LIMIT) } else { 0.0 };
        }
        let samples = &*samples;
        let (channels, is_stream) = (state.channels, self.is_stream);
        state.source_samples += samples.len() as u64;
        state.frames += (samples.len() / channels) as u64;
        if state.frames > state.max_frames {
            return Err(Error::TooLong { limit_seconds: self.limits.max_seconds });
        }
        if channels == 1 {
            return state.outputs.iter_mut().try_for_each(|output| output.push(samples, is_stream));
        }
        let outputs = state.outputs.len();
        for (index, output) in state.outputs.iter_mut().enumerate() {
            state.lane.clear();
            let frames = samples.chunks_exact(channels);
            if outputs == 1 {
                state.lane.extend(frames.map(|frame| frame.iter().sum::<f32>() / channels as f32));
            } else {
                state.lane.extend(frames.map(|frame| frame[index]));
            }
            output.push(&state.lane, is_stream)?;
        }
        Ok(())
    }

    /// Channels of the source, once known.
    pub fn source_channels(&self) -> Option<u16> {
        self.state.as_ref().map(|state| state.source_channels as u16)
    }

    /// Samples pushed so far and, for a file, samples of output.
    pub fn progress(&self) -> Progress {
        self.state.as_ref().map_or_else(Progress::default, |state| Progress {
            output_samples: state.outputs.iter().map(|output| output.recorder.len() as u64).sum(),
            source_samples: state.source_samples,
        })
    }

    /// Seconds of audio pushed so far.
    pub fn seconds(&self) -> f64 {
        self.state.as_ref().map_or(0.0, State::seconds)
    }

    /// Takes the samples that a stream has yielded since the last call, the same number for each output channel.
    pub fn take(&mut self) -> Vec<Vec<f32>> {
        let outputs = self.state.iter_mut().flat_map(|state| &mut state.outputs);
        outputs.map(|output| output.resampling.take()).collect()
    }

    /// Ends a stream and returns the samples that were held back.
    pub fn finish_stream(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        let outputs = self.state.as_mut().map(|state| std::mem::take(&mut state.outputs)).unwrap_or_default();
        outputs.into_iter().map(|output| output.resampling.finish()).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.seconds() == 0.0
    }

    pub fn mark_damaged(&mut self) {
        self.damaged = true;
    }

    pub fn finish(self) -> Result<Decoded, Error> {
        let Some(state) = self.state.filter(|state| state.seconds() > 0.0) else {
            return Err(if self.damaged {
                Error::Corrupt("none of it can be decoded".into())
            } else {
                Error::Empty
            });
        };
        let seconds = state.seconds();
        let finish = |mut output: Output| {
            output.recorder.push(&output.resampling.finish()?);
            Ok(output.recorder.finish())
        };
        let channels = state.outputs.into_iter().map(finish).collect::<Result<Vec<_>, Error>>()?;
        let expected = (seconds * f64::from(SAMPLE_RATE)).round() as usize;
        debug_assert!(channels.iter().all(|sound| sound.len().abs_diff(expected) <= 1 + state.changes));
        Ok(Decoded {
            channels,
            source_channels: state.source_channels as u16,
            source_sample_rate_hz: state.source_sample_rate_hz,
            duration_seconds: seconds,
            damaged: self.damaged,
        })
    }
}

impl State {
    fn is_of(&self, channels: usize, sample_rate_hz: u32) -> bool {
        self.channels == channels && self.sample_rate_hz == sample_rate_hz
    }

    fn seconds(&self) -> f64 {
        self.seconds_before + self.frames as f64 / f64::from(self.sample_rate_hz)
    }

    fn change(&mut self, channels: usize, sample_rate_hz: u32, limits: &Limits) -> Result<(), Error> {
        if self.sample_rate_hz != sample_rate_hz {
            self.outputs.iter_mut().try_for_each(|output| output.resampling.change(sample_rate_hz))?;
            self.seconds_before = self.seconds();
            self.frames = 0;
            self.max_frames =
                ((limits.max_seconds - self.seconds_before) * f64::from(sample_rate_hz)).max(0.0) as u64;
            self.sample_rate_hz = sample_rate_hz;
        }
        self.channels = channels;
        self.source_channels = self.source_channels.max(channels);
        self.changes += 1;
        Ok(())
    }
}
