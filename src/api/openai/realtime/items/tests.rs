use std::collections::HashMap;

use super::*;

const STYLE: Style = Style {
    is_beta: false,
    detects_turns: true,
    ends_at_pauses: true,
    prefix_padding_ms: 300,
    delay: Delay::Minimal,
    log_probabilities: false,
    has_speakers: false,
};
const MANUAL: Style = Style { detects_turns: false, ends_at_pauses: false, prefix_padding_ms: 0, ..STYLE };

/// A result from `start` to `end`, whose words have half a second each.
fn result(text: &str, start: f64, end: f64) -> Results {
    let word = |(place, text): (usize, &str)| Word {
        text: format!(" {text}"),
        start: start + 0.5 * place as f64,
        end: start + 0.5 * place as f64 + 0.4,
        probability: 0.5,
        speaker: None,
    };
    Results {
        channel: 0,
        start,
        duration: end - start,
        words: text.split_whitespace().enumerate().map(word).collect(),
        is_final: false,
        speech_final: false,
        from_finalize: false,
        names: Vec::new(),
        language: Some("en".into()),
    }
}

fn paused(text: &str, start: f64, end: f64) -> Results {
    Results { is_final: true, speech_final: true, ..result(text, start, end) }
}

fn finalized(text: &str, start: f64, end: f64) -> Results {
    Results { is_final: true, from_finalize: true, ..result(text, start, end) }
}

/// Each event in short, with items numbered by first appearance.
#[derive(Default)]
struct Short(HashMap<String, usize>);

impl Short {
    fn item(&mut self, id: &str) -> usize {
        let next = self.0.len();
        *self.0.entry(id.to_owned()).or_insert(next)
    }

    fn of(&mut self, events: &mut Vec<Event>) -> Vec<String> {
        let each = |event| match event {
            Event::SpeechStarted { audio_start_ms, item_id } => {
                format!("started {} {audio_start_ms}", self.item(&item_id))
            }
            Event::SpeechStopped { audio_end_ms, item_id } => {
                format!("stopped {} {audio_end_ms}", self.item(&item_id))
            }
            Event::Committed { previous_item_id, item_id } => match previous_item_id {
                Some(previous) => format!("committed {} after {}", self.item(&item_id), self.item(&previous)),
                None => format!("committed {}", self.item(&item_id)),
            },
            Event::Cleared => "cleared".to_owned(),
            Event::ItemAdded { item, .. } => format!("added {}", self.item(&item.id)),
            Event::ItemCreated { item, .. } => format!("created {}", self.item(&item.id)),
            Event::ItemDone { item, .. } => format!("done {}", self.item(&item.id)),
            Event::Delta { item_id, delta, .. } => format!("delta {} {delta:?}", self.item(&item_id)),
            Event::Segment { item_id, speaker, text, .. } => {
                format!("segment {} {speaker} {text}", self.item(&item_id))
            }
            Event::Completed { item_id, transcript, usage: Usage::Duration { seconds }, .. } => {
                format!("completed {} {transcript:?} {seconds}", self.item(&item_id))
            }
            Event::Failed { item_id, .. } => format!("failed {}", self.item(&item_id)),
            other => format!("{other:?}"),
        };
        events.drain(..).map(each).collect()
    }
}

#[test]
fn speech_becomes_items_by_its_pauses() {
    let (mut items, mut events, mut short) = (Items::new(STYLE), Vec::new(), Short::default());
    items.speech_started(1.0, &mut events);
    // A pause within it.
    items.speech_started(2.0, &mut events);
    items.results(&result("one two", 1.0, 2.0), &mut events);
    items.results(&result("one two three", 1.0, 2.5), &mut events);
    items.results(&paused("one two three four", 1.0, 3.5), &mut events);
    let first =
        ["started 0 700", "delta 0 \"one two\"", "delta 0 \" three four\"", "stopped 0 3500", "committed 0"];
    let first = first.into_iter().chain(["added 0", "done 0", "completed 0 \"one two three four\" 2.8"]);
    assert_eq!(short.of(&mut events), first.collect::<Vec<_>>());

    // Silence, and then a span that was cut because it was long.
    items.results(&Results { is_final: true, ..result("", 3.5, 8.5) }, &mut events);
    items.speech_started(8.6, &mut events);
    items.results(&Results { is_final: true, ..result("five", 8.5, 37.0) }, &mut events);
    items.results(&paused("six", 37.0, 38.0), &mut events);
    let second =
        ["started 1 8300", "delta 1 \"five\"", "delta 1 \" six\"", "stopped 1 38000", "committed 1 after 0"];
    let second = second.into_iter().chain(["added 1", "done 1", "completed 1 \"five six\" 29.7"]);
    assert_eq!(short.of(&mut events), second.collect::<Vec<_>>());
}

