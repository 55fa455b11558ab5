//! A scripted diarization, whose answers the test sends.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::*;
use crate::voices::Voice;

const PATIENCE: Duration = Duration::from_secs(3);

type Said = Result<Vec<Option<usize>>, speakers::Error>;

struct Scripted {
    said: mpsc::UnboundedReceiver<Said>,
    heard: Arc<AtomicUsize>,
    /// Whole seconds.
    passed: Arc<AtomicUsize>,
    voices: Vec<Vec<f32>>,
}

impl SpeakerStream for Scripted {
    fn push(&mut self, samples: &[f32]) {
        self.heard.fetch_add(samples.len(), Ordering::Relaxed);
    }

    fn pass_over(&mut self, seconds: f64) {
        self.passed.store(seconds as usize, Ordering::Relaxed);
    }

    fn label<'a>(&'a mut self, words: &'a mut [Word]) -> BoxFuture<'a, Result<(), speakers::Error>> {
        Box::pin(async move {
            let Some(said) = self.said.recv().await else { return std::future::pending().await };
            for (word, speaker) in words.iter_mut().zip(said?) {
                word.speaker = speaker.map(|index| Speaker { index, confidence: 0.9 });
            }
            Ok(())
        })
    }

    fn voices(&self) -> Vec<Vec<f32>> {
        self.voices.clone()
    }
}

struct Scene {
    labelling: Labelling,
    ready: VecDeque<Event>,
    say: mpsc::UnboundedSender<Said>,
    heard: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        Self::with_names(Vec::new(), None)
    }

    fn with_names(voices: Vec<Vec<f32>>, naming: Option<Naming>) -> Self {
        let (say, said) = mpsc::unbounded_channel();
        let heard = Arc::new(AtomicUsize::new(0));
        let passed = Arc::new(AtomicUsize::new(0));
        let scripted = Scripted { said, heard: heard.clone(), passed: passed.clone(), voices };
        Self {
            labelling: Labelling::new(Box::new(scripted), PATIENCE, naming),
            ready: VecDeque::new(),
            say,
            heard,
            passed,
        }
    }

    fn say(&self, speakers: &[usize]) {
        let _ = self.say.send(Ok(speakers.iter().copied().map(Some).collect()));
    }

    fn take(&mut self, event: Event) {
        self.labelling.take(event, &mut self.ready);
    }

    async fn go_on(&mut self) {
        poll_fn(|context| self.labelling.poll(context, &mut self.ready)).await;
    }

    /// Takes the events that are ready: the speakers of each result's words, or `None` for another event.
    fn ready(&mut self) -> Vec<Option<Vec<Option<usize>>>> {
        let speakers = |event| match event {
            Event::Results(Results { words, .. }) => {
                Some(words.iter().map(|word: &Word| word.speaker.map(|speaker| speaker.index)).collect())
            }
            _ => None,
        };
        self.ready.drain(..).map(speakers).collect()
    }
}

fn results(words: usize, is_final: bool) -> Event {
    let word = |index: usize| Word {
        text: " word".into(),
        start: index as f64,
        end: index as f64 + 0.5,
        probability: 0.9,
        speaker: None,
    };
    let words = (0..words).map(word).collect();
    Event::Results(Results { words, is_final, from_finalize: false, ..Results::nothing_finalized() })
}

fn said(words: usize) -> Event {
    results(words, true)
}

fn interim(words: usize) -> Event {
    results(words, false)
}

fn ended() -> Event {
    Event::UtteranceEnd { channel: 0, last_word_end: 1.0 }
}

fn all(speakers: &[usize]) -> Option<Vec<Option<usize>>> {
    Some(speakers.iter().copied().map(Some).collect())
}

#[tokio::test(start_paused = true)]
async fn events_wait_for_the_words_before_them() {
    let mut scene = Scene::new();
    scene.take(said(3));
    scene.take(ended());
    scene.take(said(1));
    assert!(scene.ready().is_empty() && !scene.labelling.is_empty());
    scene.say(&[0, 0, 1]);
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[0, 0, 1]), None]);
    scene.say(&[1]);
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[1])]);
    assert!(scene.labelling.is_empty());
    assert_eq!(scene.labelling.shortfall(), Shortfall::default());
}

#[tokio::test(start_paused = true)]
async fn words_that_are_not_final_have_the_speaker_before() {
    let mut scene = Scene::new();
    scene.take(interim(1));
    scene.take(said(0));
    assert_eq!(scene.ready(), [all(&[0]), all(&[])], "nothing waits for no words");
    scene.take(said(2));
    scene.say(&[0, 1]);
    scene.go_on().await;
    scene.take(interim(2));
    assert_eq!(scene.ready(), [all(&[0, 1]), all(&[1, 1])]);
}

#[tokio::test(start_paused = true)]
async fn a_word_without_a_speaker_has_the_one_before() {
    let mut scene = Scene::new();
    scene.take(said(4));
    let _ = scene.say.send(Ok(vec![None, Some(0), Some(1), None]));
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[0, 0, 1, 1])]);
}

