use std::path::Path;

use super::*;

fn ear(judged: bool) -> Ear {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.verbatim/models/silero-vad"));
    Ear::new(&Vad::load(folder).expect("`./setup` has put the model there"), &Turn::default(), judged)
}

fn rules() -> Rules {
    Rules::of(&Turn::default())
}

/// The events of frames of these probabilities, each with its frame.
fn run(ear: &mut Ear, frames: &[f32]) -> Vec<(usize, &'static str)> {
    let mut events = Vec::new();
    for (at, &probability) in frames.iter().enumerate() {
        ear.heard.extend([0.0; FRAME_SAMPLES]);
        ear.probabilities.push(probability);
        let mut noticed = Vec::new();
        ear.frame(probability, &rules(), None, &mut noticed);
        events.extend(noticed.iter().map(|noticed| (at, name(noticed))));
    }
    events
}

fn name(noticed: &Noticed) -> &'static str {
    match noticed {
        Noticed::Began => "began",
        Noticed::Insists(_) => "insists",
        Noticed::Persists => "persists",
        Noticed::Paused(_) => "paused",
        Noticed::Resumed => "resumed",
        Noticed::Ended(..) => "ended",
        Noticed::Echoed => "echoed",
    }
}

#[test]
fn a_turn_begins_insists_and_ends() {
    let frames = [vec![0.0; 10], vec![0.9; 30], vec![0.0; 40]].concat();
    // 6 frames are 192 ms, 12 are 384 ms and 18 are 576 ms.
    assert_eq!(
        run(&mut ear(false), &frames),
        [(15, "began"), (21, "insists"), (34, "persists"), (57, "ended")]
    );
}

#[test]
fn a_pause_within_a_sentence_does_not_end_it() {
    let frames = [vec![0.9; 20], vec![0.0; 17], vec![0.9; 5], vec![0.0; 18]].concat();
    assert_eq!(run(&mut ear(false), &frames).last(), Some(&(59, "ended")));
}

#[test]
fn a_judged_turn_ends_by_the_evidence_or_after_the_longest_wait() {
    let mut ear = ear(true);
    // 7 frames are 224 ms.
    assert_eq!(run(&mut ear, &[0.9; 10]), [(5, "began")]);
    assert_eq!(run(&mut ear, &[0.0; 6]), []);
    assert_eq!(run(&mut ear, &[0.9; 4]), [(1, "insists")]);
    assert_eq!(run(&mut ear, &[0.0; 10]), [(6, "paused")]);
    assert!(ear.judged(1, 0.224, Some(0.2), &rules()).is_none());
    assert_eq!(run(&mut ear, &[0.9; 1]), [(0, "resumed")]);
    // A late answer to the pause before changes nothing.
    assert!(ear.judged(1, 0.224, Some(1.0), &rules()).is_none());
    assert_eq!(run(&mut ear, &[0.0; 8]), [(6, "paused")]);
    assert!(ear.judged(2, 0.224, Some(0.99), &rules()).is_none(), "the words are awaited");
    let utterance = ear.recognised(2, Ending::Closed, &rules()).expect("complete");
    assert_eq!(utterance.pcm.len(), 39 * FRAME_SAMPLES);
    assert_eq!(run(&mut ear, &[0.9; 10]), [(5, "began")]);
    // Two seconds are 63 frames. Each look is at a longer silence.
    let waited = run(&mut ear, &[0.0; 70]);
    let looks = waited.iter().filter(|(_, name)| *name == "paused").count();
    assert_eq!((looks, waited.last()), (LOOKS.len(), Some(&(62, "ended"))));
}

#[test]
fn words_that_are_a_whole_answer_end_a_turn_and_open_ones_prolong_it() {
    let mut ear = ear(true);
    run(&mut ear, &[[0.9; 10], [0.0; 10]].concat());
    assert!(ear.judged(1, 0.224, Some(0.1), &rules()).is_none());
    assert!(ear.recognised(1, Ending::Complete, &rules()).is_some());
    run(&mut ear, &[[0.9; 10], [0.0; 10]].concat());
    assert!(ear.recognised(2, Ending::Open, &rules()).is_none());
    assert!(ear.judged(2, 0.224, Some(0.99), &rules()).is_none());
    assert_eq!(ear.awaits(2, &rules()), Some((1.5, 0.32)));
    assert!(ear.waited(2, 1.4, &rules()).is_none());
    assert!(ear.waited(2, 1.5, &rules()).is_some(), "audio has stopped coming");
}

#[test]
fn a_turn_has_the_half_second_before_it() {
    let mut ear = ear(false);
    run(&mut ear, &[0.0; 100]);
    ear.listen(&[], &rules(), None);
    let frames = [vec![0.9; 3], vec![0.0; 4], vec![0.9; 12], vec![0.0; 18]].concat();
    for frame in frames {
        ear.heard.extend([0.5; FRAME_SAMPLES]);
        ear.probabilities.push(frame);
        let mut noticed = Vec::new();
        ear.frame(frame, &rules(), None, &mut noticed);
        if let Some(Noticed::Ended(utterance, _)) = noticed.pop() {
            let short_first_word = utterance.pcm.samples().iter().filter(|sample| **sample == 0.5).count();
            assert_eq!(short_first_word, 37 * FRAME_SAMPLES);
            return;
        }
        ear.listen(&[], &rules(), None);
    }
    panic!("no end");
}

#[test]
fn clicks_are_no_turn() {
    let frames: Vec<f32> = (0..200).map(|n| if n % 8 < 4 { 0.9 } else { 0.0 }).collect();
    assert_eq!(run(&mut ear(false), &frames), []);
}

#[test]
fn a_turn_without_end_is_cut() {
    let steps = run(&mut ear(false), &[0.9; 2000]);
    // 29 s are 906 frames.
    assert_eq!(steps.iter().filter(|(_, name)| *name == "ended").count(), 2);
}
