//! Speakers of live streams, and named speakers.
//!
//! `./setup speakers` fetches the models; without them, the tests of real voices pass with a note.

use std::path::PathBuf;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use verbatim::engine::LanguageChoice;
use verbatim::live::{Config, Live, Options};
use verbatim::share::Tenants;
use verbatim::speakers::{self, Diarizer};

use crate::openai::{form, post};
use crate::server::{Setup, TestServer, client};
use crate::speech::{self, cache};
use crate::tones::bytes;
use crate::{socket, streams};

/// The models, if they are installed; loaded once for all tests.
fn diarizer() -> Option<Diarizer> {
    static DIARIZER: OnceLock<Option<Diarizer>> = OnceLock::new();
    let load = || {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/speakers");
        if !folder.exists() {
            eprintln!("no speaker models: run ./setup speakers");
            return None;
        }
        Some(Diarizer::load(&folder, tch::Device::Cpu, 2).expect("the models load"))
    };
    DIARIZER.get_or_init(load).clone()
}

/// Clips with half a second between them, and where each begins and ends.
fn conversation(clips: &[&str]) -> (Vec<i16>, Vec<(f64, f64)>) {
    let (mut samples, mut places) = (Vec::new(), Vec::new());
    for clip in clips {
        let start = samples.len() as f64 / 16_000.0;
        let pcm = speech::read(&format!("speech/{clip}.wav"));
        samples.extend(pcm.samples().iter().map(|sample| (sample * 32_767.0) as i16));
        places.push((start, samples.len() as f64 / 16_000.0));
        samples.extend([0; 8_000]);
    }
    (samples, places)
}

#[tokio::test]
async fn a_streams_words_have_the_speakers_of_a_conversation() {
    let Some(diarizer) = diarizer() else { return };
    let transcriber = speech::transcriber();
    let (engine, vad) = (transcriber.engine().clone(), transcriber.vad().cloned());
    // However slow the machine is, no result goes without.
    let config = Config { speakers_timeout_ms: 600_000, ..Config::default() };
    let live = Live::new(engine, vad, config, Tenants::default()).with_diarizer(Some(diarizer));
    let (samples, places) = conversation(&["austen_0870", "jfk", "austen_0890"]);
    let wanted = Options {
        language: LanguageChoice::Named("en".into()),
        speakers: Some(speakers::Options::default()),
        ..streams::wanted()
    };
    let results = streams::heard(&live, wanted, &streams::cut(&bytes(&samples), &[3200])).await;
    let words = streams::words(&results);
    assert!(words.iter().all(|word| word.speaker.is_some()), "{words:?}");
    let of = |&(start, end): &(f64, f64)| -> Vec<usize> {
        let said = words.iter().filter(|word| (start..end).contains(&word.start.midpoint(word.end)));
        said.filter_map(|word| Some(word.speaker?.index)).collect()
    };
    for (place, speaker) in places.iter().zip([0, 1, 0]) {
        let said = of(place);
        let right = said.iter().filter(|&&said| said == speaker).count();
        assert!(said.len() > 5 && right * 10 >= said.len() * 9, "speaker {speaker} at {place:?}: {said:?}");
    }
}

fn wav(clip: &str) -> Vec<u8> {
    std::fs::read(cache(&format!("speech/{clip}.wav"))).expect("readable")
}

