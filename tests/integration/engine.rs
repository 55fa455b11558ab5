//! The engine through its handle: batching, waiting, cancellation.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use verbatim::engine::{
    Class, Condition, Config, DecodingOptions, Engine, Error, LanguageChoice, Progress, SpeechModel, Task,
    TenantId, Window,
};
use verbatim::patience::Deadline;
use verbatim::share::Asker;

use crate::scripted::{Call, Script, ScriptedModel, speech};

pub fn start(slots: usize, script: Script) -> (Engine, Calls) {
    start_with(&Config::default(), slots, script)
}

pub fn start_with(config: &Config, slots: usize, script: Script) -> (Engine, Calls) {
    let model = ScriptedModel::new(slots, script);
    let calls = model.calls.clone();
    let load = move || Ok::<Box<dyn SpeechModel>, std::convert::Infallible>(Box::new(model));
    (Engine::start(config, load).expect("a scripted model loads"), calls)
}

pub type Calls = Arc<Mutex<Vec<Call>>>;

/// Two devices, each of which encodes when its gate is opened.
fn start_two(config: &Config) -> (Engine, [mpsc::Sender<()>; 2], [Calls; 2]) {
    let (gates, models): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (open, gate) = mpsc::channel();
            (open, ScriptedModel::new(4, Script { gate: Some(gate), ..Script::default() }))
        })
        .unzip();
    let calls: Vec<_> = models.iter().map(|model| model.calls.clone()).collect();
    let load = models
        .into_iter()
        .map(|model| move || Ok::<Box<dyn SpeechModel>, std::convert::Infallible>(Box::new(model)));
    let engine = Engine::start_each(config, load.collect()).expect("scripted models load");
    (engine, gates.try_into().expect("two"), calls.try_into().expect("two"))
}

pub fn window(word: u16, steps: u16) -> Window {
    Window {
        pcm: speech(word, steps, 1.0),
        options: DecodingOptions {
            language: LanguageChoice::Named("en".into()),
            ..DecodingOptions::default()
        },
        class: Class::Interactive,
        tenant: TenantId(1),
        deadline: None,
    }
}

pub async fn text(engine: &Engine, window: Window) -> Result<String, Error> {
    let admission = engine.admit(TenantId::default(), window.pcm.duration_seconds())?;
    let recognition = engine.recognize(&admission, window).await?;
    Ok(recognition.segments.iter().map(|segment| segment.text.as_str()).collect())
}

#[tokio::test]
async fn thousands_of_concurrent_windows_each_get_their_own_words() {
    let (engine, _) = start(8, Script::default());
    let windows = (0..3000u16).map(|word| {
        let engine = engine.clone();
        tokio::spawn(async move { (word, text(&engine, window(word, word % 7 + 1)).await) })
    });
    for answer in windows.collect::<Vec<_>>() {
        let (word, answer) = answer.await.expect("no panic");
        assert_eq!(answer.expect("accepted"), format!(" word{word}"));
    }
}

#[tokio::test]
async fn a_short_sequence_leaves_the_batch_and_another_enters_while_a_long_one_runs() {
    let (open, gate) = mpsc::channel();
    let (engine, calls) = start(2, Script { gate: Some(gate), ..Script::default() });
    let long = tokio::spawn({
        let engine = engine.clone();
        async move { text(&engine, window(1, 50)).await }
    });
    let short: Vec<_> = (2..6)
        .map(|word| {
            let engine = engine.clone();
            tokio::spawn(async move { text(&engine, window(word, 3)).await })
        })
        .collect();
    // All are queued before the first is encoded.
    while engine.held_seconds() < 5.0 {
        tokio::task::yield_now().await;
    }
    drop(open);
    assert_eq!(long.await.expect("no panic").expect("accepted"), " word1");
    for short in short {
        short.await.expect("no panic").expect("accepted");
    }
    let calls = calls.lock().expect("no panic").clone();
    let last_with_long =
        calls.iter().rposition(|call| matches!(call, Call::Step(words) if words.contains(&1)));
    let last_short_entered =
        calls.iter().rposition(|call| matches!(call, Call::Begin(word, _) if *word != 1));
    assert!(last_short_entered < last_with_long, "{calls:?}");
}

