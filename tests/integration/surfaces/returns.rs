//! Clients that are refused and return exactly when they were told to: nine of ten get in then, and all at the third try.
//! They send the same request over connections of their own, so that nothing but the turn tells them apart.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use verbatim::keys::Store;

use super::crowds::{form, spoken};
use super::{PATIENCE, Surfaces, told};
use crate::receiver::{Receiver, callback_parameter};
use crate::server::until_known;
use crate::speech::cache;

/// Places of each kind.
const PLACES: usize = 4;
/// The places that one of several organisations may have at once.
const SHARE: usize = PLACES - 1;
/// The share of refused clients that get in at their second try.
const SECOND_TRY: f64 = 0.9;
const TRIES_MAX: usize = 3;

/// One client's refusals and its end.
struct Story {
    /// Seconds that it was told, each time.
    waits: Vec<u64>,
    /// From its first try to its answer.
    took: Duration,
}

/// Asks until it is let in, each time as long after a refusal as it says.
async fn comes_back(ask: impl AsyncFn() -> (u16, Value, Option<u64>)) -> Story {
    let (begun, mut waits) = (Instant::now(), Vec::new());
    loop {
        let (status, body, after) = ask().await;
        match status {
            200 | 101 => return Story { waits, took: begun.elapsed() },
            429 | 503 => {
                let after = after.unwrap_or_else(|| panic!("{status} without Retry-After: {body}"));
                waits.push(after);
                assert!(waits.len() < 10, "told {waits:?}, and refused each time");
                tokio::time::sleep(Duration::from_secs(after)).await;
            }
            _ => panic!("{status} {body}"),
        }
    }
}

/// Checks what the clients were told, all of whom asked at once.
fn check(what: &str, stories: &[Story]) {
    let refused: Vec<&Story> = stories.iter().filter(|story| !story.waits.is_empty()).collect();
    let second = refused.iter().filter(|story| story.waits.len() == 1).count();
    let mut waits: Vec<&[u64]> = refused.iter().map(|story| &*story.waits).collect();
    waits.sort();
    let longest = stories.iter().map(|story| story.took.as_secs_f64()).fold(0.0, f64::max);
    println!(
        "{what}: {second} of {} refused got in at the second try, told {waits:?}; {longest:.1} s",
        refused.len()
    );
    assert!(refused.len() >= stories.len() / 2, "{what}: only {} were refused", refused.len());
    assert!(
        second as f64 >= SECOND_TRY * refused.len() as f64,
        "{what}: {second} of {}: {waits:?}",
        refused.len()
    );
    assert!(refused.iter().all(|story| story.waits.len() < TRIES_MAX), "{what}: {waits:?}");
}

async fn surfaces(settings: &[(&str, &str)]) -> Surfaces {
    let places = PLACES.to_string();
    let own = [
        ("VERBATIM_LIVE__MAX_STREAMS", &*places),
        ("VERBATIM_SPEAK__STREAMS_MAX", &*places),
        ("VERBATIM_ENGINE__MAX_REQUESTS", &*places),
    ];
    Surfaces::start(&own.into_iter().chain(settings.iter().copied()).collect::<Vec<_>>()).await
}

/// So many of `work`, by as many at once as there are places.
async fn unrefused(count: usize, work: impl AsyncFn()) -> Duration {
    let (begun, next) = (Instant::now(), AtomicUsize::new(0));
    let worker = async || {
        while next.fetch_add(1, Ordering::Relaxed) < count {
            work().await;
        }
    };
    join_all((0..SHARE).map(|_| worker())).await;
    begun.elapsed()
}

#[tokio::test]
#[ignore = "waits as long as it is told, and needs a machine of its own"]
async fn uploads_get_in_when_they_were_told_to_return_and_no_time_is_lost() {
    const CLIENTS: usize = 28;
    let surfaces = surfaces(&[]).await;
    for path in ["/v1/listen", "/v1/audio/transcriptions"] {
        let upload = async || told(form(&surfaces, path, &surfaces.first)).await;
        let alone = unrefused(CLIENTS, async || assert_eq!(upload().await.0, 200)).await;
        let begun = Instant::now();
        let stories = join_all((0..CLIENTS).map(|_| comes_back(&upload))).await;
        check(path, &stories);
        let took = begun.elapsed();
        // Whole seconds are told, and nobody takes a place early.
        let most = 2 * alone + Duration::from_secs(5);
        assert!(took <= most, "{path}: {took:?}, and {alone:?} without refusals");
    }
}

