//! Diarization of two voices by the built program: batch, callback, channels, captions and RTTM.
//!
//! `./setup speakers` fetches the models; without them these tests are skipped with a message. With `TEST_ALL_SDKS` set, as
//! in CI, they must be there.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use reqwest::RequestBuilder;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::Program;
use crate::receiver::{Receiver, callback_parameter};
use crate::sdks::{node, printed, python};
use crate::server::{alternative, answer, client, new_key};
use crate::speech::{cache, read};

/// Two readers in turn, each by the name of a clip.
const CONVERSATION: [(usize, &str); 4] =
    [(0, "austen_0870.wav"), (1, "jfk.wav"), (0, "austen_0920.wav"), (1, "jfk.wav")];
const PAUSE_SECONDS: f64 = 0.5;

fn are_installed() -> bool {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".verbatim/models/speakers");
    if ["segmentation.safetensors", "embedding.safetensors"].iter().all(|name| folder.join(name).exists()) {
        return true;
    }
    assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup speakers");
    eprintln!("skipped: there are no speaker models; ./setup speakers brings them");
    false
}

fn samples(clip: &str) -> Vec<i16> {
    let pcm = read(&format!("speech/{clip}"));
    pcm.samples().iter().map(|sample| (sample * 32_767.0) as i16).collect()
}

fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// The samples of the conversation, and the seconds of each of its turns with the speaker.
fn conversation() -> (Vec<i16>, Vec<(usize, Range<f64>)>) {
    let (mut all, mut turns) = (Vec::new(), Vec::new());
    for (speaker, clip) in CONVERSATION {
        let start = all.len() as f64 / 16_000.0;
        all.extend(samples(clip));
        turns.push((speaker, start..all.len() as f64 / 16_000.0));
        all.extend(vec![0; (PAUSE_SECONDS * 16_000.0) as usize]);
    }
    (all, turns)
}

struct Service {
    program: Program,
    key: String,
    state: TempDir,
}

impl Service {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let state = tempfile::tempdir().expect("a folder");
        let key = new_key(state.path());
        let models = cache("models");
        let fixed = [
            ("VERBATIM_MODEL_DIR", models.to_str().expect("text")),
            ("VERBATIM_TRANSCRIBE__WINDOWS", "speech"),
        ];
        let settings = [&fixed, settings].concat();
        let program = Program::start_with(state.path(), &cache("models/base"), &settings).await;
        Self { program, key, state }
    }

    fn listen(&self, query: &str, body: Vec<u8>) -> RequestBuilder {
        let path = format!("/v1/listen?encoding=linear16&sample_rate=16000&language=en&{query}");
        client().post(self.program.url(&path)).bearer_auth(&self.key).body(body)
    }

    async fn heard(&self, query: &str, body: Vec<u8>) -> Value {
        let (status, body) = answer(self.listen(query, body)).await;
        assert_eq!(status, 200, "{query}: {body}");
        body
    }
}

