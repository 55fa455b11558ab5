use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::vad::FRAME_SAMPLES;

const FRAME: f64 = FRAME_SAMPLES as f64 / 16_000.0;
/// Frames of silence that close a span: 320 ms.
const PAUSE_FRAMES: usize = 10;

/// A stream as a session would report it: speech is recognised as it grows, and closed at a pause.
struct Stream {
    taker: Taker,
    frames: usize,
    silent: usize,
    span_start: f64,
    /// The words of the open span.
    words: Vec<Word>,
    /// The model's answers, if there is one.
    probability: Option<f32>,
    /// Why final results were asked for.
    finalizes: usize,
}

fn thresholds(end: f64, eager_end: Option<f64>, timeout_ms: u64) -> Thresholds {
    Thresholds { end, eager_end, timeout: Duration::from_millis(timeout_ms) }
}

impl Stream {
    fn new(thresholds: Thresholds, probability: Option<f32>) -> Self {
        let taker = Taker::new(thresholds, probability.is_some());
        Self { taker, frames: 0, silent: 0, span_start: 0.0, words: Vec::new(), probability, finalizes: 0 }
    }

    fn position(&self) -> f64 {
        self.frames as f64 * FRAME
    }

    fn results(&mut self, close: Option<(bool, bool)>) {
        let (speech_final, from_finalize) = close.unwrap_or_default();
        let results = Results {
            channel: 0,
            start: self.span_start,
            duration: self.position() - self.span_start,
            words: self.words.clone(),
            is_final: close.is_some(),
            speech_final,
            from_finalize,
            names: Vec::new(),
            language: Some("en".to_owned()),
        };
        if close.is_some() {
            self.words.clear();
            self.span_start = self.position();
        }
        self.taker.results(results);
    }

    fn frame(&mut self, is_speech: bool) {
        self.frames += 1;
        self.silent = if is_speech { 0 } else { self.silent + 1 };
        if self.taker.frame(self.position(), is_speech) {
            self.taker.ask(Trigger::Timeout);
            self.finalizes += 1;
        }
        if self.silent == PAUSE_FRAMES {
            let awaits = self.taker.awaits_judgement();
            self.results(Some((true, false)));
            if awaits {
                self.taker.judged(self.probability);
            }
        }
        for _ in 0..std::mem::take(&mut self.finalizes) {
            self.results(Some((false, true)));
        }
    }

    /// Speech of so many frames that is heard as `word`.
    fn say(&mut self, word: &str, frames: usize) -> &mut Self {
        let start = self.position();
        (0..frames).for_each(|_| self.frame(true));
        if !word.is_empty() {
            self.words.push(Word {
                text: format!(" {word}"),
                start,
                end: self.position(),
                probability: 0.9,
                speaker: None,
            });
        }
        self.results(None);
        self
    }

    fn pause(&mut self, milliseconds: u32) -> &mut Self {
        let frames = (f64::from(milliseconds) / 1000.0 / FRAME).round() as usize;
        (0..frames).for_each(|_| self.frame(false));
        self
    }

    fn force_end(&mut self) -> &mut Self {
        self.taker.ask(Trigger::Client);
        self.results(Some((false, true)));
        self
    }

    fn end(&mut self) -> &mut Self {
        self.results(Some((false, false)));
        self.taker.end();
        self
    }

    fn events(&mut self) -> Vec<TurnEvent> {
        std::iter::from_fn(|| self.taker.pop()).collect()
    }

    /// The events so far, without updates: each with its turn and text.
    fn changes(&mut self) -> Vec<(Kind, u64, String)> {
        let mut events = self.events();
        events.retain(|event| event.kind != Kind::Update);
        events.into_iter().map(|event| (event.kind, event.index, text(&event))).collect()
    }
}

fn text(event: &TurnEvent) -> String {
    event.words.iter().map(|word| word.text.as_str()).collect::<String>().trim().to_owned()
}

fn told(kind: Kind, index: u64, text: &str) -> (Kind, u64, String) {
    (kind, index, text.to_owned())
}