/// The answer, with its status, to a request on the voices of `key`.
async fn voices(server: &TestServer, method: &str, key: &str, path: &str, body: Vec<u8>) -> (u16, Value) {
    let method = method.parse().expect("a method");
    let request = client().request(method, server.url(&format!("/v1/speakers{path}"))).bearer_auth(key);
    let response = request.body(body).send().await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.bytes().await.expect("a body");
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// The names and the speakers in an answer to a file or in a final result.
fn named(alternative: &Value) -> Vec<(u64, Option<&str>)> {
    let words = alternative["words"].as_array().expect("words");
    let speaker = |word: &Value| word["speaker"].as_u64().expect("a speaker");
    words.iter().map(|word| (speaker(word), word["speaker_name"].as_str())).collect()
}

async fn names(server: &TestServer, key: &str, clip: &str) -> Value {
    let query = "/v1/listen?identify_speakers=true&utterances=true";
    let request = client().post(server.url(query)).bearer_auth(key).body(wav(clip));
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let body = response.bytes().await.expect("a body");
    serde_json::from_slice::<Value>(&body).expect("JSON")["results"].take()
}

#[tokio::test]
async fn an_enrolled_voice_has_its_name_in_files_and_on_streams_until_it_is_deleted() {
    let Some(diarizer) = diarizer() else { return };
    let setup = Setup { diarizer: Some(diarizer), organisations: 2, ..Setup::default() };
    let server = TestServer::start(setup).await;
    let (key, other) = (server.key.as_str(), server.others[0].as_str());
    let (status, ada) = voices(&server, "POST", key, "?name=Ada%20Reader", wav("austen_0870")).await;
    assert_eq!((status, &ada["name"]), (201, &json!("Ada Reader")), "{ada}");
    let id = ada["speaker_id"].as_str().expect("an id");
    assert_eq!(voices(&server, "GET", key, "", Vec::new()).await, (200, json!({"speakers": [ada]})));
    assert_eq!(voices(&server, "GET", key, &format!("/{id}"), Vec::new()).await, (200, ada.clone()));
    let (status, body) = voices(&server, "POST", key, "?name=Ada%20Reader", wav("austen_0890")).await;
    assert_eq!((status, &body["err_code"]), (409, &json!("NAME_TAKEN")));

    let results = names(&server, key, "austen_0890").await;
    let alternative = &results["channels"][0]["alternatives"][0];
    assert!(named(alternative).iter().all(|named| *named == (0, Some("Ada Reader"))), "{alternative}");
    let confidence = alternative["words"][0]["speaker_name_confidence"].as_f64().expect("a number");
    assert!((0.5..=1.0).contains(&confidence), "{confidence}");
    assert_eq!(results["utterances"][0]["speaker_name"], "Ada Reader");
    let results = names(&server, key, "jfk").await;
    assert!(named(&results["channels"][0]["alternatives"][0]).iter().all(|named| named.1.is_none()));

    // Another organisation neither sees nor deletes it, nor has its name.
    assert_eq!(voices(&server, "GET", other, "", Vec::new()).await, (200, json!({"speakers": []})));
    assert_eq!(voices(&server, "GET", other, &format!("/{id}"), Vec::new()).await.0, 404);
    assert_eq!(voices(&server, "DELETE", other, &format!("/{id}"), Vec::new()).await.0, 404);
    let results = names(&server, other, "austen_0890").await;
    assert!(named(&results["channels"][0]["alternatives"][0]).iter().all(|named| named.1.is_none()));

    let query = "identify_speakers=true&encoding=linear16&sample_rate=16000&endpointing=false";
    let handshake = socket::listen(server.address, key, query).await;
    let mut stream = handshake.socket.unwrap_or_else(|| panic!("{} {}", handshake.status, handshake.body));
    for piece in bytes(&conversation(&["austen_0890"]).0).chunks(3200) {
        stream.audio(piece).await;
    }
    stream.control("CloseStream").await;
    let (messages, _) = stream.rest().await;
    let alternatives = messages.iter().map(|message| &message["channel"]["alternatives"][0]);
    let said: Vec<_> = alternatives.filter(|said| said["words"][0].is_object()).flat_map(named).collect();
    assert!(!said.is_empty() && said.iter().all(|said| *said == (0, Some("Ada Reader"))), "{messages:?}");

    assert_eq!(voices(&server, "DELETE", key, &format!("/{id}"), Vec::new()).await.0, 204);
    assert_eq!(voices(&server, "DELETE", key, &format!("/{id}"), Vec::new()).await.0, 404);
    let results = names(&server, key, "austen_0890").await;
    assert!(named(&results["channels"][0]["alternatives"][0]).iter().all(|named| named.1.is_none()));
}

#[tokio::test]
async fn clips_of_known_speakers_are_no_audio_of_the_request() {
    let Some(diarizer) = diarizer() else { return };
    let server = TestServer::start(Setup { diarizer: Some(diarizer), ..Setup::default() }).await;
    let clip = format!("data:audio/wav;base64,{}", STANDARD.encode(wav("austen_0870")));
    let fields = [
        ("response_format", &b"diarized_json"[..]),
        ("known_speaker_names[]", b"Ada"),
        ("known_speaker_references[]", clip.as_bytes()),
        ("file", &wav("austen_0890")),
    ];
    let response = post(&server, "/v1/audio/transcriptions", form(&fields)).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let body: Value = serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON");
    let seconds = body["duration"].as_f64().expect("a number");
    let get = async |path: &str| {
        let sent = client().get(server.url(path)).bearer_auth(&server.key).send().await.expect("an answer");
        serde_json::from_slice::<Value>(&sent.bytes().await.expect("a body")).expect("JSON")
    };
    let projects = get("/v1/projects").await;
    let project = projects["projects"][0]["project_id"].as_str().expect("an id").to_owned();
    let logged = get(&format!("/v1/projects/{project}/requests")).await;
    let duration = logged["requests"][0]["response"]["details"]["duration"].as_f64().expect("a number");
    assert!((duration - seconds).abs() < 0.1, "{duration} s are logged of {seconds} s");
}

#[tokio::test]
async fn a_clip_without_enough_speech_of_one_person_is_not_enrolled() {
    let Some(diarizer) = diarizer() else { return };
    let server = TestServer::start(Setup { diarizer: Some(diarizer), ..Setup::default() }).await;
    let raw = "?name=Bo&encoding=linear16&sample_rate=16000";
    let two = bytes(&conversation(&["austen_0870", "jfk"]).0);
    let short = bytes(&conversation(&["austen_0870"]).0)[..2 * 32_000].to_vec();
    for (clip, code) in
        [(vec![0; 5 * 32_000], "NO_SPEECH"), (short, "CLIP_TOO_SHORT"), (two, "SEVERAL_SPEAKERS")]
    {
        let (status, body) = voices(&server, "POST", &server.key, raw, clip).await;
        assert_eq!((status, &body["err_code"]), (422, &json!(code)), "{body}");
    }
    for name in ["", "?name=", "?name=%20", "?name=a%0Ab", "?name=a&name=b"] {
        let (status, body) = voices(&server, "POST", &server.key, name, wav("jfk")).await;
        assert_eq!((status, &body["err_code"]), (400, &json!("INVALID_QUERY_PARAMETER")), "{name}: {body}");
    }
    let (status, body) = voices(&server, "GET", &server.key, "", Vec::new()).await;
    assert_eq!((status, body), (200, json!({"speakers": []})));
}

#[tokio::test]
async fn without_the_models_nothing_is_enrolled() {
    let server = TestServer::start(Setup::default()).await;
    let (status, body) = voices(&server, "POST", &server.key, "?name=Ada", vec![0; 1000]).await;
    assert_eq!((status, &body["err_code"]), (501, &json!("NOT_IMPLEMENTED")));
    assert_eq!(voices(&server, "GET", &server.key, "", Vec::new()).await, (200, json!({"speakers": []})));
    for id in ["x", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(voices(&server, "GET", &server.key, &format!("/{id}"), Vec::new()).await.0, 404);
        assert_eq!(voices(&server, "DELETE", &server.key, &format!("/{id}"), Vec::new()).await.0, 404);
    }
    for (method, path) in [("POST", "?name=a"), ("GET", ""), ("GET", "/x"), ("DELETE", "/x")] {
        assert_eq!(voices(&server, method, "org_none", path, Vec::new()).await.0, 401);
    }
}
