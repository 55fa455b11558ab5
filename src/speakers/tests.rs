//! Diarization through its public doors, on networks that read speakers from tones.
//!
//! Each speaker is a tone of one pitch whose loudness goes up and down. The scripted segmentation hears which tones sound
//! in a frame; the scripted trunk hears the one that varies the most, and the embedding points where that speaker's does,
//! give or take some noise.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::batching::Batcher;
use super::network::{CHANNELS, EMBEDDING, LogProbabilities, Networks, WINDOW_FRAMES};
use super::{Diarization, Diarizer, Error, MEL_BINS, Options};
use crate::audio::Sound;
use crate::transcript::Word;

const PITCHES: [f32; 5] = [1_500.0, 2_200.0, 3_100.0, 4_300.0, 5_900.0];
const LOUDNESS: f32 = 0.1;

#[derive(Default)]
struct Tones {
    random: AtomicU64,
    embeds_nan: bool,
}

impl Networks for Tones {
    fn segment(&self, windows: &[Vec<f32>]) -> Result<Vec<Vec<LogProbabilities>>, Error> {
        Ok(windows.iter().map(|window| classes(window)).collect())
    }

    fn trunk(&self, pieces: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        let features = |piece: &Vec<f32>| {
            let rows = (piece.len() / MEL_BINS).div_ceil(2);
            let mut features = vec![0.0; rows * CHANNELS];
            for (row, speaker) in features.chunks_exact_mut(CHANNELS).zip(loudest(piece)) {
                row[speaker] = 1.0;
            }
            features
        };
        Ok(pieces.iter().map(features).collect())
    }

    fn embed(&self, statistics: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, Error> {
        let vector = |statistics: &Vec<f32>| {
            let mut vector: Vec<f32> = (0..EMBEDDING).map(|_| 0.08 * self.noise()).collect();
            let means = &statistics[..PITCHES.len()];
            let speaker = (0..means.len()).max_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap_or(0);
            vector[speaker] += 1.0;
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            let length = if self.embeds_nan { f32::NAN } else { length };
            vector.iter().map(|value| value / length).collect()
        };
        Ok(statistics.iter().map(vector).collect())
    }
}

impl Tones {
    /// From -1 to 1.
    fn noise(&self) -> f32 {
        noise(self.random.fetch_add(1, Ordering::Relaxed))
    }

    fn diarizer(self) -> Diarizer {
        Diarizer::new(Batcher::start(move || Ok(self)).expect("a thread"))
    }
}

fn noise(index: u64) -> f32 {
    let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 40) as f32 / (1u64 << 23) as f32) - 1.0
}

/// Local speakers are numbered in the order in which they begin.
fn classes(window: &[f32]) -> Vec<LogProbabilities> {
    let mut order: Vec<usize> = Vec::new();
    let frame = |index: usize| {
        let middle = index * 270 + 495;
        let heard: Vec<usize> = (0..PITCHES.len())
            .filter(|&pitch| level(&window[middle - 240..middle + 240], pitch) > 0.1 * LOUDNESS)
            .collect();
        order.extend(heard.iter().filter(|heard| !order.contains(heard)).copied().collect::<Vec<_>>());
        let locals: Vec<usize> =
            order.iter().enumerate().filter(|local| heard.contains(local.1)).map(|local| local.0).collect();
        let class = match locals.as_slice() {
            [] => 0,
            [one] => 1 + one.min(&2),
            [0, 1, ..] => 4,
            [0, ..] => 5,
            _ => 6,
        };
        std::array::from_fn(|at| if at == class { 0.0 } else { -10.0 })
    };
    (0..WINDOW_FRAMES).map(frame).collect()
}

/// The amplitude of the tone `pitch` in `samples`, by correlation.
fn level(samples: &[f32], pitch: usize) -> f32 {
    let step = std::f32::consts::TAU * PITCHES[pitch] / 16_000.0;
    let sum = |wave: fn(f32) -> f32| -> f32 {
        samples.iter().enumerate().map(|(at, sample)| sample * wave(step * at as f32)).sum()
    };
    2.0 * sum(f32::sin).hypot(sum(f32::cos)) / samples.len() as f32
}

/// For each row of the trunk, the pitch whose band of the filter banks varies the most around it.
fn loudest(banks: &[f32]) -> Vec<usize> {
    let mel = |hertz: f32| 1127.0 * (1.0 + hertz / 700.0).ln();
    let step = (mel(8_000.0) - mel(20.0)) / 81.0;
    let band = |pitch: usize| ((mel(PITCHES[pitch]) - mel(20.0)) / step).round() as usize - 1;
    // Means over a tenth of a second: noise varies from frame to frame, a tone more slowly.
    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
    let tenths: Vec<Vec<f32>> = (0..PITCHES.len())
        .map(|pitch| {
            let values: Vec<f32> = banks.iter().skip(band(pitch)).step_by(MEL_BINS).copied().collect();
            values.chunks(10).map(mean).collect()
        })
        .collect();
    let variation = |tenths: &[f32], at: usize| -> f32 {
        let near = &tenths[at.saturating_sub(2)..(at + 3).min(tenths.len())];
        near.iter().map(|value| (value - mean(near)).powi(2)).sum()
    };
    let rows = (banks.len() / MEL_BINS).div_ceil(2);
    (0..rows)
        .map(|row| {
            let variation = |pitch: usize| variation(&tenths[pitch], row / 5);
            (0..PITCHES.len()).max_by(|&a, &b| variation(a).total_cmp(&variation(b))).unwrap_or(0)
        })
        .collect()
}