#[tokio::test]
#[ignore = "waits as long as it is told, and needs a machine of its own"]
async fn a_busy_organisation_that_never_waits_takes_no_turn_of_another() {
    let surfaces = Arc::new(surfaces(&[("VERBATIM_ENGINE__MAX_REQUESTS", "8")]).await);
    let upload = async || told(form(&surfaces, "/v1/listen", &surfaces.first)).await;
    unrefused(8, async || assert_eq!(upload().await.0, 200)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let let_in = Arc::new(AtomicUsize::new(0));
    let busy = (0..12).map(|_| {
        let (surfaces, is_over, let_in) = (surfaces.clone(), is_over.clone(), let_in.clone());
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let (status, body, _) = told(form(&surfaces, "/v1/listen", &surfaces.second)).await;
                match status {
                    200 => {
                        let_in.fetch_add(1, Ordering::Relaxed);
                    }
                    429 | 503 => tokio::time::sleep(Duration::from_millis(100)).await,
                    _ => panic!("{status} {body}"),
                }
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    // The busy one is at work.
    while let_in.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let before = let_in.load(Ordering::Relaxed);
    let stories = join_all((0..24).map(|_| comes_back(&upload))).await;
    is_over.store(true, Ordering::Relaxed);
    for one in busy {
        one.await.expect("no panic");
    }
    check("beside a busy organisation", &stories);
    assert!(let_in.load(Ordering::Relaxed) > before, "the busy one has its part as well");
}

#[tokio::test]
#[ignore = "waits as long as it is told, and needs a machine of its own"]
async fn streams_get_in_when_they_were_told_to_return() {
    /// How long a client streams.
    const STAY: Duration = Duration::from_secs(4);
    let surfaces = surfaces(&[]).await;
    let operator = Store::open(surfaces.state.path()).and_then(|store| store.create_operator("operator"));
    let operator = operator.expect("a key").1.expose().to_owned();
    until_known(&surfaces.program.url(""), &operator).await;
    let paths = [
        ("/v1/listen?encoding=linear16&sample_rate=16000", "stt_active_streams"),
        ("/v2/listen?model=flux-general-en&encoding=linear16&sample_rate=16000", "stt_active_streams"),
        ("/v1/realtime?intent=transcription", "stt_active_streams"),
        ("/v1/speak", "tts_active_streams"),
        ("/v2/speak?model=flux-alexis-en", "tts_active_streams"),
    ];
    for (path, gauge) in paths {
        let stream = async || {
            let mut handshake = surfaces.handshake(path, Some(&surfaces.first.key)).await;
            let after = handshake.header("retry-after").and_then(|after| after.parse().ok());
            if let Some(socket) = handshake.socket.take() {
                tokio::time::sleep(STAY).await;
                drop(socket);
            }
            (handshake.status, handshake.body, after)
        };
        let known = join_all((0..SHARE).map(|_| stream())).await;
        assert!(known.iter().all(|(status, ..)| *status == 101));
        let begun = Instant::now();
        while surfaces.gauge(&operator, gauge).await > 0.0 {
            assert!(begun.elapsed() < PATIENCE, "{path}: its streams do not end");
        }
        let stories = join_all((0..4 * PLACES).map(|_| comes_back(&stream))).await;
        check(path, &stories);
    }
}

/// A program that says a tenth of a second of silence after half a second.
fn slow_voice(folder: &Path) -> String {
    let (script, sound) = (folder.join("say"), folder.join("silence.wav"));
    let samples = vec![0; 3200];
    let mut wave =
        b"RIFF\xa4\x0c\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data\x80\x0c\0\0"
            .to_vec();
    wave.extend(samples);
    std::fs::write(&sound, wave).expect("written");
    std::fs::write(&script, format!("#!/bin/sh\ncat > /dev/null\nsleep 0.5\ncat {}\n", sound.display()))
        .expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).expect("made executable");
    json!([script]).to_string()
}

#[tokio::test]
#[ignore = "waits as long as it is told, and needs a machine of its own"]
async fn texts_get_in_when_they_were_told_to_return() {
    const SENTENCE: &str = "The quick brown fox jumps over the lazy dog, and the dog sleeps on. ";
    const HELD: usize = 4096;
    let folder = TempDir::new().expect("a folder");
    let (voice, held) = (slow_voice(folder.path()), HELD.to_string());
    let settings = [
        ("VERBATIM_STS__SPEECH__PROGRAM", voice.as_str()),
        ("VERBATIM_SPEAK__HELD_CHARACTERS_MAX", held.as_str()),
    ];
    let surfaces = surfaces(&settings).await;
    let text = SENTENCE.repeat(HELD / PLACES / SENTENCE.len());
    let speak = async || told(spoken(&surfaces, "/v1/speak?model=program", &surfaces.first, &text)).await;
    assert_eq!(speak().await.0, 200);
    let stories = join_all((0..3 * PLACES).map(|_| comes_back(&speak))).await;
    check("texts", &stories);
}

#[tokio::test]
#[ignore = "waits as long as it is told, and needs a machine of its own"]
async fn callbacks_get_in_when_they_were_told_to_return() {
    let mut receiver = Receiver::start(&[]).await;
    let places = PLACES.to_string();
    let allowed = receiver.allowed();
    let settings = [
        ("VERBATIM_JOBS__PENDING_MAX", places.as_str()),
        ("VERBATIM_JOBS__CONCURRENCY", "2"),
        ("VERBATIM_FETCH_ALLOW", allowed.as_str()),
    ];
    let surfaces = surfaces(&settings).await;
    let callback = callback_parameter(&format!("http://127.0.0.1:{}/", receiver.port));
    let path = format!("/v1/listen?{callback}");
    let speech = std::fs::read(cache("speech/jfk.wav")).expect("readable");
    let submit =
        async || told(surfaces.request("post", &path, Some(&surfaces.first.key)).body(speech.clone())).await;
    // Their pace is known from jobs that wait for each other.
    for _ in 0..2 {
        for _ in 0..SHARE {
            assert_eq!(submit().await.0, 200);
        }
        for _ in 0..SHARE {
            receiver.next().await;
        }
    }
    // The last ones are noted as delivered a little later.
    let begun = Instant::now();
    while submit().await.0 != 200 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stories = join_all((0..5 * PLACES).map(|_| comes_back(&submit))).await;
    check("callbacks", &stories);
}
