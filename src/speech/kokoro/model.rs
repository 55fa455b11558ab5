//! The model itself, cut in two: the front makes of symbols what is to be said and how, for the whole text; the vocoder
//! makes sound of it, window by window.
//!
//! So the first sound comes after a part of the work, and the melody is still that of the whole. A window has the context
//! that the vocoder's convolutions reach, and fades into the next. The vocoder also normalizes its values over time, which
//! would make a quiet window loud. So a window gets the statistics that the voice had before: texts are made whole until
//! [`SETTLED`] of them are known.
//!
//! Source of the model's form: `hexgrad/kokoro` (`KModel.forward`, `istftnet.py`; Apache-2.0).

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use super::super::wav::VOICE_RATE;
use crate::onnx::{Element, Error, Graph, GraphError, Input, Output, Session, WEIGHT, given};

const FILE: &str = "kokoro/model.onnx";
/// Compute threads: fewer would delay sentences, more would slow the engine down.
const THREADS: usize = 2;
/// The values between the front and the vocoder: what goes through `KModel`'s generator.
const FEATURES: &str = "/decoder/decoder/decode.3/Div_4_output_0";
/// The sound of the melody, which the generator shapes.
const SOURCE: &str = "/decoder/decoder/generator/Squeeze_output_0";
/// How long each symbol lasts, in two frames.
const DURATIONS: &str = "/encoder/Cast_output_0";
const FEATURE_VALUES: usize = 512;
/// Samples of a frame, of which there are 80 a second.
const FRAME: usize = VOICE_RATE as usize / 80;
/// Frames of the first window, 0.4 s, and of the longest: the first sound comes soon, and the windows' context costs little
/// later.
const FIRST: usize = 32;
const LONGEST: usize = 160;
/// Frames whose statistics tell those of a voice: 4 s.
const SETTLED: usize = 320;
/// The operator of the statistics.
const MEAN: &str = "ReduceMean";
/// The reach of the vocoder's convolutions, in frames.
const CONTEXT: usize = 9;
/// Two windows overlap by so many frames.
const FADE: usize = 2;
/// The last frames of the symbol before a text may be its first sound already; the rest is silence.
const LEAD_FRAMES: usize = 6;
/// The first frames of the symbol after a text may be sound.
const TAIL_FRAMES: usize = 14;
/// Quieter samples at either end are the model's silence.
const SILENCE: f32 = 0.01;
const LEAD: usize = VOICE_RATE as usize * 3 / 100;
const TAIL: usize = VOICE_RATE as usize * 18 / 100;
const STYLE: &str = "style";
pub const STYLE_VALUES: usize = 256;

pub enum Model {
    Parts {
        front: Session,
        vocoder: Session,
        /// The statistics of the vocoder, by name.
        statistics: Vec<String>,
    },
    /// An export whose values have other names.
    Whole(Session),
}

/// Means over time of the vocoder's values, of all that a voice has said as a whole.
#[derive(Default)]
pub struct Statistics {
    means: Vec<Vec<f32>>,
    frames: usize,
}

impl Statistics {
    fn is_settled(&self) -> bool {
        self.frames >= SETTLED
    }

    /// Adds those of a text of so many frames.
    fn add(&mut self, means: Vec<Vec<f32>>, frames: usize) {
        let share = frames as f32 / (self.frames + frames).max(1) as f32;
        self.frames += frames;
        if self.means.is_empty() {
            self.means = means;
            return;
        }
        for (own, new) in self.means.iter_mut().flatten().zip(means.into_iter().flatten()) {
            *own += (new - *own) * share;
        }
    }
}

/// A text on its way through the vocoder.
pub struct Course {
    style: Vec<f32>,
    features: Vec<f32>,
    source: Vec<f32>,
    frames: usize,
    symbols: usize,
    /// Where each symbol ends, in frames.
    ends: Vec<usize>,
    /// Frames yet to come.
    rest: Range<usize>,
    /// Frames of the next window.
    width: usize,
    /// What the next window fades in over.
    overlap: Vec<f32>,
    silence: Silence,
}

