//! Hard recordings with known words, and sounds without speech.
//!
//! They are made of `./setup`'s clips of clean speech, and of sounds from a seed.

use std::f32::consts::TAU;
use std::ops::Range;

use verbatim::audio::{Pcm, SAMPLE_RATE};
use verbatim::engine::LanguageChoice;
use verbatim::live::{Config, Live};
use verbatim::share::Tenants;
use verbatim::transcribe::TranscribeOptions;
use verbatim::transcript::{Transcript, Word};
use verbatim::vad::{FRAME_SAMPLES, Vad};

use crate::speech::{self, cache, read, transcriber};
use crate::streams;
use crate::tones::bytes;

const RATE: usize = SAMPLE_RATE as usize;
/// The level of speech without decibels of its own, as a root of the mean square.
const SPOKEN: f32 = 0.1;
/// The share of a sentence's words that must be written: these tests are about sentences that are left out.
const MOST: f64 = 0.8;
/// A word may lie so many seconds outside of its sentence.
const TOLERANCE: f64 = 0.3;

pub struct Sentence {
    text: String,
    pub seconds: Range<f64>,
}

impl Sentence {
    fn holds(&self, word: &Word) -> bool {
        self.seconds.start - TOLERANCE <= word.start && word.end <= self.seconds.end + TOLERANCE
    }
}

/// Sentences and other sounds, one after the other.
#[derive(Default)]
pub struct Scene {
    samples: Vec<f32>,
    pub sentences: Vec<Sentence>,
}

impl Scene {
    fn seconds(&self) -> f64 {
        self.samples.len() as f64 / RATE as f64
    }

    fn play(mut self, sound: &[f32]) -> Self {
        self.samples.extend(sound);
        self
    }

    pub fn wait(self, seconds: f64) -> Self {
        self.play(&vec![0.0; (seconds * RATE as f64) as usize])
    }

    pub fn say(self, clip: &str) -> Self {
        self.say_at(0.0, &[clip])
    }

    /// Clips as one sentence, so many decibels louder than others.
    fn say_at(self, decibels: f32, clips: &[&str]) -> Self {
        let start = self.seconds();
        let mut scene = self;
        for (number, clip) in clips.iter().enumerate() {
            let pcm = read(&format!("speech/{clip}.wav"));
            let loud = level(pcm.samples(), SPOKEN * 10_f32.powf(decibels / 20.0));
            scene = scene.wait(if number > 0 { 0.2 } else { 0.0 }).play(&loud);
        }
        let text = clips.iter().map(|clip| text(clip)).collect::<Vec<_>>().join(" ");
        let seconds = start..scene.seconds();
        scene.sentences.push(Sentence { text, seconds });
        scene
    }

    /// `sound` under it, as long as it lasts.
    fn over(mut self, sound: &[f32]) -> Self {
        self.samples.iter_mut().zip(sound).for_each(|(sample, other)| *sample += other);
        self
    }

    /// Steady noise of this level under all of it.
    fn over_noise(self, loudness: f32) -> Self {
        let noise = level(&pink(self.samples.len(), 3), loudness);
        self.over(&noise)
    }

    async fn transcribe(&self) -> Transcript {
        self.transcribe_in(LanguageChoice::Named("en".into())).await
    }

    pub async fn transcribe_in(&self, language: LanguageChoice) -> Transcript {
        let options = TranscribeOptions { language, ..speech::options() };
        let pcm = Pcm::new(self.samples.clone());
        transcriber().transcribe(pcm, &options).await.expect("transcribed")
    }

    /// The words of the final results of a stream without endpoints.
    async fn stream(&self) -> Vec<Word> {
        let transcriber = transcriber();
        let (engine, vad) = (transcriber.engine().clone(), transcriber.vad().cloned());
        let live = Live::new(engine, vad, Config::default(), Tenants::default());
        let samples: Vec<i16> = self.samples.iter().map(|sample| (sample * 32_767.0) as i16).collect();
        let language = LanguageChoice::Named("en".into());
        let options = verbatim::live::Options {
            language,
            interim_results: false,
            endpointing: None,
            ..streams::wanted()
        };
        let results = streams::heard(&live, options, &streams::cut(&bytes(&samples), &[3200])).await;
        streams::words(&results)
    }