#[test]
fn every_end_has_its_start() {
    let (mut items, mut events, mut short) = (Items::new(STYLE), Vec::new(), Short::default());
    // Too short for a start of speech, and noise that was no speech.
    items.results(&paused("Hm.", 0.2, 1.0), &mut events);
    items.results(&paused("", 1.0, 2.0), &mut events);
    items.speech_started(2.5, &mut events);
    items.results(&paused("", 2.0, 3.0), &mut events);
    let expected = ["started 0 0", "delta 0 \"Hm.\"", "stopped 0 1000", "committed 0", "added 0", "done 0"];
    let expected = expected.into_iter().chain(["completed 0 \"Hm.\" 1", "started 1 2200", "stopped 1 3000"]);
    let expected = expected.chain(["committed 1 after 0", "added 1", "done 1", "completed 1 \"\" 0.8"]);
    assert_eq!(short.of(&mut events), expected.collect::<Vec<_>>());
    items.ended(4.0, &mut events);
    assert_eq!(short.of(&mut events), [""; 0]);
}

#[test]
fn commits_make_items_in_order() {
    let (mut items, mut events, mut short) = (Items::new(MANUAL), Vec::new(), Short::default());
    items.speech_started(0.1, &mut events);
    items.results(&result("one", 0.0, 0.5), &mut events);
    items.results(&result("one two", 0.0, 1.0), &mut events);
    items.commit(1500, &mut events);
    assert_eq!(items.buffered_ms(1500), 0);
    items.commit(2000, &mut events);
    assert_eq!(
        short.of(&mut events),
        ["delta 0 \"one\"", "committed 0", "added 0", "done 0", "committed 1 after 0", "added 1", "done 1",]
    );
    items.results(&finalized("one two", 0.0, 1.5), &mut events);
    items.results(&finalized("three", 1.5, 2.0), &mut events);
    items.results(&Results { is_final: true, ..result("four", 2.0, 3.0) }, &mut events);
    items.commit(3000, &mut events);
    items.results(&finalized("", 3.0, 3.0), &mut events);
    assert_eq!(
        short.of(&mut events),
        [
            "delta 0 \" two\"",
            "completed 0 \"one two\" 1.5",
            "delta 1 \"three\"",
            "completed 1 \"three\" 0.5",
            "delta 2 \"four\"",
            "committed 2 after 1",
            "added 2",
            "done 2",
            "completed 2 \"four\" 1",
        ]
    );
}

#[test]
fn what_is_cleared_is_not_heard() {
    for style in [STYLE, MANUAL] {
        let (mut items, mut events, mut short) = (Items::new(style), Vec::new(), Short::default());
        items.clear(1000, &mut events);
        assert_eq!(items.buffered_ms(1200), 200);
        items.speech_started(0.5, &mut events);
        items.results(&result("no", 0.0, 0.8), &mut events);
        items.results(&paused("no", 0.0, 0.9), &mut events);
        items.results(&finalized("no", 0.9, 1.0), &mut events);
        assert_eq!(short.of(&mut events), ["cleared"]);
        items.commit(2000, &mut events);
        items.results(&finalized("yes", 1.0, 2.0), &mut events);
        let events = short.of(&mut events);
        assert_eq!(events.last().map(String::as_str), Some("completed 0 \"yes\" 1"), "{events:?}");
        assert_eq!(events.iter().filter(|event| event.starts_with("committed")).count(), 1);
    }
}