/// `verbatim voices …` beside the service: its exit code, and what it prints and reports.
fn command(service: &Service, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.arg("voices").args(arguments).env("HOME", service.state.path());
    command.env("VERBATIM_STATE_DIR", service.state.path()).env("VERBATIM_MODEL_DIR", cache("models"));
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn words(alternative: &Value) -> &Vec<Value> {
    alternative["words"].as_array().expect("words")
}

fn speakers(alternative: &Value) -> BTreeSet<u64> {
    words(alternative).iter().map(|word| word["speaker"].as_u64().expect("a speaker")).collect()
}

/// Fails unless the words have the speakers of the turns in whose time they lie, but for one in twenty.
fn are_right(words: &[Value], turns: &[(usize, Range<f64>)]) {
    assert!(words.len() > 40, "{words:?}");
    let middle =
        |word: &Value| word["start"].as_f64().unwrap_or(0.0).midpoint(word["end"].as_f64().unwrap_or(0.0));
    let speaker =
        |at: f64| turns.iter().rev().find(|(_, span)| span.start <= at).map(|(speaker, _)| *speaker as u64);
    let wrong = words.iter().filter(|word| word["speaker"].as_u64() != speaker(middle(word))).count();
    assert!(wrong * 20 <= words.len(), "{wrong} of {} words: {words:?}", words.len());
    let confidence = |word: &Value| word["speaker_confidence"].as_f64().expect("a confidence");
    assert!(words.iter().all(|word| (0.0..=1.0).contains(&confidence(word))), "{words:?}");
}

#[tokio::test]
async fn speakers_are_told_apart_in_an_answer_and_in_a_delivery() {
    if !are_installed() {
        return;
    }
    let (samples, turns) = conversation();
    let mut receiver = Receiver::start(&[]).await;
    let service = Service::start(&[("VERBATIM_FETCH_ALLOW", &receiver.allowed())]).await;
    let query = "diarize=true&utterances=true&smart_format=true";
    let body = service.heard(query, bytes(&samples)).await;
    assert!(body["metadata"]["diarize_info"]["model_uuid"].is_string(), "{body}");
    assert!(body["metadata"].get("warnings").is_none(), "{body}");
    let found = alternative(&body);
    are_right(words(found), &turns);
    let paragraphs = found["paragraphs"]["paragraphs"].as_array().expect("paragraphs");
    let order: Vec<u64> = paragraphs.iter().map(|one| one["speaker"].as_u64().expect("a speaker")).collect();
    assert!(order.starts_with(&[0]) && order.contains(&1), "{order:?}");
    let text = found["paragraphs"]["transcript"].as_str().expect("text");
    assert!(text.starts_with("\nSpeaker 0: ") && text.contains("\n\nSpeaker 1: "), "{text}");
    for utterance in body["results"]["utterances"].as_array().expect("utterances") {
        let all = utterance["words"].as_array().expect("words");
        assert!(all.iter().all(|word| word["speaker"] == utterance["speaker"]), "{utterance}");
    }
    assert_eq!(service.program.log().matches("Dashwood").count(), 0);

    let callback = callback_parameter(&format!("http://127.0.0.1:{}/done", receiver.port));
    let (status, _) = answer(service.listen(&format!("{query}&{callback}"), bytes(&samples))).await;
    assert_eq!(status, 200);
    let delivered = receiver.next().await.json();
    are_right(words(alternative(&delivered)), &turns);
}

#[tokio::test]
async fn a_request_limits_the_number_of_speakers() {
    if !are_installed() {
        return;
    }
    let (samples, _) = conversation();
    let service = Service::start(&[]).await;
    for (limits, expected) in [
        ("max_speakers=1", 1),
        ("speakers_expected=1", 1),
        ("speakers_expected=2", 2),
        ("min_speakers=2&max_speakers=2", 2),
    ] {
        let body = service.heard(&format!("diarization=true&{limits}"), bytes(&samples)).await;
        assert_eq!(speakers(alternative(&body)).len(), expected, "{limits}: {body}");
    }
    // Nothing else about the words depends on it.
    let without = service.heard("punctuate=true", bytes(&samples)).await;
    let with = service.heard("punctuate=true&diarize=true", bytes(&samples)).await;
    assert_eq!(alternative(&without)["transcript"], alternative(&with)["transcript"]);
    assert!(!without.to_string().contains("speaker"), "{without}");
}

#[tokio::test]
async fn each_channel_has_speakers_of_its_own() {
    if !are_installed() {
        return;
    }
    let (left, right) = (samples("austen_0870.wav"), samples("jfk.wav"));
    let frames = left.len().max(right.len());
    let at = |side: &[i16], index: usize| side.get(index).copied().unwrap_or(0);
    let call: Vec<i16> = (0..frames).flat_map(|index| [at(&left, index), at(&right, index)]).collect();
    let service = Service::start(&[]).await;
    let body = service.heard("channels=2&multichannel=true&diarize=true", bytes(&call)).await;
    let channels = body["results"]["channels"].as_array().expect("channels");
    assert_eq!(channels.len(), 2);
    for channel in channels {
        assert_eq!(speakers(&channel["alternatives"][0]), BTreeSet::from([0]), "{body}");
    }
}

#[tokio::test]
async fn voices_of_the_command_line_name_speakers_in_a_running_server() {
    if !are_installed() {
        return;
    }
    let service = Service::start(&[]).await;
    let clip = cache("speech/austen_0870.wav");
    let add = ["add", "Ada Reader", clip.to_str().expect("text")];
    let (code, id, error) = command(&service, &add);
    assert_eq!(code, Some(0), "{error}");
    let id = id.trim();
    let (code, _, error) = command(&service, &add);
    assert_eq!(code, Some(1), "the name is taken: {error}");
    let (_, listed, _) = command(&service, &["list"]);
    let line = listed.lines().find(|line| line.ends_with("Ada Reader")).expect("it is listed");
    assert!(line.starts_with(id), "{listed}");
    let speakers = client().get(service.program.url("/v1/speakers")).bearer_auth(&service.key);
    let (_, speakers) = answer(speakers).await;
    assert_eq!(speakers["speakers"][0]["speaker_id"], id, "{speakers}");

    let query = "identify_speakers=true&paragraphs=true&utterances=true";
    let reading = bytes(&samples("austen_0890.wav"));
    let body = service.heard(query, reading.clone()).await;
    let found = alternative(&body);
    let paragraph = &found["paragraphs"]["paragraphs"][0];
    for part in [paragraph, &paragraph["sentences"][0], &found["words"][0], &body["results"]["utterances"][0]]
    {
        assert_eq!((&part["speaker"], &part["speaker_name"]), (&0.into(), &"Ada Reader".into()), "{body}");
        assert_eq!(part["speaker_name_confidence"], found["words"][0]["speaker_name_confidence"], "{body}");
    }
    let unnamed = service.heard("diarize=true&paragraphs=true", reading.clone()).await;
    assert!(!unnamed.to_string().contains("speaker_name"), "{unnamed}");

    let second = new_key(service.state.path());
    let (code, _, error) = command(&service, &["add", "Bo", clip.to_str().expect("text")]);
    assert!(code == Some(1) && error.contains("--organisation"), "{error}");
    let (code, _, error) = command(&service, &["add", "Bo", "/no/such.wav", "--organisation", "1"]);
    assert_eq!(code, Some(2), "no organisation has this number: {error}");
    let others = client().get(service.program.url("/v1/speakers")).bearer_auth(&second);
    assert_eq!(answer(others).await.1["speakers"], serde_json::json!([]));

    let (code, _, error) = command(&service, &["remove", id]);
    assert_eq!(code, Some(0), "{error}");
    let (code, _, error) = command(&service, &["remove", id]);
    assert!(code == Some(1) && error.contains("there is no voice"), "{error}");
    let body = service.heard(query, reading).await;
    assert!(!body.to_string().contains("Ada Reader"), "{body}");
}

#[tokio::test]
async fn sdks_have_the_speakers_of_words() {
    if !are_installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("call.wav");
    write_conversation(&file);
    let service = Service::start(&[]).await;
    let clients =
        [Some(python("python", "speakers.py")), Some(python("python-3", "speakers.py")), node("speakers.js")];
    for mut client in clients.into_iter().flatten() {
        client.env("SERVER", service.program.url("")).env("KEY", &service.key).env("AUDIO", &file);
        let told = printed(client).await;
        let words = told.as_array().expect("words");
        let speakers: BTreeSet<u64> = words.iter().filter_map(|word| word[1].as_u64()).collect();
        assert_eq!(speakers, BTreeSet::from([0, 1]), "{told}");
        assert!(words.iter().all(|word| word[1].is_u64() && word[2].is_number()), "{told}");
    }
}

#[tokio::test]
async fn a_server_whose_models_are_switched_off_refuses() {
    let service = Service::start(&[("VERBATIM_SPEAKERS__MODELS", "off")]).await;
    let (status, body) = answer(service.listen("diarize=true", vec![0; 32_000])).await;
    let message = "`diarize` is not available: this server has no speaker models.";
    assert_eq!((status, body["err_msg"].as_str()), (400, Some(message)));
}

/// The conversation as a WAV file.
pub fn write_conversation(file: &Path) {
    let (samples, _) = conversation();
    let data = bytes(&samples);
    let length = u32::try_from(data.len()).expect("small");
    let mut wave = Vec::new();
    for part in [&b"RIFF"[..], &(length + 36).to_le_bytes(), b"WAVEfmt ", &16u32.to_le_bytes()] {
        wave.extend_from_slice(part);
    }
    for number in [1u16, 1] {
        wave.extend(number.to_le_bytes());
    }
    for number in [16_000u32, 32_000] {
        wave.extend(number.to_le_bytes());
    }
    for number in [2u16, 16] {
        wave.extend(number.to_le_bytes());
    }
    wave.extend(b"data");
    wave.extend(length.to_le_bytes());
    wave.extend(data);
    std::fs::write(file, wave).expect("writable");
}

/// The output of `verbatim transcribe` for the conversation, with more arguments.
fn transcribed(arguments: &[&str], models: &str) -> (Option<i32>, String, String) {
    let home = tempfile::tempdir().expect("a folder");
    let file = home.path().join("a call.wav");
    write_conversation(&file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    command.args(["transcribe", "--threads", "2", "--language", "en", "--model"]).arg(cache("models/base"));
    command.args(arguments).arg(&file);
    command.env("VERBATIM_MODEL_DIR", cache("models")).env("HOME", home.path());
    command.env("VERBATIM_SPEAKERS__MODELS", models);
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn text_captions_and_rttm_name_the_speakers() {
    if !are_installed() {
        return;
    }
    let output = |arguments: &[&str]| {
        let (code, output, error) = transcribed(arguments, "auto");
        assert_eq!(code, Some(0), "{error}");
        output
    };
    let text = output(&["--diarize"]);
    assert!(
        text.starts_with("[00:00:0") && text.contains(" speaker 0] ") && text.contains(" speaker 1] "),
        "{text}"
    );
    let subrip = output(&["--diarize", "--format", "srt"]);
    assert!(subrip.contains("\n[speaker 0]\n") && subrip.contains("\n[speaker 1]\n"), "{subrip}");
    let captions = output(&["--diarize", "--format", "vtt", "--speakers", "2"]);
    let cues = captions.matches(" --> ").count();
    let voices = captions.matches("\n<v Speaker 0>").count() + captions.matches("\n<v Speaker 1>").count();
    assert_eq!(cues, voices, "{captions}");
    let json: Value =
        serde_json::from_str(&output(&["--diarize", "--format", "json", "--word-timestamps"])).expect("JSON");
    assert!(json["turns"].as_array().is_some_and(|turns| turns.len() > 2), "{json}");
    assert!(json["segments"][0]["words"][0]["speaker"].is_u64(), "{json}");

    let rttm = output(&["--format", "rttm"]);
    let (_, turns) = conversation();
    for line in rttm.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!((fields.len(), fields[0], fields[1], fields[2]), (10, "SPEAKER", "a_call", "1"), "{line}");
        let number = |index: usize| fields[index].parse::<f64>().expect("seconds");
        let middle = number(3) + number(4) / 2.0;
        let (speaker, _) = turns.iter().rev().find(|(_, span)| span.start <= middle).expect("a turn");
        assert_eq!(fields[7], format!("speaker{speaker}"), "{rttm}");
    }
    assert!(rttm.lines().count() >= turns.len(), "{rttm}");
}

#[test]
fn flags_that_make_no_sense_are_refused_before_anything_is_loaded() {
    for (arguments, code, reason) in [
        (&["--max-speakers", "2"][..], 2, "with --diarize only"),
        (
            &["--diarize", "--min-speakers", "3", "--max-speakers", "2"],
            2,
            "--min-speakers is greater than --max-speakers",
        ),
        (
            &["--diarize", "--speakers", "3", "--max-speakers", "2"],
            2,
            "--speakers is greater than --max-speakers",
        ),
        (&["--diarize", "--speakers", "0"], 2, "must be a whole number from 1"),
        (&["--diarize"], 1, "./setup speakers"),
        (&["--format", "rttm"], 1, "./setup speakers"),
    ] {
        let (found, output, error) = transcribed(arguments, "off");
        assert_eq!((found, output.as_str()), (Some(code), ""), "{arguments:?}: {error}");
        assert!(error.contains(reason), "{arguments:?}: {error}");
    }
}
