//! A telephone call as the provider makes it: the webhook, then the stream of its audio.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use verbatim::audio::g711::linear_to_mulaw;
use verbatim::secret::Secret;

use super::room::recording;
use super::service::{Service, Setup};
use super::voices::Voice;
use crate::server::client;
use crate::socket::{Said, Socket, connect};

pub async fn twiml(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, response.text().await.expect("text"))
}

fn attribute<'a>(xml: &'a str, before: &str) -> &'a str {
    let from = xml.find(before).map(|at| at + before.len()).expect(before);
    let rest = &xml[from..];
    &rest[..rest.find('"').expect("its end")]
}

pub struct Call {
    socket: Socket,
    /// μ-law that was heard.
    pub heard: Vec<u8>,
}

impl Call {
    /// Calls the session's own door, as after a redirect.
    pub async fn dial(service: &Service, start: &Value, from: &str) -> Self {
        let url = format!(
            "http://{}/api/twilio/incoming-call?session_id={}&room_name={}&to=%2B15005550006&from={from}",
            service.address,
            start["session_id"].as_str().expect("an id"),
            start["room_name"].as_str().expect("a name"),
        );
        let (status, xml) = twiml(client().post(&url).body("CallSid=CA1")).await;
        assert_eq!(status, 200, "{xml}");
        Self::connect(service, &xml).await
    }