#[test]
fn a_client_may_commit_before_the_pause() {
    let (mut items, mut events, mut short) = (Items::new(STYLE), Vec::new(), Short::default());
    items.speech_started(0.5, &mut events);
    items.commit(2000, &mut events);
    // The pause came before the commit did.
    items.results(&paused("one", 0.5, 1.5), &mut events);
    items.results(&finalized("", 1.5, 2.0), &mut events);
    assert_eq!(
        short.of(&mut events),
        [
            "started 0 200",
            "delta 0 \"one\"",
            "stopped 0 1500",
            "committed 0",
            "added 0",
            "done 0",
            "completed 0 \"one\" 1.3",
            "committed 1 after 0",
            "added 1",
            "done 1",
            "completed 1 \"\" 2",
        ]
    );
}

#[test]
fn after_a_failure_each_item_is_named_once() {
    let (mut items, mut events, mut short) = (Items::new(MANUAL), Vec::new(), Short::default());
    items.results(&result("one", 0.0, 0.5), &mut events);
    items.results(&result("one", 0.0, 0.6), &mut events);
    items.commit(1000, &mut events);
    items.clear(1500, &mut events);
    items.commit(2000, &mut events);
    events.clear();
    items.failed(&Failed { kind: "server_error", code: "x", message: "x", param: None }, &mut events);
    assert_eq!(short.of(&mut events), ["failed 0", "failed 1"]);
}

#[test]
fn the_beta_has_its_own_names_and_words_their_probabilities() {
    let style = Style { is_beta: true, log_probabilities: true, ..MANUAL };
    let (mut items, mut events, mut short) = (Items::new(style), Vec::new(), Short::default());
    items.commit(1000, &mut events);
    assert_eq!(short.of(&mut events), ["committed 0", "created 0"]);
    items.results(&finalized("yes", 0.0, 1.0), &mut events);
    let [Event::Delta { logprobs: delta, .. }, Event::Completed { logprobs, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(delta, logprobs);
    let [word] = logprobs.as_deref().unwrap() else { panic!("{logprobs:?}") };
    assert_eq!((word.token.as_str(), word.bytes.as_slice()), (" yes", &b" yes"[..]));
    assert!((word.logprob - 0.5f64.ln()).abs() < 1e-6);
}

#[test]
fn speakers_have_segments() {
    let style = Style { has_speakers: true, delay: Delay::Xhigh, ..MANUAL };
    let (mut items, mut events, mut short) = (Items::new(style), Vec::new(), Short::default());
    items.commit(1000, &mut events);
    let mut said = finalized("one two three four", 0.0, 2.0);
    for (word, index) in said.words.iter_mut().zip([0, 0, 1, 0]) {
        word.speaker = Some(crate::transcript::Speaker { index, confidence: 1.0 });
    }
    events.clear();
    items.results(&said, &mut events);
    let events = short.of(&mut events);
    assert_eq!(events[..3], ["segment 0 A one two", "segment 0 B three", "segment 0 A four"]);
}

#[test]
fn speech_stops_before_its_words_come() {
    let (mut items, mut events, mut short) = (Items::new(STYLE), Vec::new(), Short::default());
    // A click that was no speech to clients.
    items.paused(0.5, &mut events);
    items.speech_started(1.0, &mut events);
    items.paused(2.5, &mut events);
    assert_eq!(
        short.of(&mut events),
        ["started 0 700", "stopped 0 2500", "committed 0", "added 0", "done 0"]
    );
    items.results(&paused("one", 1.0, 2.5), &mut events);
    assert_eq!(short.of(&mut events), ["delta 0 \"one\"", "completed 0 \"one\" 1.8"]);
}

#[test]
fn pauses_do_not_end_a_turn_that_goes_on() {
    let style = Style { ends_at_pauses: false, ..STYLE };
    let (mut items, mut events, mut short) = (Items::new(style), Vec::new(), Short::default());
    items.turn_ended(0.5, &mut events);
    items.speech_started(1.0, &mut events);
    for text in ["one", "two"] {
        items.paused(2.0, &mut events);
        items.results(&paused(text, 1.0, 2.0), &mut events);
        items.results(&Results { is_final: true, ..result("", 2.0, 7.0) }, &mut events);
    }
    assert_eq!(short.of(&mut events), ["started 0 700", "delta 0 \"one\"", "delta 0 \" two\""]);
    items.turn_ended(8.0, &mut events);
    let expected = ["stopped 0 8000", "committed 0", "added 0", "done 0", "completed 0 \"one two\" 7.3"];
    assert_eq!(short.of(&mut events), expected);
}