    /// Each sentence is written where it is spoken, and no word is written elsewhere.
    fn assert_written<'a>(&self, name: &str, words: impl IntoIterator<Item = &'a Word>) {
        let words: Vec<&Word> = words.into_iter().collect();
        let all: Vec<(&str, f64, f64)> =
            words.iter().map(|word| (word.text.as_str(), word.start, word.end)).collect();
        for sentence in &self.sentences {
            let heard: String =
                words.iter().filter(|word| sentence.holds(word)).map(|word| word.text.as_str()).collect();
            let (said, heard) = (speech::words(&sentence.text), speech::words(&heard));
            let place = &sentence.seconds;
            let kept = in_order(&said, &heard) as f64 / said.len() as f64;
            assert!(kept >= MOST, "{name}: {kept:.2} of {said:?} at {place:.1?}: {all:.2?}");
        }
        for word in &words {
            let has_place = self.sentences.iter().any(|sentence| sentence.holds(word));
            assert!(has_place, "{name}: {} at {}: {all:.2?}", word.text, word.start);
        }
        let count = |text: &str| speech::words(text).len();
        let said: usize = self.sentences.iter().map(|sentence| count(&sentence.text)).sum();
        let heard: usize = words.iter().map(|word| count(&word.text)).sum();
        assert!(heard * 10 <= said * 11, "{name}: {heard} words of {said}: {all:.2?}");
    }
}

/// The words of a clip.
pub fn text(clip: &str) -> String {
    let manifest = std::fs::read_to_string(cache("speech/manifest.jsonl")).expect("readable");
    let rows = manifest.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let row = rows.into_iter().find(|row| row["file"] == format!("{clip}.wav")).expect(clip);
    row["text"].as_str().expect("a text").to_owned()
}

/// The most words of `said` that stand in `heard` in the same order.
pub fn in_order(said: &[String], heard: &[String]) -> usize {
    let mut row = vec![0; heard.len() + 1];
    for word in said {
        let mut diagonal = 0;
        for (n, other) in heard.iter().enumerate() {
            let both = if word == other { diagonal + 1 } else { row[n].max(row[n + 1]) };
            diagonal = std::mem::replace(&mut row[n + 1], both);
        }
    }
    row[heard.len()]
}

pub fn level(sound: &[f32], loudness: f32) -> Vec<f32> {
    let power = sound.iter().map(|sample| f64::from(sample * sample)).sum::<f64>() / sound.len() as f64;
    let gain = loudness / power.sqrt() as f32;
    sound.iter().map(|sample| sample * gain).collect()
}

/// `speech` without the vibration of the vocal folds: noise through the same vocal tract, by linear prediction.
fn whispered(speech: &[f32]) -> Vec<f32> {
    const ORDER: usize = 18;
    const FRAME: usize = RATE / 40;
    let lifted: Vec<f32> = speech.windows(2).map(|pair| pair[1] - 0.97 * pair[0]).collect();
    let hann = |n: usize| 0.5 - 0.5 * (TAU * n as f32 / (FRAME - 1) as f32).cos();
    let mut breath = white(5);
    let mut whisper = vec![0.0; speech.len()];
    for start in (0..lifted.len().saturating_sub(FRAME)).step_by(RATE / 100) {
        let frame: Vec<f32> = (0..FRAME).map(|n| lifted[start + n] * hann(n)).collect();
        let correlation = |lag: usize| frame.iter().zip(&frame[lag..]).map(|(a, b)| a * b).sum::<f32>();
        let (mut tract, mut error) = ([0.0_f32; ORDER], correlation(0) * 1.001 + 1e-9);
        // Levinson and Durbin's recursion.
        for order in 0..ORDER {
            let known: f32 = (0..order).map(|k| tract[k] * correlation(order - k)).sum();
            let reflection = (correlation(order + 1) - known) / error;
            let before = tract;
            (0..order).for_each(|k| tract[k] = before[k] - reflection * before[order - 1 - k]);
            tract[order] = reflection;
            error *= 1.0 - reflection * reflection;
        }
        let gain = (error.max(0.0) / FRAME as f32).sqrt();
        let mut said = [0.0_f32; FRAME];
        for n in 0..FRAME {
            let past: f32 = (0..ORDER.min(n)).map(|k| tract[k] * said[n - 1 - k]).sum();
            said[n] = gain * breath.next().expect("endless") + past;
            whisper[start + n] += said[n] * hann(n);
        }
    }
    whisper
}

