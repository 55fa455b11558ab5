//! Encoding of other windows and alignment of words, which run beside the steps of decoding.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use verbatim::engine::{Condition, Config, Engine, Error, TenantId, Window};

use crate::engine::{Calls, start, start_with, text, window};
use crate::scripted::{Call, Script};

/// A window whose words are to have times.
fn timed(word: u16, steps: u16) -> Window {
    let mut window = window(word, steps);
    window.options.word_times = true;
    window
}

fn spawn(engine: &Engine, window: Window) -> JoinHandle<Result<String, Error>> {
    let engine = engine.clone();
    tokio::spawn(async move { text(&engine, window).await })
}

fn count(calls: &Calls, matches: impl Fn(&Call) -> bool) -> usize {
    calls.lock().expect("no panic").iter().filter(|call| matches(call)).count()
}

/// Waits until `is_so`; panics after half a minute.
async fn until(is_so: impl Fn() -> bool, expected: &str) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{expected}");
        tokio::task::yield_now().await;
    }
}

async fn until_called(calls: &Calls, call: Call) {
    let expected = format!("no {call:?}");
    until(|| count(calls, |other| *other == call) > 0, &expected).await;
}

fn steps_of(calls: &Calls, word: u16) -> usize {
    count(calls, |call| matches!(call, Call::Step(words) if words.contains(&word)))
}

#[tokio::test]
async fn windows_are_decoded_while_another_is_encoded() {
    let (step, step_gate) = mpsc::channel();
    let script = Script { step_gate: Some(step_gate), ..Script::default() };
    let encoding = script.still_encoding.clone();
    let (engine, calls) = start(4, script);
    let first = spawn(&engine, window(1, 10_000));
    until_called(&calls, Call::Begin(1, 0.0)).await;
    encoding.lock().expect("no panic").insert(2);
    let second = spawn(&engine, window(2, 3));
    until(
        || {
            let _ = step.send(());
            count(&calls, |call| *call == Call::Encode(vec![2])) > 0
        },
        "it is never encoded",
    )
    .await;
    // One batch at a time: the next one waits for this one.
    let third = spawn(&engine, window(3, 3));
    let before = steps_of(&calls, 1);
    until(
        || {
            let _ = step.send(());
            steps_of(&calls, 1) > before + 10
        },
        "its steps wait for the encoder",
    )
    .await;
    assert_eq!(steps_of(&calls, 2), 0);
    assert_eq!(count(&calls, |call| *call == Call::Encode(vec![3])), 0);
    encoding.lock().expect("no panic").clear();
    drop(step);
    for (word, answer) in [(1, first), (2, second), (3, third)] {
        assert_eq!(answer.await.expect("no panic").expect("accepted"), format!(" word{word}"));
    }
}