#[tokio::test]
async fn an_improbable_attempt_is_repeated_hotter_and_the_best_is_kept() {
    let improbable_below = [(7, 0.5), (8, 9.0)].into();
    let (engine, calls) = start(2, Script { improbable_below, ..Script::default() });
    let temperature = async |word| {
        let admission = engine.admit(TenantId::default(), 1.0).expect("idle");
        let recognition = engine.recognize(&admission, window(word, 1)).await.expect("accepted");
        recognition.segments[0].temperature
    };
    assert_eq!(temperature(7).await, 0.6);
    // None is good enough: all are equally improbable, so the first stays.
    assert_eq!(temperature(8).await, 0.0);
    let encodings =
        calls.lock().expect("no panic").iter().filter(|call| matches!(call, Call::Encode(_))).count();
    assert_eq!(encodings, 2, "another attempt must not encode again");
}

#[tokio::test]
async fn an_attempt_that_ends_in_a_loop_is_repeated_hotter_or_the_rest_of_its_window_is_left() {
    let looped_below = [(7, (0.3, 8.0)), (8, (9.0, 8.0)), (9, (9.0, 1.0)), (10, (9.0, 1.0))].into();
    let (engine, _) = start(2, Script { looped_below, ..Script::default() });
    let heard = async |word, seconds| {
        let admission = engine.admit(TenantId::default(), seconds).expect("idle");
        let window = Window { pcm: speech(word, 1, seconds), ..window(word, 1) };
        let recognition = engine.recognize(&admission, window).await.expect("accepted");
        let segment = &recognition.segments[0];
        (segment.temperature, segment.looped, recognition.consumed_samples as f64 / 16_000.0)
    };
    assert_eq!(heard(7, 20.0).await, (0.4, false, 20.0));
    // All attempts end in one: the rest is another window, which begins where the loop did.
    assert_eq!(heard(8, 20.0).await, (0.0, true, 8.0));
    // And so that this can't go on for long, not too soon.
    assert_eq!(heard(9, 20.0).await, (0.0, true, 5.0));
    assert_eq!(heard(10, 2.0).await, (0.0, true, 2.0));
}

#[tokio::test]
async fn a_caller_that_leaves_frees_its_window_and_its_slot() {
    let (open, gate) = mpsc::channel();
    let (step, step_gate) = mpsc::channel();
    let (engine, calls) =
        start(1, Script { gate: Some(gate), step_gate: Some(step_gate), ..Script::default() });
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { text(&engine, window(1, 10_000)).await }
    });
    let queued = tokio::spawn({
        let engine = engine.clone();
        async move { text(&engine, window(2, 1)).await }
    });
    while engine.held_seconds() < 2.0 {
        tokio::task::yield_now().await;
    }
    open.send(()).expect("the engine listens");
    running.abort();
    queued.abort();
    while engine.held_seconds() > 0.0 {
        tokio::task::yield_now().await;
    }
    drop((open, step));
    assert_eq!(text(&engine, window(3, 1)).await.expect("accepted"), " word3");
    let calls = calls.lock().expect("no panic").clone();
    assert!(!calls.contains(&Call::Encode(vec![2])), "abandoned work was done: {calls:?}");
    let steps = calls.iter().filter(|call| matches!(call, Call::Step(words) if words.contains(&1))).count();
    assert!(steps < 10_000, "the abandoned sequence ran to its end");
}

#[tokio::test]
async fn a_failed_batch_answers_its_windows_and_the_engine_goes_on() {
    let (engine, _) = start(2, Script { fails_on: Some(13), ..Script::default() });
    assert!(matches!(text(&engine, window(13, 1)).await, Err(Error::ModelFailed(_))));
    assert_eq!(text(&engine, window(14, 1)).await.expect("accepted"), " word14");
}

#[tokio::test]
async fn what_cannot_be_honoured_is_refused_before_it_is_queued() {
    let (engine, calls) = start(1, Script::default());
    let mut unknown = window(1, 1);
    unknown.options.language = LanguageChoice::Named("xx".into());
    assert!(matches!(text(&engine, unknown).await, Err(Error::UnknownLanguage(code)) if code == "xx"));
    let mut long = window(1, 1);
    long.pcm = speech(1, 1, 30.1);
    assert!(matches!(text(&engine, long).await, Err(Error::WindowTooLong)));
    let mut late = window(1, 1);
    late.deadline = Some(Deadline::after(Duration::ZERO));
    assert!(matches!(text(&engine, late).await, Err(Error::DeadlineExceeded)));
    assert!(calls.lock().expect("no panic").is_empty());
    let mut translated = window(1, 1);
    translated.options.task = Task::Translate;
    assert!(text(&engine, translated).await.is_ok());
}