    /// Connects the call's audio as the TwiML says.
    pub async fn connect(service: &Service, xml: &str) -> Self {
        let address = attribute(xml, "<Stream url=\"");
        assert_eq!(address, format!("ws://{}/api/twilio/media", service.address));
        let token = attribute(xml, "name=\"token\" value=\"");
        let handshake = connect(service.address, "/api/twilio/media", &[]).await;
        let mut call = Self { socket: handshake.socket.expect("agreed"), heard: Vec::new() };
        call.send(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})).await;
        call.send(json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ1", "start": {
            "streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "customParameters": {"token": token},
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}}))
            .await;
        call
    }

    pub async fn send(&mut self, frame: Value) {
        self.socket.text(&frame.to_string()).await;
    }

    /// Acknowledges played audio until an event of this kind arrives.
    pub async fn until(&mut self, event: &str) -> Value {
        let wait = async {
            loop {
                let frame = match self.socket.said().await {
                    Said::Message(frame) => frame,
                    other => panic!("{other:?} instead of {event}"),
                };
                assert_eq!(frame["streamSid"], "MZ1");
                match frame["event"].as_str() {
                    Some("media") => {
                        let payload = frame["media"]["payload"].as_str().expect("a payload");
                        self.heard.extend(STANDARD.decode(payload).expect("base64"));
                    }
                    Some("mark") => self.send(frame.clone()).await,
                    _ => {}
                }
                if frame["event"] == event {
                    return frame;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it comes")
    }

    /// Ends the call, and waits until the server has let go of it.
    pub async fn hang_up(&mut self) {
        self.send(json!({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}})).await;
        let rest = tokio::time::timeout(Duration::from_secs(60), self.socket.rest()).await;
        rest.expect("it ends");
    }

    pub async fn speak(&mut self, samples: &[i16]) {
        let telephone: Vec<u8> = samples.iter().step_by(2).map(|sample| linear_to_mulaw(*sample)).collect();
        for piece in telephone.chunks(160) {
            let payload = STANDARD.encode(piece);
            self.send(json!({"event": "media", "streamSid": "MZ1", "media": {"track": "inbound", "payload": payload}})).await;
        }
    }
}

fn documents() -> Value {
    json!({
        "channel": "phone", "greeting": "Welcome to Acme.",
        "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
        "verification_rules": {"patient_information": {"voice_prompt": "Your digits, please."}},
    })
}

#[tokio::test]
async fn a_call_is_bridged_into_its_room() {
    let voice = Voice::start().await;
    let mut setup = Setup { heard: vec!["Where can I park?"], ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(documents()).await;
    service.ready(&id).await;
    // The `+` of the number was not escaped, as happens.
    let mut call = Call::dial(&service, &start, "+14155552671").await;
    call.until("mark").await;
    let seconds = call.heard.len() as f64 / 8000.0;
    assert!((0.3..4.0).contains(&seconds), "{seconds} s of greeting");
    let status = service.until(&id, |status| status["participants"][0]["kind"] == "phone").await;
    assert_eq!(status["caller_number"], "+14155552671");
    assert_eq!(status["call"]["call_sid"], "CA1");
    let greeted = |status: &Value| status["transcript"].as_array().is_some_and(|lines| lines.len() == 1);
    service.until(&id, greeted).await;
    call.speak(&recording("en_quick_brown_fox.wav")).await;
    call.until("mark").await;
    let answered = |status: &Value| status["transcript"].as_array().is_some_and(|lines| lines.len() == 3);
    let status = service.until(&id, answered).await;
    assert_eq!(status["transcript"][2]["text"], "Parking is free behind the building.");
    assert!(status["transcript"][2]["latency_ms"].is_number());

    call.send(json!({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "hung_up");
    assert!(status["call"]["ended_at"].is_string());
}

#[tokio::test]
async fn keys_are_a_turn_of_their_own() {
    let mut setup = Setup { heard: vec!["What are my test results?"], ..Setup::default() };
    let records = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(records.path(), r#"[{"digits": "1234"}]"#).expect("written");
    setup.config.verification.records = Some(records.path().to_owned());
    let service = Service::start(setup).await;
    let (id, start) = service.session(documents()).await;
    let mut call = Call::dial(&service, &start, "anonymous").await;
    call.until("mark").await;
    call.speak(&recording("en_quick_brown_fox.wav")).await;
    service.until(&id, |status| status["pending_verification"] == "patient_information").await;
    for digit in ["1", "2", "3", "4"] {
        call.send(
            json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": digit}}),
        )
        .await;
    }
    let verified = |status: &Value| status["verification"]["patient_information"]["verified"] == true;
    let status = service.until(&id, verified).await;
    assert_eq!(status["verification"]["patient_information"]["source"], "inline");
    assert_eq!(status["caller_number"], Value::Null);
}

#[tokio::test]
async fn a_caller_who_speaks_over_the_agent_clears_the_line() {
    let voice = Voice::start().await;
    let mut setup = Setup { heard: vec!["Tell me the history.", "Where can I park?"], ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let mut start = documents();
    let history = json!({"title": "History", "type": "text", "content": "The history of the clinic begins in a small house near the river where two brothers opened a practice for the people of the valley and their many animals and it goes on for a very long time until today."});
    start["documents"].as_array_mut().expect("an array").push(history);
    let (id, start) = service.session(start).await;
    service.ready(&id).await;
    let mut call = Call::dial(&service, &start, "anonymous").await;
    call.until("mark").await;
    call.speak(&recording("en_quick_brown_fox.wav")).await;
    let enough = call.heard.len() + 12_000;
    while call.heard.len() < enough {
        call.until("media").await;
    }
    call.speak(&recording("en_quick_brown_fox.wav")).await;
    call.until("clear").await;
    let answered = |status: &Value| status["transcript"].to_string().contains("behind the building");
    call.until("mark").await;
    let status = service.until(&id, answered).await;
    let lines = status["transcript"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line["interrupted"] == true), "{lines:?}");
}

#[tokio::test]
async fn a_call_that_fits_no_session_is_told_so_in_words() {
    let service = Service::start(Setup::default()).await;
    let (id, _) = service.session(documents()).await;
    for query in [
        "",
        "session_id=sess_000000000000&room_name=x",
        &format!("session_id={id}"),
        &format!("session_id={id}&room_name=sts-0"),
    ] {
        let url = format!("http://{}/api/twilio/incoming-call?{query}", service.address);
        for request in [client().get(&url), client().post(&url)] {
            let (status, xml) = twiml(request).await;
            assert_eq!(status, 200);
            assert!(xml.contains("<Say>") && xml.contains("<Hangup/>") && !xml.contains("Stream"), "{xml}");
        }
    }
    let mut socket = connect(service.address, "/api/twilio/media", &[]).await.socket.expect("agreed");
    let start = json!({"event": "start", "streamSid": "MZ1", "start": {"callSid": "CA1", "customParameters": {"token": "x.y.z"}}});
    socket.text(&start.to_string()).await;
    assert!(matches!(socket.said().await, Said::Close(1000, _)));
}

#[tokio::test]
async fn with_a_token_configured_the_provider_must_sign() {
    let mut setup = Setup::default();
    setup.config.twilio.auth_token = Some(Secret::from("12345"));
    setup.config.public_url = Some("https://mycompany.com".into());
    let service = Service::start(setup).await;
    let url = format!("http://{}/api/twilio/incoming-call?foo=1", service.address);
    let unsigned = client().post(&url).send().await.expect("an answer");
    assert_eq!(unsigned.status().as_u16(), 403);
    let wrong = client().post(&url).header("x-twilio-signature", "RSOYDt4T1cUTdK1PDd93/VVr8B8=");
    assert_eq!(wrong.send().await.expect("an answer").status().as_u16(), 403);
}