#[tokio::test(start_paused = true)]
async fn audio_without_words_is_passed_over() {
    let empty = |start: f64| {
        let results = Results { start, duration: 5.0, from_finalize: false, ..Results::nothing_finalized() };
        Event::Results(results)
    };
    let mut scene = Scene::new();
    scene.take(empty(0.0));
    assert_eq!(scene.passed.load(Ordering::Relaxed), 5);
    scene.take(said(1));
    scene.take(empty(12.0));
    assert_eq!(scene.passed.load(Ordering::Relaxed), 5, "words are being labelled");
    scene.say(&[0]);
    scene.go_on().await;
    assert_eq!(scene.ready().len(), 3);
    assert_eq!(scene.passed.load(Ordering::Relaxed), 17);
}

#[tokio::test(start_paused = true)]
async fn audio_that_comes_meanwhile_is_heard_afterwards() {
    let mut scene = Scene::new();
    scene.labelling.push(&[0.0; 100]);
    scene.take(said(1));
    scene.labelling.push(&[0.0; 16_000]);
    assert_eq!(scene.heard.load(Ordering::Relaxed), 100);
    assert_eq!(scene.labelling.waiting_seconds(), 1.0);
    scene.say(&[0]);
    scene.go_on().await;
    assert_eq!(scene.heard.load(Ordering::Relaxed), 16_100);
    assert_eq!(scene.labelling.waiting_seconds(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn words_go_with_the_speaker_before_if_theirs_come_late() {
    let mut scene = Scene::new();
    scene.take(said(2));
    scene.say(&[0, 1]);
    scene.go_on().await;
    scene.ready();
    let begun = tokio::time::Instant::now();
    scene.take(said(2));
    scene.take(ended());
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[1, 1]), None]);
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
    // Until the late answer is there, no other result waits.
    scene.take(said(1));
    assert_eq!(scene.ready(), [all(&[1])]);
    scene.say(&[1, 2]);
    scene.go_on().await;
    assert!(scene.ready().is_empty(), "words that were sent are not sent again");
    scene.take(interim(1));
    scene.take(said(1));
    scene.say(&[0]);
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[2]), all(&[0])]);
    assert_eq!(scene.labelling.shortfall(), Shortfall { late: 2, failed: 0 });
}

#[tokio::test(start_paused = true)]
async fn diarization_that_hangs_is_given_up_and_the_transcript_goes_on() {
    let mut scene = Scene::new();
    scene.take(said(1));
    scene.go_on().await;
    scene.labelling.push(&[0.0; 16_000]);
    scene.go_on().await;
    assert_eq!(scene.labelling.waiting_seconds(), 0.0);
    scene.labelling.push(&[0.0; 16_000]);
    scene.take(said(1));
    scene.take(interim(1));
    assert_eq!(scene.ready(), [all(&[0]), Some(vec![None]), Some(vec![None])]);
    assert_eq!(scene.labelling.shortfall(), Shortfall { late: 1, failed: 1 });
    assert_eq!(scene.labelling.waiting_seconds(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn words_go_without_speakers_if_diarization_fails() {
    let mut scene = Scene::new();
    for _ in 0..2 {
        scene.take(said(1));
        scene.take(ended());
        let _ = scene.say.send(Err(speakers::Error::Failed));
        scene.go_on().await;
        assert_eq!(scene.ready(), [Some(vec![None]), None]);
    }
    scene.take(said(1));
    scene.say(&[0]);
    scene.go_on().await;
    assert_eq!(scene.ready(), [all(&[0])], "it was tried again");
    for _ in 0..FAILURES_MAX {
        scene.take(said(1));
        let _ = scene.say.send(Err(speakers::Error::Failed));
        scene.go_on().await;
    }
    scene.take(said(1));
    assert_eq!(scene.ready().len(), FAILURES_MAX as usize + 1, "and at last given up");
    assert_eq!(scene.labelling.shortfall(), Shortfall { late: 0, failed: 2 + FAILURES_MAX + 1 });
}

#[tokio::test(start_paused = true)]
async fn results_have_the_names_of_their_speakers() {
    let axis = |index: usize| (0..3).map(|at| f32::from(u8::from(at == index))).collect::<Vec<_>>();
    let voice = |name: &str, index| Voice {
        id: uuid::Uuid::new_v4(),
        name: name.into(),
        created: std::time::UNIX_EPOCH,
        embedding: axis(index),
    };
    let naming = Naming::new([voice("Ada", 1), voice("Bo", 2)].into());
    let mut scene = Scene::with_names(vec![axis(0), axis(1)], Some(naming));
    scene.take(interim(1));
    scene.take(said(2));
    scene.say(&[0, 1]);
    scene.go_on().await;
    scene.take(interim(1));
    let names = scene.ready.iter().map(|event| match event {
        Event::Results(results) => {
            results.names.iter().map(|name| name.as_ref().map(|name| name.name.to_string())).collect()
        }
        _ => Vec::new(),
    });
    let known = vec![None, Some("Ada".to_owned())];
    assert_eq!(names.collect::<Vec<_>>(), [vec![], known.clone(), known]);
}