/// Sound, and the share of the symbols that have been said by its end.
pub struct Sound {
    pub samples: Vec<f32>,
    pub until: f32,
    pub is_last: bool,
}

impl Model {
    /// # Errors
    /// [`Error`].
    pub fn load(models: &Path) -> Result<Self, Error> {
        let Some((front, vocoder, statistics)) = parts(&models.join(FILE)) else {
            return Session::load(models, FILE, THREADS).map(Self::Whole);
        };
        let [front, vocoder] = [front, vocoder].map(|part| Session::of(models, &part, THREADS));
        Ok(Self::Parts { front: front?, vocoder: vocoder?, statistics })
    }

    /// Begins to say symbols, in a style of [`STYLE_VALUES`].
    ///
    /// # Errors
    /// [`Error`], also where the model's outputs are not those of Kokoro.
    pub fn begin(&mut self, symbols: &[i64], style: &[f32], speed: f32) -> Result<Course, Error> {
        let mut tokens = vec![0];
        tokens.extend(symbols);
        tokens.push(0);
        let inputs = [
            ("tokens", Input::Integers(vec![1, tokens.len() as i64], tokens)),
            (STYLE, Input::Floats(vec![1, STYLE_VALUES as i64], style.to_vec())),
            ("speed", Input::Floats(vec![1], vec![speed])),
        ];
        let (front, mut course) = match self {
            Self::Parts { front, .. } => (front, Course::new(style, symbols.len())),
            Self::Whole(session) => {
                let (overlap, course) = (session.run(inputs)?, Course::new(style, symbols.len()));
                return Ok(Course { overlap, ..course });
            }
        };
        let inputs = inputs.map(|(name, input)| (Cow::Borrowed(name), input));
        let mut outputs = front.run_all(inputs.into())?.into_iter();
        let (Some(Output::Floats(features)), Some(Output::Floats(source)), Some(Output::Integers(durations))) =
            (outputs.next(), outputs.next(), outputs.next())
        else {
            return Err(Error::Died);
        };
        course.frames = features.len() / FEATURE_VALUES;
        if features.len() != course.frames * FEATURE_VALUES || source.len() != course.frames * FRAME {
            return Err(Error::Died);
        }
        (course.features, course.source) = (features, source);
        let lasts = durations.iter().map(|two| usize::try_from(*two).unwrap_or(0).saturating_mul(2));
        course.ends = lasts
            .scan(0_usize, |end, frames| {
                *end = end.saturating_add(frames);
                Some(*end)
            })
            .collect();
        let begin = course.ends.first().map_or(0, |end| end.saturating_sub(LEAD_FRAMES));
        let end = course.ends.iter().rev().nth(1).map_or(course.frames, |end| end + TAIL_FRAMES);
        let end = end.min(course.frames);
        course.rest = begin.min(end)..end;
        Ok(course)
    }

    /// The next sound of `course`, which may be empty. `known` are the statistics of its voice.
    ///
    /// # Errors
    /// [`Error`].
    pub fn go_on(&mut self, course: &mut Course, known: &mut Statistics) -> Result<Sound, Error> {
        let Self::Parts { vocoder, statistics, .. } = self else {
            let samples = std::mem::take(&mut course.overlap);
            return Ok(course.sound(samples, course.rest.end, true));
        };
        if course.rest.is_empty() {
            return Ok(course.sound(Vec::new(), course.frames, true));
        }
        if course.is_fresh() && !known.is_settled() {
            let (samples, means) = run(vocoder, course, 0..course.frames, statistics, None)?;
            known.add(means, course.frames);
            return Ok(course.sound(samples, course.frames, true));
        }
        let begin = course.rest.start;
        let mut end = (begin + course.width).min(course.rest.end);
        // A short rest would be a window for itself.
        if course.rest.end - end < FIRST {
            end = course.rest.end;
        }
        // Before the first sound there is silence.
        let before = if course.is_fresh() { FADE } else { CONTEXT };
        let from = begin.saturating_sub(before);
        let faded = (end + FADE).min(course.rest.end);
        let to = (faded + CONTEXT).min(course.frames);
        let (made, _) = run(vocoder, course, from..to, statistics, Some(known))?;
        let mut samples =
            made.get((begin - from) * FRAME..(faded - from) * FRAME).ok_or(Error::Died)?.to_vec();
        fade_in(&mut samples, &course.overlap);
        course.overlap = samples.split_off((end - begin) * FRAME);
        (course.rest.start, course.width) = (end, (course.width * 2).min(LONGEST));
        Ok(course.sound(samples, end, course.rest.is_empty()))
    }
}