/// Audio in which each of `talks` sounds in its seconds, over faint noise.
fn audio(seconds: f64, talks: &[(usize, Range<f64>)]) -> Vec<f32> {
    let mut samples: Vec<f32> = (0..(seconds * 16_000.0) as u64).map(|at| 0.002 * noise(at)).collect();
    for (pitch, talk) in talks {
        for (at, sample) in samples
            .iter_mut()
            .enumerate()
            .take((talk.end * 16_000.0) as usize)
            .skip((talk.start * 16_000.0) as usize)
        {
            // Softly: a step would be heard at all pitches.
            let loudness = LOUDNESS * (0.6 + 0.4 * (std::f32::consts::TAU * at as f32 / 4_800.0).cos());
            // In f64: after minutes, an f32 phase is so coarse that the tone is noise.
            let phase = (f64::from(PITCHES[*pitch]) * at as f64 / 16_000.0).fract() as f32;
            *sample += loudness * (std::f32::consts::TAU * phase).sin();
        }
    }
    samples
}

/// `count` speakers who take turns of 3 s with pauses of half a second, for `turns` turns.
fn talks(count: usize, turns: usize) -> Vec<(usize, Range<f64>)> {
    let talk = |turn: usize| {
        let start = 1.0 + 3.5 * turn as f64;
        (turn % count, start..start + 3.0)
    };
    (0..turns).map(talk).collect()
}

async fn diarized(talks: &[(usize, Range<f64>)], options: Options) -> Diarization {
    let seconds = talks.iter().map(|talk| talk.1.end).fold(0.0, f64::max) + 1.0;
    let sound = Sound::from(&audio(seconds, talks)[..]);
    Tones::default().diarizer().diarize(&sound, &options).await.expect("turns")
}

#[tokio::test]
async fn speakers_who_take_turns_are_told_apart() {
    for (count, turns) in [(2, 6), (3, 9), (3, 36), (5, 40)] {
        let talks = talks(count, turns);
        let found = diarized(&talks, Options::default()).await;
        assert_eq!(found.voices.len(), count);
        assert_eq!(found.turns.len(), turns);
        for ((pitch, talk), turn) in talks.iter().zip(&found.turns) {
            // Pitches first sound in their order, so speakers have their numbers.
            assert_eq!(turn.speaker, *pitch);
            assert!(
                (turn.start - talk.start).abs() < 0.1 && (turn.end - talk.end).abs() < 0.1,
                "{turn:?} {talk:?}"
            );
            assert!((0.0..=1.0).contains(&turn.confidence));
        }
        for voice in &found.voices {
            assert!((voice.iter().map(|value| value * value).sum::<f32>() - 1.0).abs() < 1e-3);
        }
    }
}

#[tokio::test]
async fn a_monologue_has_one_speaker() {
    for turns in [1, 4, 60] {
        assert_eq!(diarized(&talks(1, turns), Options::default()).await.voices.len(), 1);
    }
}

#[tokio::test]
async fn silence_and_nothing_have_no_turns() {
    for seconds in [0.0, 0.01, 3.0, 25.0] {
        let sound = Sound::from(&audio(seconds, &[])[..]);
        let found = Tones::default().diarizer().diarize(&sound, &Options::default()).await.expect("no turns");
        assert_eq!(found, Diarization::default());
    }
}

#[tokio::test]
async fn one_short_clip_is_one_turn() {
    let found = diarized(&[(0, 0.5..1.2)], Options::default()).await;
    assert_eq!(found.turns.len(), 1);
    // With as many speakers as asked for only where there is speech enough.
    let found =
        diarized(&[(0, 0.5..1.2)], Options { speakers_expected: Some(3), ..Options::default() }).await;
    assert_eq!(found.turns.len(), 1);
}

#[tokio::test]
async fn the_number_of_speakers_is_obeyed() {
    // Few chunks, and many.
    for turns in [8, 40] {
        for expected in 1..=5 {
            let options = Options { speakers_expected: Some(expected), ..Options::default() };
            assert_eq!(diarized(&talks(3, turns), options).await.voices.len(), expected, "{turns} turns");
        }
        let at_most = Options { max_speakers: Some(2), ..Options::default() };
        assert_eq!(diarized(&talks(4, turns), at_most).await.voices.len(), 2);
        let at_least = Options { min_speakers: Some(4), ..Options::default() };
        assert_eq!(diarized(&talks(2, turns), at_least).await.voices.len(), 4);
        let around = Options { min_speakers: Some(1), max_speakers: Some(9), ..Options::default() };
        assert_eq!(diarized(&talks(3, turns), around).await.voices.len(), 3);
    }
}