#[test]
fn a_turn_begins_with_words_and_ends_when_the_model_is_sure() {
    let mut stream = Stream::new(thresholds(0.7, None, 5000), Some(0.95));
    stream.pause(500).say("hello", 10).say("there", 10).pause(1000);
    let end = Kind::End(Trigger::Confidence);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "hello"), told(end, 0, "hello there")]);
    stream.say("again", 10).pause(1000);
    assert_eq!(stream.changes(), [told(Kind::Start, 1, "again"), told(end, 1, "again")]);
}

#[test]
fn what_the_model_calls_unfinished_waits_for_more_speech_or_for_silence() {
    let mut stream = Stream::new(thresholds(0.7, None, 5000), Some(0.05));
    stream.say("I would like", 20).pause(1500).say("a coffee", 20).pause(1500);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "I would like")]);
    stream.pause(1000);
    assert_eq!(stream.changes(), [told(Kind::End(Trigger::Confidence), 0, "I would like a coffee")]);
}

#[test]
fn without_a_model_silence_ends_a_turn_like_a_voice_agents() {
    let mut stream = Stream::new(thresholds(0.7, None, 5000), None);
    stream.say("hello", 10).pause(570);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "hello")]);
    stream.pause(60);
    assert_eq!(stream.changes(), [told(Kind::End(Trigger::Confidence), 0, "hello")]);
}

#[test]
fn an_announced_end_is_followed_by_an_end_or_by_more() {
    let mut stream = Stream::new(thresholds(0.9, Some(0.4), 5000), Some(0.5));
    stream.say("one", 10).pause(500);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "one"), told(Kind::EagerEnd, 0, "one")]);
    stream.say("two", 10).pause(400);
    assert_eq!(stream.changes(), [told(Kind::Resumed, 0, "one"), told(Kind::EagerEnd, 0, "one two")]);
    stream.pause(3000);
    assert_eq!(stream.changes(), [told(Kind::End(Trigger::Confidence), 0, "one two")]);
}

#[test]
fn a_sure_end_is_announced_too() {
    let mut stream = Stream::new(thresholds(0.7, Some(0.5), 5000), Some(0.99));
    stream.say("done", 10).pause(400);
    let end = Kind::End(Trigger::Confidence);
    assert_eq!(
        stream.changes(),
        [told(Kind::Start, 0, "done"), told(Kind::EagerEnd, 0, "done"), told(end, 0, "done")]
    );
}

#[test]
fn a_turn_ends_at_its_timeout_whatever_the_confidence() {
    let mut stream = Stream::new(thresholds(1.0, None, 2000), Some(1.0));
    stream.say("one", 10).pause(1900);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "one")]);
    stream.pause(150);
    assert_eq!(stream.changes(), [told(Kind::End(Trigger::Timeout), 0, "one")]);
}

/// What the detector calls speech, and the recogniser calls nothing, keeps no turn open.
#[test]
fn noise_is_silence() {
    let mut stream = Stream::new(thresholds(1.0, None, 2000), Some(0.0));
    stream.say("one", 10);
    for _ in 0..10 {
        stream.say("", 10);
    }
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "one"), told(Kind::End(Trigger::Timeout), 0, "one")]);
    let mut stream = Stream::new(thresholds(0.7, None, 2000), Some(0.0));
    stream.say("one", 10);
    for _ in 0..10 {
        stream.pause(350).say("", 1);
    }
    assert_eq!(stream.changes().last(), Some(&told(Kind::End(Trigger::Timeout), 0, "one")));
}

#[test]
fn the_client_ends_a_turn_but_not_a_silence() {
    let mut stream = Stream::new(thresholds(1.0, None, 60_000), Some(0.0));
    stream.pause(1000).force_end();
    assert_eq!(stream.changes(), []);
    stream.say("one", 10).force_end();
    let end = Kind::End(Trigger::Client);
    assert_eq!(stream.changes(), [told(Kind::Start, 0, "one"), told(end, 0, "one")]);
    // Speech of which nothing was recognised yet.
    stream.words.push(Word { text: " two".into(), start: 1.0, end: 1.2, probability: 0.9, speaker: None });
    stream.force_end();
    assert_eq!(stream.changes(), [told(Kind::Start, 1, "two"), told(end, 1, "two")]);
}