#[tokio::test]
async fn with_nothing_to_decode_the_worker_waits_for_the_encoder_and_asks_once() {
    let script = Script::default();
    let encoding = script.still_encoding.clone();
    encoding.lock().expect("no panic").insert(1);
    let (engine, calls) = start(4, script);
    let answer = spawn(&engine, window(1, 2));
    until_called(&calls, Call::StillEncoding(vec![1])).await;
    encoding.lock().expect("no panic").clear();
    assert_eq!(answer.await.expect("no panic").expect("accepted"), " word1");
    let calls = calls.lock().expect("no panic").clone();
    let expected = [
        Call::Encode(vec![1]),
        Call::StillEncoding(vec![1]),
        Call::WaitEncoded(vec![1]),
        Call::Begin(1, 0.0),
        Call::Step(vec![1]),
        Call::Step(vec![1]),
    ];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_window_is_encoded_holds_up_no_other() {
    let (step, step_gate) = mpsc::channel();
    let script = Script { step_gate: Some(step_gate), ..Script::default() };
    let encoding = script.still_encoding.clone();
    let (engine, calls) = start(4, script);
    let first = spawn(&engine, window(1, 10_000));
    until_called(&calls, Call::Begin(1, 0.0)).await;
    encoding.lock().expect("no panic").insert(2);
    let leaving = spawn(&engine, window(2, 3));
    until(
        || {
            let _ = step.send(());
            count(&calls, |call| *call == Call::Encode(vec![2])) > 0
        },
        "it is never encoded",
    )
    .await;
    leaving.abort();
    assert!(leaving.await.expect_err("it left").is_cancelled());
    drop(step);
    assert_eq!(text(&engine, window(3, 1)).await.expect("accepted"), " word3");
    assert_eq!(first.await.expect("no panic").expect("accepted"), " word1");
    assert_eq!(steps_of(&calls, 2), 0);
}

#[tokio::test]
async fn under_load_windows_are_encoded_several_at_a_time() {
    const WINDOWS: u16 = 400;
    let (open, gate) = mpsc::channel();
    let script = Script { gate: Some(gate), encode_batch: Some(4), ..Script::default() };
    let (engine, calls) = start_with(&Config::unbounded(), 64, script);
    let answers: Vec<_> =
        (0..WINDOWS).map(|word| spawn(&engine, window(word, 30 + word * 37 % 101))).collect();
    until(|| engine.held_seconds() >= f64::from(WINDOWS), "they are not all admitted").await;
    drop(open);
    for answer in answers {
        answer.await.expect("no panic").expect("accepted");
    }
    let encodings = count(&calls, |call| matches!(call, Call::Encode(_)));
    // A wait that ends before four slots are free makes a batch smaller, and never all of them.
    assert!(encodings <= usize::from(WINDOWS) / 2, "{encodings} encodings");
}

#[tokio::test]
async fn a_batch_leaves_the_last_free_slot_to_a_newcomer() {
    let (step, step_gate) = mpsc::channel();
    let script = Script { step_gate: Some(step_gate), encode_batch: Some(4), ..Script::default() };
    let (engine, calls) = start(4, script);
    let of_tenant = |tenant: u64, word: u16| Window { tenant: TenantId(tenant), ..window(word, 100) };
    let begun = || count(&calls, |call| matches!(call, Call::Begin(..)));
    let steps = || count(&calls, |call| matches!(call, Call::Step(_)));
    let mut answers = vec![spawn(&engine, of_tenant(1, 1))];
    until_called(&calls, Call::Begin(1, 0.0)).await;
    // All of them wait when the step is over. One tenant fills no more than all slots but one.
    answers.extend((2..7).map(|word| spawn(&engine, of_tenant(1, word))));
    answers.push(spawn(&engine, of_tenant(2, 100)));
    until(|| engine.held_seconds() >= 7.0, "they are not all admitted").await;
    for done in 1..5 {
        step.send(()).expect("the engine listens");
        until(|| steps() >= done, "no step").await;
    }
    assert!(begun() <= 3, "{} windows in slots", begun());
    answers.push(spawn(&engine, of_tenant(3, 200)));
    until(|| engine.held_seconds() >= 8.0, "it is not admitted").await;
    let mut done = 4;
    while count(&calls, |call| *call == Call::Begin(200, 0.0)) == 0 {
        done += 1;
        assert!(done < 90, "the newcomer waits for a slot");
        step.send(()).expect("the engine listens");
        until(|| steps() >= done, "no step").await;
    }
    assert!(begun() <= 4, "{} windows in slots", begun());
    drop(step);
    for answer in answers {
        answer.await.expect("no panic").expect("accepted");
    }
}

#[tokio::test]
async fn a_window_alone_is_encoded_at_once() {
    let (engine, calls) = start(64, Script { encode_batch: Some(8), ..Script::default() });
    for word in 1..4 {
        assert_eq!(text(&engine, window(word, 2)).await.expect("accepted"), format!(" word{word}"));
    }
    assert_eq!(count(&calls, |call| matches!(call, Call::Encode(words) if words.len() == 1)), 3);
}

#[tokio::test]
async fn while_words_are_aligned_their_slot_serves_others() {
    let (open, align_gate) = mpsc::channel();
    let (engine, calls) = start(1, Script { align_gate: Some(align_gate), ..Script::default() });
    let admission = engine.admit(TenantId::default(), 1.0).expect("idle");
    let aligned = tokio::spawn({
        let engine = engine.clone();
        async move { engine.recognize(&admission, timed(1, 1)).await }
    });
    until_called(&calls, Call::AlignmentBegins(1)).await;
    for word in 2..20 {
        assert_eq!(text(&engine, window(word, 1)).await.expect("accepted"), format!(" word{word}"));
    }
    assert!(!aligned.is_finished());
    assert_eq!(engine.counts().windows, 18);
    drop(open);
    let recognition = aligned.await.expect("no panic").expect("accepted");
    assert_eq!(recognition.segments[0].words[0].start, 0.25);
    assert_eq!(engine.counts().windows, 19);
}

#[tokio::test]
async fn more_windows_than_threads_and_places_are_all_aligned() {
    let (engine, calls) = start_with(&Config::unbounded(), 2, Script::default());
    let answers: Vec<_> = (0..500).map(|word| spawn(&engine, timed(word, 1))).collect();
    for (word, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.await.expect("no panic").expect("accepted"), format!(" word{word}"));
    }
    assert_eq!(count(&calls, |call| matches!(call, Call::AlignmentEnds(_))), 500);
}