/// Sound of some frames of `course`, by statistics that are given or by its own, which come back then.
fn run(
    vocoder: &mut Session,
    course: &Course,
    frames: Range<usize>,
    names: &[String],
    known: Option<&Statistics>,
) -> Result<(Vec<f32>, Vec<Vec<f32>>), Error> {
    let length = frames.len();
    let features = vec![1, FEATURE_VALUES as i64, length as i64];
    let source = vec![1, (length * FRAME) as i64];
    let mut inputs: Vec<(Cow<'static, str>, Input)> = vec![
        (FEATURES.into(), Input::Floats(features, course.features(frames.clone()))),
        (SOURCE.into(), Input::Floats(source, course.source(frames))),
        (STYLE.into(), Input::Floats(vec![1, STYLE_VALUES as i64], course.style.clone())),
        (WEIGHT.into(), Input::Floats(vec![1], vec![if known.is_some() { 1.0 } else { 0.0 }])),
    ];
    for (index, name) in names.iter().enumerate() {
        let means = known.and_then(|known| known.means.get(index)).cloned().unwrap_or_else(|| vec![0.0]);
        inputs.push((given(name).into(), Input::Floats(vec![1, means.len() as i64, 1], means)));
    }
    let mut outputs = vocoder.run_all(inputs)?.into_iter().map(|output| match output {
        Output::Floats(values) => Ok(values),
        Output::Integers(_) => Err(Error::Died),
    });
    let samples = outputs.next().ok_or(Error::Died)??;
    let means = if known.is_some() { Vec::new() } else { outputs.collect::<Result<_, _>>()? };
    Ok((samples, means))
}

/// The front and the vocoder of a model, if it can be cut.
fn parts(file: &Path) -> Option<(Vec<u8>, Vec<u8>, Vec<String>)> {
    let model = std::fs::read(file).ok()?;
    let cut = || -> Result<_, GraphError> {
        let graph = Graph::read(&model)?;
        let between = [(FEATURES, Element::Float), (SOURCE, Element::Float)];
        let front = graph.part(&[], &[between[0], between[1], (DURATIONS, Element::Integer)])?;
        let (vocoder, statistics) = graph.open_part(&between, &[("audio", Element::Float)], MEAN)?;
        Ok((front, vocoder, statistics))
    };
    cut().inspect_err(|error| tracing::warn!(%error, "the voice's model speaks a piece as a whole")).ok()
}

impl Course {
    fn new(style: &[f32], symbols: usize) -> Self {
        Self {
            style: style.to_vec(),
            features: Vec::new(),
            source: Vec::new(),
            frames: 0,
            symbols,
            ends: Vec::new(),
            rest: 0..0,
            width: FIRST,
            overlap: Vec::new(),
            silence: Silence::default(),
        }
    }

    /// Whether nothing of it was made.
    fn is_fresh(&self) -> bool {
        self.width == FIRST && self.overlap.is_empty()
    }

    /// What was made up to a frame.
    fn sound(&mut self, samples: Vec<f32>, end: usize, is_last: bool) -> Sound {
        let said = self.ends.iter().filter(|symbol| **symbol <= end).count();
        let until = if is_last { 1.0 } else { said as f32 / self.ends.len().max(1) as f32 };
        Sound { samples: self.silence.cut(samples, is_last), until, is_last }
    }

    /// The symbols of the text.
    pub fn symbols(&self) -> usize {
        self.symbols
    }

