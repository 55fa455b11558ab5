//! Voices on a bad radio, in which a model is caught in a loop: it says again and again what was said once, and the text as a
//! whole does not compress enough to tell.

use std::f32::consts::TAU;

use verbatim::audio::{Pcm, SAMPLE_RATE};
use verbatim::engine::LanguageChoice;
use verbatim::models::ComputeType;
use verbatim::transcribe::{TranscribeOptions, Transcriber};

use crate::hard::{level, pink};
use crate::speech::{self, read};

const SPOKEN: f32 = 0.1;
/// Phrases of so many words.
const PHRASES: std::ops::RangeInclusive<usize> = 4..=12;

/// A transmission: clips at another speed, in noise.
struct Transmission {
    clips: &'static [&'static str],
    speed: f32,
    /// Voice over noise in decibels.
    clarity: f32,
    seed: u32,
}

impl Transmission {
    /// As a receiver would play it: the band around 1 kHz.
    fn sound(&self) -> Vec<f32> {
        const PAUSE: usize = SAMPLE_RATE as usize / 5;
        let mut samples = Vec::new();
        for clip in self.clips {
            let clip = read(&format!("speech/{clip}.wav"));
            samples.extend(level(&at_speed(clip.samples(), self.speed), SPOKEN));
            samples.extend([0.0; PAUSE]);
        }
        samples.truncate(30 * SAMPLE_RATE as usize);
        let noise = level(&pink(samples.len(), self.seed), SPOKEN * 10_f32.powf(-self.clarity / 20.0));
        samples.iter_mut().zip(&noise).for_each(|(sample, noise)| *sample += noise);
        (0..3).for_each(|_| band(&mut samples));
        level(&samples, SPOKEN)
    }
}

/// By linear interpolation.
fn at_speed(samples: &[f32], speed: f32) -> Vec<f32> {
    let length = (samples.len() as f32 / speed) as usize;
    let sample = |n: usize| {
        let at = n as f64 * f64::from(speed);
        let (index, part) = (at as usize, at.fract() as f32);
        let next = samples[(index + 1).min(samples.len() - 1)];
        samples[index] * (1.0 - part) + next * part
    };
    (0..length).map(sample).collect()
}

/// A band-pass of the second order around 1 kHz (Bristow-Johnson's cookbook).
fn band(samples: &mut [f32]) {
    let angle = TAU * 1000.0 / SAMPLE_RATE as f32;
    let alpha = angle.sin() / (2.0 * 0.6);
    let (mut input, mut output) = ([0.0; 2], [0.0; 2]);
    for sample in samples {
        let fed_back = 2.0 * angle.cos() * output[0] - (1.0 - alpha) * output[1];
        let passed = (alpha * (*sample - input[1]) + fed_back) / (1.0 + alpha);
        (input, output) = ([*sample, input[0]], [passed, output[0]]);
        *sample = passed;
    }
}

/// A phrase that comes three times in a row, but for its last word.
fn said_again(words: &[String]) -> Option<&[String]> {
    PHRASES.into_iter().find_map(|length| {
        let mut runs = words.windows(3 * length - 1);
        runs.find(|run| run[length..].iter().zip(*run).all(|(again, first)| again == first))
    })
}

#[tokio::test]
async fn a_radio_voice_is_not_written_in_a_loop() {
    // The program wrote a loop for each: «and we're going to space» four times, for one.
    let transmissions = [
        Transmission { clips: &["austen_0890", "austen_0880"], speed: 0.7, clarity: 1.0, seed: 554 },
        Transmission {
            clips: &["austen_0880", "austen_0920", "austen_0890"],
            speed: 1.3,
            clarity: -4.0,
            seed: 406,
        },
        Transmission {
            clips: &["austen_0870", "austen_0920", "en_quick_brown_fox"],
            speed: 0.8,
            clarity: -1.0,
            seed: 849,
        },
        Transmission {
            clips: &["en_quick_brown_fox", "austen_0870", "austen_0890"],
            speed: 0.85,
            clarity: -4.0,
            seed: 255,
        },
    ];
    let sequential = Transcriber::new(speech::engine("models/tiny.en", ComputeType::Auto));
    let options = TranscribeOptions { language: LanguageChoice::Named("en".into()), ..speech::options() };
    for transmission in transmissions {
        let sound = Pcm::new(transmission.sound());
        let text = sequential.transcribe(sound, &options).await.expect("transcribed").text();
        let words = speech::words(&text);
        assert_eq!(said_again(&words), None, "{:?}: {text}", transmission.clips);
    }
}