#[tokio::test]
async fn an_alignment_that_fails_or_panics_fails_its_window_alone() {
    let script = Script { align_fails_on: Some(13), align_panics_on: Some(14), ..Script::default() };
    let (engine, _) = start(4, script);
    let answers: Vec<_> = (12..17).map(|word| spawn(&engine, timed(word, 1))).collect();
    for (word, answer) in (12..).zip(answers) {
        let answer = answer.await.expect("no panic");
        match word {
            13 | 14 => assert!(matches!(answer, Err(Error::ModelFailed(_))), "{answer:?}"),
            _ => assert_eq!(answer.expect("accepted"), format!(" word{word}")),
        }
    }
    assert_eq!(engine.condition(), Condition::Working);
    assert_eq!(engine.counts().windows, 3);
}

#[tokio::test]
async fn a_caller_that_leaves_while_its_words_are_aligned_takes_nothing_along() {
    let (open, align_gate) = mpsc::channel();
    let (engine, calls) = start(1, Script { align_gate: Some(align_gate), ..Script::default() });
    let leaving = spawn(&engine, timed(1, 1));
    until_called(&calls, Call::AlignmentBegins(1)).await;
    leaving.abort();
    assert!(leaving.await.expect_err("it left").is_cancelled());
    assert_eq!(engine.held_seconds(), 0.0);
    drop(open);
    assert_eq!(text(&engine, timed(2, 1)).await.expect("accepted"), " word2");
}

#[tokio::test]
async fn an_engine_ends_once_the_last_words_are_aligned() {
    let (open, align_gate) = mpsc::channel();
    let (engine, calls) = start(1, Script { align_gate: Some(align_gate), ..Script::default() });
    let leaving = spawn(&engine, timed(1, 1));
    until_called(&calls, Call::AlignmentBegins(1)).await;
    leaving.abort();
    assert!(leaving.await.expect_err("it left").is_cancelled());
    drop(engine);
    drop(open);
    // The model is dropped after the threads.
    until(|| Arc::strong_count(&calls) == 1, "the model is still there").await;
    assert_eq!(calls.lock().expect("no panic").last(), Some(&Call::AlignmentEnds(1)));
}

#[tokio::test]
async fn an_alignment_that_hangs_fails_what_waits_until_it_is_back() {
    let (open, align_gate) = mpsc::channel();
    let config = Config { stall_seconds: 0.2, ..Config::default() };
    let (engine, _) = start_with(&config, 2, Script { align_gate: Some(align_gate), ..Script::default() });
    assert!(matches!(text(&engine, timed(1, 1)).await, Err(Error::Unwell)));
    assert_eq!(engine.condition(), Condition::Hung);
    drop(open);
    until(|| engine.condition() == Condition::Working, "it never works again").await;
    assert_eq!(text(&engine, timed(2, 1)).await.expect("accepted"), " word2");
}