#[tokio::test]
async fn who_talks_into_a_turn_has_a_turn_as_well() {
    let mut talks = talks(2, 8);
    talks[3].1.start -= 1.5;
    let found = diarized(&talks, Options::default()).await;
    assert_eq!(found.voices.len(), 2);
    let both = found.turns.iter().zip(found.turns.iter().skip(1)).find(|(a, b)| b.start < a.end - 0.5);
    let (first, second) = both.expect("an overlap");
    assert!((second.start - talks[3].1.start).abs() < 0.1, "{second:?}");
    assert!((first.end - talks[2].1.end).abs() < 0.1, "{first:?}");
    assert_ne!(first.speaker, second.speaker);
}

#[tokio::test]
async fn embeddings_that_are_no_numbers_harm_nothing() {
    let sound = Sound::from(&audio(40.0, &talks(2, 10))[..]);
    let tones = || Tones { embeds_nan: true, ..Tones::default() };
    assert!(tones().diarizer().diarize(&sound, &Options::default()).await.is_ok());
    let mut stream = tones().diarizer().stream(Options::default());
    stream.push(&audio(40.0, &talks(2, 10)));
    let mut words = words(&talks(2, 10)[..2]);
    assert!(stream.label(&mut words).await.is_ok());
}

/// Three words in each of `talks`.
fn words(talks: &[(usize, Range<f64>)]) -> Vec<Word> {
    let word =
        |start: f64| Word { text: " word".into(), start, end: start + 0.9, probability: 1.0, speaker: None };
    talks.iter().flat_map(|talk| (0..3).map(move |at| word(talk.1.start + at as f64))).collect()
}

/// The speakers of the words of a stream to which `talks` come one by one, each word final 0.3 s after its turn.
async fn streamed(talks: &[(usize, Range<f64>)], options: Options) -> (Vec<usize>, usize) {
    let mut stream = Tones::default().diarizer().stream(options);
    let samples = audio(talks.iter().map(|talk| talk.1.end).fold(0.0, f64::max) + 1.0, talks);
    let (mut at, mut labels) = (0, Vec::new());
    for talk in talks {
        let to = ((talk.1.end + 0.3) * 16_000.0) as usize;
        samples[at..to].chunks(1_600).for_each(|samples| stream.push(samples));
        at = to;
        let mut final_words = words(std::slice::from_ref(talk));
        stream.label(&mut final_words).await.expect("labels");
        labels.extend(final_words.iter().map(|word| word.speaker.expect("a speaker").index));
    }
    (labels, stream.voices().len())
}

#[tokio::test]
async fn a_stream_labels_words_as_they_become_final() {
    let talks = talks(3, 45);
    let (labels, speakers) = streamed(&talks, Options::default()).await;
    let pitches: Vec<usize> = talks.iter().flat_map(|talk| [talk.0; 3]).collect();
    assert_eq!(labels, pitches);
    assert_eq!(speakers, 3);
}

#[tokio::test]
async fn a_stream_of_one_speaker_has_one_label() {
    let (labels, speakers) = streamed(&talks(1, 240), Options::default()).await;
    assert!(labels.iter().all(|&label| label == 0));
    assert_eq!(speakers, 1);
}

#[tokio::test]
async fn a_stream_has_no_more_speakers_than_asked_for() {
    let options = Options { max_speakers: Some(2), ..Options::default() };
    let (labels, speakers) = streamed(&talks(4, 40), options).await;
    assert!(labels.iter().all(|&label| label < 2));
    assert_eq!(speakers, 2);
}

#[tokio::test]
async fn a_speaker_who_was_silent_for_long_is_known_again() {
    let mut talks = talks(2, 6);
    talks.extend((0..200).map(|turn| (2, 30.0 + 3.5 * f64::from(turn)..33.0 + 3.5 * f64::from(turn))));
    talks.push((0, 740.0..743.0));
    let (labels, _) = streamed(&talks, Options::default()).await;
    assert_eq!(labels[labels.len() - 3..], [0; 3]);
}

#[tokio::test]
async fn audio_without_words_can_be_passed_over() {
    let talks = [(0, 1.0..4.0), (1, 100.0..103.0), (0, 104.0..107.0)];
    let samples = audio(108.0, &talks);
    let mut stream = Tones::default().diarizer().stream(Options::default());
    let mut labels = Vec::new();
    let mut at = 0;
    for (talk, silence) in talks.iter().zip([99.0, 103.5, 107.5]) {
        let to = (talk.1.end + 0.3) * 16_000.0;
        stream.push(&samples[at..to as usize]);
        at = to as usize;
        let mut final_words = words(std::slice::from_ref(talk));
        stream.label(&mut final_words).await.expect("labels");
        labels.extend(final_words.iter().map(|word| word.speaker.expect("a speaker").index));
        // Silence goes on; the pauses between the later talks are too short to matter.
        let to = ((silence * 16_000.0) as usize).max(at);
        stream.push(&samples[at..to]);
        at = to;
        stream.pass_over(silence);
    }
    assert_eq!(labels, [0, 0, 0, 1, 1, 1, 0, 0, 0]);
}