#[tokio::test]
async fn beyond_its_bound_the_engine_says_when_to_come_back() {
    let (open, gate) = mpsc::channel();
    let config = Config { max_held_seconds: 10.0, ..Config::default() };
    let (engine, _) = start_with(&config, 1, Script { gate: Some(gate), ..Script::default() });
    let first = engine.admit(TenantId::default(), 9.0).expect("idle");
    let Err(Error::Overloaded { retry_after }) = engine.admit(TenantId::default(), 5.0).map(|_| ()) else {
        panic!("accepted")
    };
    assert!(retry_after >= Duration::from_secs(1) && retry_after <= Duration::from_secs(120));
    drop(first);
    assert!(engine.admit(TenantId::default(), 5.0).is_ok());
    drop(open);
}

#[tokio::test]
async fn words_are_aligned_only_where_asked() {
    let (engine, calls) = start(2, Script::default());
    let mut timed = window(1, 1);
    timed.options.word_times = true;
    let admission = engine.admit(TenantId::default(), 2.0).expect("idle");
    let recognition = engine.recognize(&admission, timed).await.expect("accepted");
    assert_eq!(recognition.segments[0].words[0].start, 0.25);
    engine.recognize(&admission, window(2, 1)).await.expect("accepted");
    let calls = calls.lock().expect("no panic").clone();
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::Align(_))).count(), 1);
}

#[tokio::test]
async fn nobody_gets_anothers_words_among_classes_tenants_silence_and_those_who_leave() {
    let script = Script { silence: Some(5), ..Script::default() };
    let (engine, _) = start_with(&Config { max_requests: 8000, ..Config::default() }, 8, script);
    let classes = [Class::Live, Class::Interactive, Class::Job];
    let windows = (1..6000u16).map(|word| {
        let mut window = window(word, word % 11 + 1);
        window.class = classes[usize::from(word % 3)];
        window.tenant = TenantId(u64::from(word % 17));
        let engine = engine.clone();
        let task = tokio::spawn(async move { text(&engine, window).await });
        (word, task)
    });
    let mut left = 0;
    for (index, (word, task)) in windows.collect::<Vec<_>>().into_iter().enumerate() {
        // Some leave before they are looked at, some while they wait, some while they are decoded.
        if word % 7 == 3 {
            task.abort();
        }
        if index % 50 == 0 {
            tokio::task::yield_now().await;
        }
        match task.await {
            Ok(heard) => {
                let said = if word % 5 == 0 { String::new() } else { format!(" word{word}") };
                assert_eq!(heard.expect("accepted"), said);
            }
            Err(error) => {
                assert!(error.is_cancelled() && word % 7 == 3, "{error}");
                left += 1;
            }
        }
    }
    assert!(left > 0);
    assert_eq!(engine.held_seconds(), 0.0);
}

#[tokio::test]
async fn a_caller_that_leaves_frees_its_slot_within_a_step() {
    let (step, step_gate) = mpsc::channel();
    let (engine, calls) = start(1, Script { step_gate: Some(step_gate), ..Script::default() });
    let steps_of = |word: u16| {
        let calls = calls.lock().expect("no panic");
        calls.iter().filter(|call| matches!(call, Call::Step(words) if words.contains(&word))).count()
    };
    let leaving = tokio::spawn({
        let engine = engine.clone();
        async move { text(&engine, window(1, 1000)).await }
    });
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { text(&engine, window(2, 1)).await }
    });
    for done in 1..4 {
        step.send(()).expect("the engine listens");
        while steps_of(1) < done {
            tokio::task::yield_now().await;
        }
    }
    leaving.abort();
    assert!(leaving.await.expect_err("it left").is_cancelled());
    // One step may have begun before it left. The next is the other's.
    step.send(()).expect("the engine listens");
    step.send(()).expect("the engine listens");
    assert_eq!(waiting.await.expect("no panic").expect("accepted"), " word2");
    assert!(steps_of(1) <= 4, "{} steps", steps_of(1));
    drop(step);
}

#[tokio::test]
async fn a_model_that_panics_fails_its_batch_and_no_more() {
    let (engine, _) = start(2, Script { panics_on: Some(13), ..Script::default() });
    assert!(matches!(text(&engine, window(13, 1)).await, Err(Error::ModelFailed(_))));
    assert_eq!(text(&engine, window(14, 1)).await.expect("accepted"), " word14");
    assert_eq!(engine.condition(), Condition::Working);
}