    fn features(&self, frames: Range<usize>) -> Vec<f32> {
        columns(&self.features, self.frames, frames)
    }

    fn source(&self, frames: Range<usize>) -> Vec<f32> {
        self.source.get(frames.start * FRAME..frames.end * FRAME).unwrap_or_default().to_vec()
    }
}

/// A range of the columns of a matrix in rows of `length`.
fn columns(values: &[f32], length: usize, range: Range<usize>) -> Vec<f32> {
    let rows = values.chunks_exact(length.max(1));
    rows.flat_map(|row| row.get(range.clone()).unwrap_or_default()).copied().collect()
}

/// Fades from `before` to `samples` where they overlap. Both follow the same source, so that they are alike in phase.
fn fade_in(samples: &mut [f32], before: &[f32]) {
    let length = before.len().min(samples.len()) as f32;
    for (index, (sample, before)) in samples.iter_mut().zip(before).enumerate() {
        *sample = before + (*sample - before) * (index as f32 + 0.5) / length;
    }
}

/// Cuts the silence at both ends of a speech that comes in parts.
#[derive(Default)]
struct Silence {
    has_begun: bool,
    /// Quiet samples that may be the last.
    held: Vec<f32>,
}

impl Silence {
    fn cut(&mut self, samples: Vec<f32>, is_last: bool) -> Vec<f32> {
        let is_loud = |sample: &f32| sample.abs() > SILENCE;
        self.held.extend(samples);
        let Some(last) = self.held.iter().rposition(is_loud) else {
            if is_last && self.has_begun {
                self.held.truncate(TAIL);
                return std::mem::take(&mut self.held);
            }
            if !self.has_begun {
                self.held.drain(..self.held.len().saturating_sub(LEAD));
            }
            return Vec::new();
        };
        if !self.has_begun {
            let first = self.held.iter().position(is_loud).unwrap_or(0);
            self.held.drain(..first.saturating_sub(LEAD));
            self.has_begun = true;
            return self.cut(Vec::new(), is_last);
        }
        let end = if is_last { (last + 1 + TAIL).min(self.held.len()) } else { last + 1 };
        let rest = self.held.split_off(end);
        std::mem::replace(&mut self.held, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fade_between_equals_changes_nothing_and_reaches_from_one_to_the_other() {
        let mut same = vec![0.5; 100];
        fade_in(&mut same, &[0.5; 60]);
        assert_eq!(same, [0.5; 100]);
        let mut other = vec![1.0; 100];
        fade_in(&mut other, &[0.0; 60]);
        assert!(
            other.windows(2).all(|pair| pair[0] <= pair[1]) && other[0] < 0.01 && other[60..] == [1.0; 40]
        );
    }

    #[test]
    fn a_range_of_columns_is_taken_of_every_row() {
        let matrix = [0.0, 1.0, 2.0, 10.0, 11.0, 12.0];
        assert_eq!(columns(&matrix, 3, 1..3), [1.0, 2.0, 11.0, 12.0]);
        assert!(columns(&[], 0, 0..1).is_empty());
    }

    #[test]
    fn silence_is_cut_at_the_ends_alone_however_the_speech_is_parted() {
        let quiet = |count: usize| vec![0.0_f32; count];
        let speech = [quiet(5000), vec![0.3; 900], quiet(7000), vec![0.2; 800], quiet(9000)].concat();
        let whole = Silence::default().cut(speech.clone(), true);
        assert_eq!(whole.len(), LEAD + 900 + 7000 + 800 + TAIL);
        for size in [1, 700, 4800, 20_000] {
            let mut silence = Silence::default();
            let count = speech.chunks(size).count();
            let parts = speech.chunks(size).enumerate();
            let parts = parts.flat_map(|(at, part)| silence.cut(part.to_vec(), at + 1 == count));
            assert!(parts.collect::<Vec<_>>() == whole, "{size}");
        }
        assert!(Silence::default().cut(quiet(3000), true).is_empty());
    }
}