#[test]
fn the_end_of_the_audio_ends_the_last_turn() {
    let mut stream = Stream::new(thresholds(0.7, Some(0.3), 5000), Some(0.0));
    stream.say("one", 10).end();
    assert_eq!(stream.changes().last(), Some(&told(Kind::End(Trigger::Client), 0, "one")));
    let mut silent = Stream::new(thresholds(0.7, None, 5000), Some(0.0));
    silent.pause(3000).end();
    assert_eq!(silent.changes(), []);
}

#[test]
fn there_is_an_update_for_every_quarter_of_a_second() {
    let mut stream = Stream::new(thresholds(0.7, None, 5000), Some(0.9));
    stream.pause(2048);
    let events = stream.events();
    assert_eq!(events.len(), 8);
    assert!(events.iter().all(|event| event.kind == Kind::Update && event.words.is_empty()));
    assert!(events.iter().all(|event| event.confidence == 0.0 && event.window.start == 0.0));
}

#[test]
fn a_turn_without_end_is_ended() {
    let mut stream = Stream::new(thresholds(0.7, None, 5000), Some(0.9));
    for _ in 0..(TURN_SECONDS_MAX / FRAME) as usize / 10 + 2 {
        stream.say("on", 10);
    }
    let ends = stream.changes().iter().filter(|(kind, ..)| *kind == Kind::End(Trigger::Timeout)).count();
    assert_eq!(ends, 1);
}

proptest! {
    /// The promises of the protocol, for any speech, thresholds and answers of the model.
    #[test]
    fn turns_keep_their_promises(
        steps in prop::collection::vec((0u8..5, 1u32..40), 1..40),
        end in 0.5f64..=1.0,
        eager in prop::option::of(0.3f64..=0.9),
        probability in prop::option::of(0.0f32..=1.0),
        timeout_ms in 500u64..5000,
    ) {
        let eager = eager.filter(|eager| *eager <= end);
        let mut stream = Stream::new(thresholds(end, eager, timeout_ms), probability);
        let mut spoken = Vec::new();
        for (number, &(step, length)) in steps.iter().enumerate() {
            match step {
                0 | 1 => {
                    spoken.push(format!("w{number}"));
                    stream.say(&format!("w{number}"), length as usize)
                }
                2 => stream.pause(length * 60),
                3 => stream.say("", length as usize),
                _ => stream.force_end(),
            };
        }
        stream.end();
        let events = stream.events();
        let (mut index, mut is_open, mut announced) = (0, false, None);
        let mut kept = Vec::new();
        let mut last = 0.0;
        for event in events {
            prop_assert_eq!(event.index, index);
            prop_assert!(event.window.end >= event.window.start && event.window.end >= last);
            prop_assert!((0.0..=1.0).contains(&event.confidence));
            last = event.window.end;
            match event.kind {
                Kind::Start => {
                    prop_assert!(!is_open && !event.words.is_empty());
                    is_open = true;
                }
                Kind::EagerEnd => {
                    prop_assert!(is_open && eager.is_some() && announced.is_none() && !event.words.is_empty());
                    announced = Some(text(&event));
                }
                Kind::Resumed => {
                    prop_assert!(announced.take().is_some());
                }
                Kind::End(_) => {
                    prop_assert!(is_open);
                    if let Some(announced) = announced.take() {
                        prop_assert_eq!(announced, text(&event));
                    }
                    kept.extend(event.words.iter().map(|word| word.text.trim().to_owned()));
                    (is_open, index) = (false, index + 1);
                }
                Kind::Update => {
                    prop_assert!(is_open || event.words.is_empty());
                    if let Some(announced) = &announced {
                        prop_assert_eq!(announced, &text(&event));
                    }
                }
            }
        }
        prop_assert!(!is_open);
        // Nothing is lost, and nothing comes twice.
        prop_assert_eq!(kept, spoken);
    }
}