/// White noise between -1 and 1.
fn white(seed: u32) -> impl Iterator<Item = f32> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(next(&seed), next).map(|state| (state >> 8) as f32 / (1 << 23) as f32 - 1.0)
}

/// Noise of equal power in each octave, as in a room.
pub fn pink(samples: usize, seed: u32) -> Vec<f32> {
    let mut slow = [0.0; 3];
    let sample = |white: f32| {
        let poles = [(0.997_65, 0.099_046), (0.963, 0.296_516_4), (0.57, 1.052_691_3)];
        for (value, (kept, taken)) in slow.iter_mut().zip(poles) {
            *value = kept * *value + taken * white;
        }
        slow.iter().sum::<f32>() + 0.1848 * white
    };
    white(seed).take(samples).map(sample).collect()
}

/// `sound` of the seconds since its start.
fn sounding(seconds: f64, sound: impl Fn(f32) -> f32) -> Vec<f32> {
    (0..(seconds * RATE as f64) as usize).map(|n| sound(n as f32 / RATE as f32)).collect()
}

fn sine(hertz: f32) -> impl Fn(f32) -> f32 {
    move |at| (TAU * (hertz * at).fract()).sin()
}

/// A band: a chord of three strings every 2 s, two drums twice a second.
fn band(seconds: f64, seed: u32) -> Vec<f32> {
    const CHORDS: [[f32; 3]; 4] =
        [[220.0, 277.0, 330.0], [196.0, 247.0, 294.0], [174.0, 220.0, 262.0], [165.0, 208.0, 247.0]];
    let string = |hertz: f32, at: f32| -> f32 {
        (1..=8).map(|k| sine(hertz * k as f32)(at) / (k as f32).powf(1.5)).sum()
    };
    let mut hiss = white(seed);
    let mut sound = sounding(seconds, |at| {
        let (chord, struck, beat) = (CHORDS[(at / 2.0) as usize % 4], at % 2.0, at % 0.5);
        let strings: f32 = chord.iter().map(|hertz| string(*hertz, struck)).sum();
        let low = if beat < 0.125 { 3.0 * sine(60.0)(beat) * (-32.0 * beat).exp() } else { 0.0 };
        strings * (-struck / 2.0).exp() * (1.0 + 0.3 * sine(5.0)(struck)) + low
    });
    for beat in sound.chunks_mut(RATE / 2) {
        for (n, sample) in beat.iter_mut().skip(RATE / 4).take(1500).enumerate() {
            *sample += hiss.next().expect("endless") * (-(n as f32) / 300.0).exp();
        }
    }
    sound
}

#[tokio::test]
async fn speech_after_music_and_over_it_is_written() {
    let scene = Scene::default()
        .play(&level(&band(8.0, 1), 0.2))
        .say("en_quick_brown_fox")
        .wait(0.25)
        .say("austen_0870")
        .wait(0.25)
        .say("jfk")
        .wait(0.25)
        .over(&level(&band(31.0, 1), 0.01));
    scene.assert_written("music", scene.transcribe().await.words());
}

/// After long steady noise the detector's first memory is deaf.
#[tokio::test]
async fn speech_after_long_noise_is_heard_and_written() {
    let scene = Scene::default()
        .say("en_quick_brown_fox")
        .wait(30.0)
        .say_at(10.0, &["en_quick_brown_fox"])
        .wait(1.0)
        .over_noise(10_f32.powf(-44.0 / 20.0));
    let vad = Vad::load(&cache("models/silero-vad")).expect("the model loads");
    let probabilities = vad.probabilities(&Pcm::new(scene.samples.clone()));
    let frame = |seconds: f64| (seconds * RATE as f64) as usize / FRAME_SAMPLES;
    let [first, second] = [0, 1].map(|number| {
        let place = &scene.sentences[number].seconds;
        let frames = &probabilities[frame(place.start)..frame(place.end)];
        frames.iter().filter(|probability| **probability > 0.5).count()
    });
    assert!(first > 30, "{first} frames of speech");
    assert!(second * 5 >= first * 4, "{second} frames of speech after the noise, {first} before it");
    scene.assert_written("noise", scene.transcribe().await.words());
}