#[tokio::test]
async fn a_call_that_hangs_fails_what_waits_and_what_comes_until_it_is_back() {
    let (open, gate) = mpsc::channel();
    let config = Config { stall_seconds: 0.2, ..Config::default() };
    let (engine, _) = start_with(&config, 1, Script { gate: Some(gate), ..Script::default() });
    let admission = engine.admit(TenantId::default(), 2.0).expect("idle");
    let both =
        tokio::join!(engine.recognize(&admission, window(1, 1)), engine.recognize(&admission, window(2, 1)));
    assert!(matches!(both, (Err(Error::Unwell), Err(Error::Unwell))), "{both:?}");
    assert_eq!(engine.condition(), Condition::Hung);
    assert!(matches!(engine.admit(TenantId::default(), 1.0).map(drop), Err(Error::Unwell)));
    let asker = Asker::new(1, 1);
    assert!(matches!(engine.enter(TenantId::default(), asker).await.map(drop), Err(Error::Unwell)));
    assert!(matches!(engine.probe().await, Err(Error::Unwell)));
    drop((admission, open));
    let begun = Instant::now();
    while engine.condition() != Condition::Working {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never works again");
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&engine, window(3, 1)).await.expect("accepted"), " word3");
}

#[tokio::test]
async fn a_call_that_takes_long_and_goes_on_fails_nothing() {
    let (open, gate) = mpsc::channel();
    let config = Config { stall_seconds: 0.2, ..Config::default() };
    let progress = Progress::default();
    let script = Script { gate: Some(gate), progress: progress.clone(), ..Script::default() };
    let (engine, _) = start_with(&config, 1, script);
    let slow = {
        let engine = engine.clone();
        tokio::spawn(async move { text(&engine, window(1, 1)).await })
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        progress.step();
        assert_eq!(engine.condition(), Condition::Working);
        tokio::task::yield_now().await;
    }
    drop(open);
    assert_eq!(slow.await.expect("no panic").expect("accepted"), " word1");
}

#[tokio::test]
async fn a_model_whose_every_call_fails_is_lost_in_the_end() {
    let config =
        Config { stall_seconds: 1.0, give_up_seconds: 0.5, probe_seconds: 0.01, ..Config::default() };
    // Probes are silence: the word 0.
    let (engine, _) = start_with(&config, 1, Script { fails_on: Some(0), ..Script::default() });
    let begun = Instant::now();
    while !engine.is_lost() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is never given up");
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.condition(), Condition::Failing);
    assert!(begun.elapsed() >= Duration::from_millis(500), "after {:?}", begun.elapsed());
}

#[tokio::test]
async fn a_probe_goes_through_the_model_and_counts_for_nothing() {
    let (engine, calls) = start(1, Script::default());
    engine.probe().await.expect("the model works");
    assert!(calls.lock().expect("no panic").iter().any(|call| matches!(call, Call::Encode(_))));
    assert_eq!(engine.counts().windows, 0);
    assert_eq!(engine.held_seconds(), 0.0);
}

#[tokio::test]
async fn each_window_goes_to_the_device_that_has_the_fewest() {
    let (engine, gates, calls) = start_two(&Config::default());
    assert_eq!(engine.model().slots, 8);
    let answers: Vec<_> = (1..=8)
        .map(|word| {
            let engine = engine.clone();
            tokio::spawn(async move { text(&engine, window(word, 2)).await })
        })
        .collect();
    while engine.held_seconds() < 8.0 {
        tokio::task::yield_now().await;
    }
    drop(gates);
    for answer in answers {
        answer.await.expect("no panic").expect("accepted");
    }
    for calls in calls {
        let calls = calls.lock().expect("no panic").clone();
        let encoded = calls.iter().map(|call| if let Call::Encode(words) = call { words.len() } else { 0 });
        assert_eq!(encoded.sum::<usize>(), 4, "{calls:?}");
    }
    assert_eq!(engine.counts().windows, 8);
}

#[tokio::test]
async fn a_device_that_hangs_is_passed_over() {
    let config = Config { stall_seconds: 0.2, ..Config::default() };
    let (engine, [hangs, works], _calls) = start_two(&config);
    drop(works);
    // The first of equals.
    assert!(matches!(text(&engine, window(1, 2)).await, Err(Error::Unwell)));
    assert_eq!(engine.condition(), Condition::Working);
    for word in 2..6 {
        assert_eq!(text(&engine, window(word, 2)).await.expect("by the other"), format!(" word{word}"));
    }
    drop(hangs);
}
