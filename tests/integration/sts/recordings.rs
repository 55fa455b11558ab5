//! Recordings of talks: on request, announced, with both sides, for their organisation alone, until they are deleted.

use serde_json::{Value, json};
use verbatim::audio::{DecodeOptions, Limits, decode};
use verbatim::recording::Record;

use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices::Voice;
use crate::server::client;

const ANNOUNCEMENT: &str = "This call is recorded.";

fn talk(is_recorded: bool) -> Value {
    json!({
        "recording": is_recorded, "greeting": "Welcome to Acme.",
        "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
    })
}

fn setup() -> Setup {
    let mut setup = Setup { heard: vec!["Where can I park?"], ..Setup::default() };
    // However full the disk of the test's machine is.
    setup.config.recording.disk_free_bytes_min = 0;
    setup
}

fn address(service: &Service, session: &str) -> String {
    format!("http://{}/STS/sessions/{session}/recording", service.address)
}

async fn fetch(service: &Service, session: &str, key: Option<&str>) -> (u16, Vec<u8>) {
    let mut request = client().get(address(service, session));
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let declared = response.content_length();
    let bytes = response.bytes().await.expect("a body").to_vec();
    assert_eq!(declared, Some(bytes.len() as u64));
    (status, bytes)
}

/// The root mean square of each channel.
fn loudness(wave: Vec<u8>) -> Vec<f32> {
    let options = DecodeOptions { raw: None, split_channels: true, limits: Limits::default() };
    let decoded = decode(wave.into(), &options).expect("a file");
    let loud = |samples: &[f32]| (samples.iter().map(|x| x * x).sum::<f32>() / samples.len() as f32).sqrt();
    decoded.channels.iter().map(|sound| loud(sound.pcm(..).samples())).collect()
}

#[tokio::test]
async fn a_talk_is_recorded_on_request_with_both_sides() {
    let voice = Voice::start().await;
    let mut setup = setup();
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(talk(true)).await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, ANNOUNCEMENT);
    assert_eq!(caller.listen().await, "Welcome to Acme.");
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
    let status = service.until(&id, |status| status["recording"]["expires_at"].is_string()).await;
    let (code, wave) = fetch(&service, &id, None).await;
    assert_eq!((code, status["recording"]["bytes"].as_u64()), (200, Some(wave.len() as u64)));
    let heard = caller.voice.len() as f64 / 48_000.0;
    let seconds = status["recording"]["seconds"].as_f64().expect("a number");
    assert!(seconds >= heard * 0.9, "{seconds} s of a talk whose agent spoke for {heard} s");
    let loudness = loudness(wave);
    assert!(loudness.len() == 2 && loudness.iter().all(|loud| *loud > 0.005), "{loudness:?}");
    // Another organisation's key, and no session's name.
    assert_eq!(fetch(&service, &id, Some(&service.keys[0])).await.0, 404);
    assert_eq!(fetch(&service, "sess_000000000000", None).await.0, 404);
    let foreign = client().delete(address(&service, &id)).bearer_auth(&service.keys[1]).send().await;
    assert_eq!(foreign.expect("an answer").status().as_u16(), 404);
    let deleted = client().delete(address(&service, &id)).send().await.expect("an answer");
    assert_eq!(deleted.status().as_u16(), 204);
    assert_eq!(fetch(&service, &id, None).await.0, 404);
    assert!(service.status(&id).await["recording"].is_null());
}

#[tokio::test]
async fn no_talk_is_recorded_unasked_or_where_the_operator_forbids_it() {
    for (record, is_asked, is_recorded) in [
        (Record::Request, false, false),
        (Record::Never, true, false),
        (Record::Always, false, true),
        (Record::Request, true, true),
    ] {
        let mut setup = setup();
        setup.config.recording.record = record;
        let service = Service::start(setup).await;
        let (id, start) = service.session(talk(is_asked)).await;
        service.ready(&id).await;
        let mut caller = Caller::join(&service, &start).await;
        let first = caller.listen().await;
        assert_eq!(first == ANNOUNCEMENT, is_recorded, "{record:?}: {first}");
        caller.write("Goodbye!").await;
        assert_eq!(caller.goodbye().await, 4000);
        service.until(&id, |status| status["recording"]["expires_at"].is_string() == is_recorded).await;
        assert_eq!(fetch(&service, &id, None).await.0 == 200, is_recorded, "{record:?}");
    }
}

#[tokio::test]
async fn a_spoken_proof_is_not_in_the_recording() {
    let records = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(records.path(), r#"[{"digits": "1234"}]"#).expect("written");
    let mut setup = Setup { heard: vec!["One two three four"], ..setup() };
    setup.config.verification.records = Some(records.path().to_owned());
    let service = Service::start(setup).await;
    let mut start = talk(true);
    start["verification_rules"] = json!({"patient_information": {"voice_prompt": "Your digits, please."}});
    let (id, start) = service.session(start).await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &start).await;
    for _ in 0..2 {
        caller.listen().await;
    }
    caller.write("What are my test results?").await;
    assert_eq!(caller.listen().await, "Your digits, please.");
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    service.until(&id, |status| status["verification"]["patient_information"]["verified"] == true).await;
    caller.listen().await;
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
    service.until(&id, |status| status["recording"]["expires_at"].is_string()).await;
    let (_, wave) = fetch(&service, &id, None).await;
    assert_eq!(loudness(wave)[0], 0.0);
}

#[tokio::test]
async fn a_talk_goes_on_unrecorded_where_there_is_no_room() {
    let mut setup = setup();
    setup.config.recording.bytes_max = 0;
    let service = Service::start(setup).await;
    let (id, start) = service.session(talk(true)).await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Welcome to Acme.");
    let status = service.status(&id).await;
    assert!(status["warnings"].to_string().contains("not recorded"), "{}", status["warnings"]);
}