/// The detector knows voices, and hears a part of a whisper at most.
#[tokio::test]
async fn a_whisper_is_written() {
    let scene = whispered_scene();
    scene.assert_written("whisper", scene.transcribe().await.words());
}

#[tokio::test]
async fn a_stream_writes_a_whisper() {
    let scene = whispered_scene();
    scene.assert_written("whisper", &scene.stream().await);
}

fn whispered_scene() -> Scene {
    let clip = read("speech/jfk.wav");
    let whisper = level(&whispered(clip.samples()), SPOKEN);
    let scene = Scene::default().wait(0.5);
    let start = scene.seconds();
    let mut scene = scene.play(&whisper);
    scene.sentences.push(Sentence { text: text("jfk"), seconds: start..scene.seconds() });
    scene.wait(0.5).over_noise(1e-4)
}

#[tokio::test]
async fn sentences_that_are_said_again_are_written_again() {
    let scene = Scene::default()
        .wait(0.5)
        .say("en_hello_world")
        .wait(1.5)
        .say("en_hello_world")
        .wait(12.0)
        .say("en_quick_brown_fox")
        .wait(1.5)
        .say("en_quick_brown_fox")
        .wait(1.0);
    scene.assert_written("twice", scene.transcribe().await.words());
}

/// The right text of such a window compresses as well as that of a loop.
#[tokio::test]
async fn a_long_sentence_that_is_said_again_is_no_loop() {
    let long = ["austen_0920", "austen_0870"];
    let scene = Scene::default().wait(0.2).say_at(0.0, &long).wait(0.5).say_at(0.0, &long).wait(0.2);
    assert!(scene.seconds() < 30.0, "one window");
    scene.assert_written("long", scene.transcribe().await.words());
}

fn quiet_between_loud(decibels: f32) -> Scene {
    Scene::default()
        .wait(0.8)
        .say("austen_0870")
        .wait(0.8)
        .say_at(decibels, &["en_quick_brown_fox"])
        .wait(0.8)
        .say("austen_0920")
        .wait(0.8)
        .over_noise(2e-4)
}

#[tokio::test]
async fn a_quiet_sentence_between_loud_ones_is_written() {
    for decibels in [-16.0, -26.0] {
        let scene = quiet_between_loud(decibels);
        let name = format!("{decibels} dB");
        scene.assert_written(&name, scene.transcribe().await.words());
    }
}

#[tokio::test]
async fn a_stream_writes_a_quiet_sentence_within_one_span() {
    for decibels in [-16.0, -26.0] {
        let scene = quiet_between_loud(decibels);
        scene.assert_written(&format!("{decibels} dB"), &scene.stream().await);
    }
}

#[tokio::test]
async fn nothing_is_written_over_sounds_without_speech() {
    const SECONDS: f64 = 20.0;
    let ring = |at: f32| if at % 6.0 < 2.0 { sine(440.0)(at) + sine(480.0)(at) } else { 0.0 };
    let hum = |at: f32| (1..8).map(|k| sine(50.0 * k as f32)(at) / k as f32).sum();
    // Between 500 and 1300 Hz, every 3.3 s.
    let siren = |at: f32| (TAU * 900.0 * at - 400.0 / 0.3 * (TAU * 0.3 * at).cos()).sin();
    let mut hiss = white(7);
    let mut knock = |n: usize| hiss.next().expect("endless") * (-((n % RATE) as f32) / 1500.0).exp();
    let sounds = [
        ("a band", band(SECONDS, 1)),
        ("a room", pink((SECONDS * RATE as f64) as usize, 1)),
        ("a telephone that rings", sounding(SECONDS, ring)),
        ("hum", sounding(SECONDS, hum)),
        ("a siren", sounding(SECONDS, siren)),
        ("knocks", (0..(SECONDS * RATE as f64) as usize).map(&mut knock).collect()),
    ];
    for (name, sound) in sounds {
        let transcript = speech::transcribe(&transcriber(), Pcm::new(level(&sound, SPOKEN))).await;
        assert_eq!(transcript.text(), "", "{name}");
        // Less than a short sentence.
        let seconds = transcript.voice_without_words;
        assert!(seconds < 1.0, "{name}: {seconds} s of voice");
    }
}
