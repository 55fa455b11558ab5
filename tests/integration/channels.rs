//! Files of several channels and of many windows, through the engine.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::mpsc;

use futures_util::FutureExt as _;
use verbatim::audio::Sound;
use verbatim::engine::{
    Class, Config, DecodingOptions, Engine, LanguageChoice, SpeechModel, TenantId, Window,
};
use verbatim::transcribe::{TranscribeOptions, Transcriber};
use verbatim::vad::{Vad, VadOptions};

use crate::scripted::{Call, Script, ScriptedModel, speech};
use crate::speech::{cache, passages};

fn options() -> TranscribeOptions {
    TranscribeOptions::new(LanguageChoice::Named("en".into()))
}

fn engine(config: &Config, model: ScriptedModel) -> Engine {
    let load = move || Ok::<Box<dyn SpeechModel>, Infallible>(Box::new(model));
    Engine::start(config, load).expect("a scripted model loads")
}

#[tokio::test]
async fn an_idle_engine_takes_all_channels_of_a_long_file_at_once() {
    let config = Config { max_held_seconds: 600.0, ..Config::default() };
    let engine = engine(&config, ScriptedModel::new(4, Script::default()));
    let transcriber = Transcriber::new(engine.clone());
    let channels = vec![Sound::from(&vec![0.0; 590 * 16_000][..]); 4];
    let admission = transcriber.admit(4.0 * 590.0, &options()).await.expect("it is idle");
    // By itself the next channel would find no room.
    assert!(transcriber.admit(590.0, &options()).await.is_err());
    let transcripts = transcriber.transcribe_all(channels, admission, &options()).await.expect("transcribed");
    let lengths: Vec<f64> = transcripts.iter().map(|transcript| transcript.duration).collect();
    assert_eq!((lengths, engine.held_seconds()), (vec![590.0; 4], 0.0));
}

#[tokio::test]
async fn a_long_file_leaves_its_place_in_the_queue_to_others_and_keeps_its_order() {
    const SILENCE_SECONDS: usize = 10;
    let (open, gate) = mpsc::channel();
    let model = ScriptedModel::new(1, Script { gate: Some(gate), ..Script::default() });
    let calls = model.calls.clone();
    let engine = engine(&Config::unbounded(), model);
    let vad = Vad::load(&cache("models/silero-vad")).expect("the model loads");
    let transcriber = Transcriber::with_vad(engine.clone(), vad, VadOptions::default());

    let read: Vec<f32> = passages().iter().flat_map(|(pcm, _)| pcm.samples().to_vec()).collect();
    let voiced = read.repeat((150 * 16_000_usize).div_ceil(read.len()));
    let voiced_seconds = voiced.len() as f64 / 16_000.0;
    let sound = Sound::from(&[voiced, vec![0.0; SILENCE_SECONDS * 16_000]].concat()[..]);
    let all_seconds = 2.0 * sound.duration_seconds();
    let admission = transcriber.admit(all_seconds, &options()).await.expect("it is idle");
    let listening = tokio::spawn(async move {
        transcriber.transcribe_all(vec![sound.clone(), sound], admission, &options()).await
    });
    // Silence is given up in the same poll in which the first windows are queued.
    while engine.held_seconds() >= all_seconds {
        tokio::task::yield_now().await;
    }
    // The windows of both channels are still held.
    assert!(engine.held_seconds() > 1.3 * voiced_seconds, "{} s", engine.held_seconds());

    let leave = engine.admit_job(TenantId(0), 1.0).await;
    let window = Window {
        pcm: speech(7, 1, 1.0),
        options: DecodingOptions { language: options().language, ..DecodingOptions::default() },
        class: Class::Interactive,
        tenant: TenantId(0),
        deadline: None,
    };
    let mut answer = pin!(engine.recognize(&leave, window));
    assert!((&mut answer).now_or_never().is_none(), "the gate is closed");
    drop(open);
    answer.await.expect("recognised");
    let transcripts = listening.await.expect("no panic").expect("transcribed");

    let calls = calls.lock().expect("no panic").clone();
    let encoded: Vec<Vec<u16>> = calls
        .into_iter()
        .filter_map(|call| if let Call::Encode(words) = call { Some(words) } else { None })
        .collect();
    let place = encoded.iter().position(|words| words.contains(&7)).expect("encoded");
    // Two windows for the one slot were before it.
    assert!(encoded.len() > 10 && place <= 2, "{place} of {}", encoded.len());
    for transcript in &transcripts {
        assert_eq!(transcript.segments.len(), (encoded.len() - 1) / 2);
        assert!(transcript.segments.is_sorted_by(|one, next| one.end <= next.start));
    }
}
