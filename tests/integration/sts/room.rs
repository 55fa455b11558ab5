//! A scripted caller in the embedded room: heard, answered, interrupted, verified and sent off.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use verbatim::audio::Pcm;
use verbatim::secret::Secret;

use super::doubles;
use super::service::{Service, Setup};
use super::voices::Voice;
use crate::socket::{Said, Socket, connect};

/// Sample rate of the agent's audio.
const OUTPUT_RATE: f64 = 24_000.0;

pub struct Caller {
    socket: Socket,
    /// Bytes of the agent's voice.
    pub voice: Vec<u8>,
}

impl Caller {
    pub async fn join(service: &Service, start: &Value) -> Self {
        Self::join_at(service.address, start).await
    }

    /// As [`Self::join`], of any server that serves the room itself.
    pub async fn join_at(address: SocketAddr, start: &Value) -> Self {
        let url = start["websocket_url"].as_str().expect("an address");
        let path = url.strip_prefix(&format!("ws://{address}")).expect("our own");
        let handshake = connect(address, path, &[]).await;
        assert_eq!(handshake.status, 101, "{}", handshake.body);
        let mut caller = Self { socket: handshake.socket.expect("agreed"), voice: Vec::new() };
        let welcome = caller.socket.message().await;
        assert_eq!((&welcome["type"], &welcome["session_id"]), (&json!("Welcome"), &start["session_id"]));
        caller.keep_alive().await;
        caller
    }

    /// Joins once the session has read all that it was given, and waits for the greeting to end.
    pub async fn greeted(service: &Service, start: &Value) -> Self {
        service.ready(start["session_id"].as_str().expect("an id")).await;
        let mut caller = Self::join(service, start).await;
        caller.listen().await;
        caller
    }

    /// The next message of a type; skips others, and keeps audio.
    pub async fn message(&mut self, kind: &str) -> Value {
        self.find(|message| message["type"] == kind).await
    }

    pub async fn find(&mut self, wish: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                // A client that waits for a slow model must not be taken for gone.
                let Ok(said) = tokio::time::timeout(Duration::from_secs(20), self.socket.said()).await else {
                    self.keep_alive().await;
                    continue;
                };
                match said {
                    Said::Message(message) if wish(&message) => return message,
                    Said::Message(_) | Said::Pong(_) => {}
                    Said::Audio(bytes) => self.voice.extend(bytes),
                    other => panic!("{other:?} instead of a message"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), wait).await.expect("it comes")
    }

    /// All that the agent says until it is done.
    pub async fn listen(&mut self) -> String {
        let mut said = Vec::new();
        loop {
            let message = self
                .find(|m| {
                    m["type"] == "AgentAudioDone"
                        || (m["type"] == "ConversationText" && m["role"] == "assistant")
                })
                .await;
            match message["content"].as_str() {
                Some(text) => said.push(text.to_owned()),
                None => return said.join(" "),
            }
        }
    }

    /// Waits for this many more seconds of the agent's voice, which arrives at the speed of speech.
    pub async fn hear(&mut self, seconds: f64) {
        let enough = self.voice.len() + (seconds * OUTPUT_RATE) as usize * 2;
        while self.voice.len() < enough {
            match self.socket.said().await {
                Said::Audio(bytes) => self.voice.extend(bytes),
                Said::Message(_) | Said::Pong(_) => {}
                other => panic!("{other:?} instead of a voice"),
            }
        }
    }

    pub async fn write(&mut self, text: &str) {
        let message = json!({"type": "InjectUserMessage", "content": text});
        self.socket.text(&message.to_string()).await;
    }

    pub async fn key(&mut self, digits: &str) {
        for digit in digits.chars() {
            self.send(json!({"type": "Dtmf", "digit": digit.to_string()})).await;
        }
    }

    pub async fn send(&mut self, message: Value) {
        self.socket.text(&message.to_string()).await;
    }

    /// Speaks at the speed of speech, or faster: what counts is what is in it.
    pub async fn speak(&mut self, samples: &[i16]) {
        for piece in samples.chunks(3200) {
            let bytes: Vec<u8> = piece.iter().flat_map(|sample| sample.to_le_bytes()).collect();
            self.socket.audio(&bytes).await;
        }
    }

    pub async fn keep_alive(&mut self) {
        self.socket.control("KeepAlive").await;
    }

    /// The code of the goodbye, after whatever is written before it.
    pub async fn goodbye(&mut self) -> u16 {
        let rest = tokio::time::timeout(Duration::from_secs(60), self.socket.rest()).await;
        match rest.expect("it comes").1 {
            Said::Close(code, _) => code,
            other => panic!("{other:?} instead of a goodbye"),
        }
    }
}

/// A recording that `./setup` has fetched.
pub fn clip(name: &str) -> Pcm {
    crate::speech::read(&format!("speech/{name}"))
}

/// Speech between silences that make it a turn.
pub fn turn(speech: &[f32]) -> Vec<i16> {
    let speech = speech.iter().map(|sample| (sample * 32_767.0) as i16);
    [0; 8_000].into_iter().chain(speech).chain([0; 24_000]).collect()
}

pub fn recording(name: &str) -> Vec<i16> {
    turn(clip(name).samples())
}

fn clinic() -> Value {
    json!({
        "greeting": "Welcome to Acme Dental.",
        "documents": [
            {"title": "Opening hours", "type": "text", "content": "We are open Monday to Friday from nine to five."},
            {"title": "Parking", "type": "text", "content": "Parking is free behind the building."},
            {"title": "Results", "type": "text", "content": "Test results are ready after three days."},
        ],
        "link_catalog": {"forms": {"url": "https://front.example/forms", "title": "the sign-up form"}},
        "verification_rules": {"patient_information": {
            "voice_prompt": "Please say your four digits.", "voice_prompt_short": "Those digits do not match.",
        }},
    })
}

#[tokio::test]
async fn a_caller_is_greeted_and_answered_from_what_was_given() {
    let service = Service::start(Setup::default()).await;
    let (id, start) = service.session(clinic()).await;
    service.ready(&id).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Welcome to Acme Dental.");
    caller.write("When are you open?").await;
    assert_eq!(caller.listen().await, "We are open Monday to Friday from nine to five.");
    caller.write("Do you sell bicycles?").await;
    assert!(caller.listen().await.contains("don't have that information"));
    caller.write("Thank you, goodbye!").await;
    assert_eq!(caller.listen().await, "Goodbye!");
    assert_eq!(caller.goodbye().await, 4000);
    let status = service.status(&id).await;
    assert_eq!((&status["status"], &status["end_reason"]), (&json!("ended"), &json!("goodbye")));
    assert_eq!(status["agent"]["engine"]["voice"], "none");
    let roles: Vec<&str> = status["transcript"]
        .as_array()
        .expect("lines")
        .iter()
        .map(|l| l["role"].as_str().expect("text"))
        .collect();
    assert_eq!(roles, ["assistant", "user", "assistant", "user", "assistant", "user", "assistant"]);
}

#[tokio::test]
async fn speech_is_heard_and_answered() {
    let setup = Setup { heard: vec!["Where can I park?"], ..Setup::default() };
    let service = Service::start(setup).await;
    let (_, start) = service.session(clinic()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    let heard = caller.find(|m| m["type"] == "ConversationText").await;
    assert_eq!((&heard["role"], &heard["content"]), (&json!("user"), &json!("Where can I park?")));
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
}

#[tokio::test]
async fn who_is_verified_by_the_hook_gets_the_answer_and_the_message() {
    let (hook, provider) = (doubles::hook().await, doubles::provider().await);
    let mut setup = Setup::default();
    setup.config.verification.hook_url = Some(format!("{}/hook", hook.url));
    setup.config.verification.hook_api_key = Some(Secret::from("demo"));
    doubles::send_by(&provider.url, &mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(clinic()).await;
    service.act(json!({"action": "bind_caller", "session_id": id, "caller_number": "+14155552671"})).await;
    let mut caller = Caller::greeted(&service, &start).await;
    caller.write("What are my test results?").await;
    assert_eq!(caller.listen().await, "Please say your four digits.");
    assert_eq!(service.status(&id).await["pending_verification"], "patient_information");
    caller.write("It is 9999.").await;
    assert_eq!(caller.listen().await, "Those digits do not match.");
    caller.key("1234").await;
    let reply = caller.listen().await;
    assert!(reply.contains("you are verified") && reply.contains("text message"), "{reply}");
    assert_eq!(caller.listen().await, "Test results are ready after three days.");

    assert_eq!(hook.header("x-api-key").as_deref(), Some("demo"));
    let asked: Value = serde_json::from_str(&hook.bodies()[1]).expect("JSON");
    assert_eq!(asked, json!({"session_id": id, "utterance": "1234", "category": "patient_information"}));
    let status = service.until(&id, |status| status["sms"]["sent"][0]["status"] == "sent").await;
    assert_eq!(status["sms"]["sent"][0]["sid"], "SM1");
    assert_eq!(status["pending_sms"], json!([]));
    assert_eq!(status["verification"]["patient_information"]["source"], "hook");
    let message = provider.bodies().concat();
    assert!(message.contains("To=%2B14155552671") && message.contains("front.example%2Fforms"), "{message}");
    // The digits are shown nowhere.
    assert!(
        !status["transcript"].to_string().contains("9999")
            && !status["transcript"].to_string().contains("1234")
    );
    // A repeated event is sent once.
    let again = json!({"action": "verification", "session_id": id, "category": "patient_information", "verified": true,
        "details": {"sms_catalog_key": "forms"}});
    service.act(again).await;
    caller.listen().await;
    assert_eq!(provider.bodies().len(), 1);
}

#[tokio::test]
async fn a_message_that_the_provider_refuses_is_shown_as_failed() {
    let provider = doubles::provider().await;
    let mut setup = Setup::default();
    doubles::send_by(&provider.url, &mut setup);
    let service = Service::start(setup).await;
    let (id, _) = service.session(clinic()).await;
    service.act(json!({"action": "bind_caller", "session_id": id, "caller_number": "+15005550004"})).await;
    service
        .act(json!({"action": "verification", "session_id": id, "category": "c", "verified": true,
        "details": {"sms_catalog_key": "forms"}}))
        .await;
    let status = service.until(&id, |status| status["sms"]["failed"][0]["status"] == "failed").await;
    assert_eq!(status["sms"]["failed"][0]["error"], "code 21610");
    assert_eq!((&status["sms"]["sent"], &status["pending_sms"]), (&json!([]), &json!([])));
    assert_eq!(provider.bodies().len(), 1);
}

#[tokio::test]
async fn what_happens_elsewhere_reaches_the_room() {
    let service = Service::start(Setup::default()).await;
    let mut start = clinic();
    start["page_guidance_enabled"] = json!(true);
    let (id, start) = service.session(start).await;
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    let page = json!({"page": "signup", "step": 2, "sections": [{"name": "address", "complete": false}]});
    service.act(json!({"action": "page_context", "session_id": id, "page_context": page})).await;
    assert_eq!(caller.message("PageContextUpdated").await["page_context"], page);
    assert_eq!(caller.listen().await, "You are at step 2 of signup. What is still missing is address.");
    caller.write("What is missing on this page?").await;
    assert!(caller.listen().await.contains("address"));
    service.act(json!({"action": "completion", "session_id": id, "message": "Your form has arrived."})).await;
    assert_eq!(caller.message("CompletionNotice").await["message"], "Your form has arrived.");
    assert_eq!(caller.listen().await, "Your form has arrived.");
    let participants = service.status(&id).await["participants"].clone();
    assert_eq!(participants[0]["kind"], "web");
}

#[tokio::test]
async fn what_was_completed_before_anyone_came_is_told_to_who_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = Setup::default();
    setup.config.rejoin_seconds = 600;
    let service = Service::start_in(folder.path(), setup).await;
    let (id, start) = service.session(clinic()).await;
    let complete = |message: Value| json!({"action": "completion", "session_id": id, "message": message});
    for message in [json!("Your form has arrived."), Value::Null, Value::Null] {
        service.act(complete(message)).await;
    }
    assert_eq!(service.status(&id).await["transcript"], json!([]));
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Welcome to Acme Dental.");
    assert_eq!(caller.listen().await, "Your form has arrived.");
    assert_eq!(caller.listen().await, "That is done. Is there anything else?");
    caller.write("Where can I park?").await;
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
    // The room is empty for a while. The agent tells the next person who joins what happened meanwhile, once.
    drop(caller);
    service.until(&id, |status| status["participants"] == json!([])).await;
    service.act(complete(json!("Your second form has arrived."))).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Your second form has arrived.");
    let (mut again, _) = (Caller::join(&service, &start).await, drop(caller));
    again.write("Where can I park?").await;
    assert_eq!(again.listen().await, "Parking is free behind the building.");
    let lines = service.status(&id).await["transcript"].to_string();
    assert_eq!(lines.matches("second form").count(), 1, "{lines}");

    // A restart forgets nothing of it.
    let (id, start) = service.session(clinic()).await;
    service.act(json!({"action": "completion", "session_id": id, "message": "All done."})).await;
    service.stop().await;
    let service = Service::start_in(folder.path(), Setup::default()).await;
    let status = service.status(&id).await;
    let url = status["websocket_url"].clone();
    let mut caller =
        Caller::join(&service, &json!({"websocket_url": url, "session_id": start["session_id"]})).await;
    caller.listen().await;
    assert_eq!(caller.listen().await, "All done.");
}

#[tokio::test]
async fn questions_about_the_page_are_answered_from_it() {
    let service = Service::start(Setup::default()).await;
    let (id, start) = service.session(clinic()).await;
    let mut caller = Caller::greeted(&service, &start).await;
    let mut ask = async |question: &str| {
        caller.write(question).await;
        caller.listen().await
    };
    assert_eq!(ask("Which page is this?").await, "I can't see what you have open at the moment.");
    let page = json!({"page": "/forms/sign-up", "form_name": "healthcare_signup", "step": 2, "total_steps": 4,
        "sections": [{"title": "You", "fields": [
            {"name": "name", "filled": true}, {"label": "Street", "filled": false}, {"label": "City", "filled": false}]}]});
    service.act(json!({"action": "page_context", "session_id": id, "page_context": page})).await;
    let place = "You are at step 2 of 4 in healthcare signup.";
    let brief = format!("{place} What is still missing is Street.");
    for question in
        ["What step am I on?", "Can you tell me which step I'm on?", "Where am I?", "What page am I on?"]
    {
        assert_eq!(ask(question).await, format!("The page is forms sign up. {brief}"), "{question}");
    }
    assert_eq!(ask("Which page is this?").await, format!("The page is forms sign up. {brief}"));
    for question in
        ["What do I fill in here?", "What should I enter here?", "What's left?", "Which fields are missing?"]
    {
        let expected = format!("{place} What is still missing is Street and City.");
        assert_eq!(ask(question).await, expected, "{question}");
    }
    // Other questions are not about the page.
    assert_eq!(ask("Where can I park?").await, "Parking is free behind the building.");
    assert!(ask("What do I do if I lose my card?").await.contains("don't have that information"));
}

#[tokio::test]
async fn a_room_is_for_those_who_hold_its_token() {
    let service = Service::start(Setup::default()).await;
    let (_, one) = service.session(json!({})).await;
    let (_, other) = service.session(json!({})).await;
    let room = other["room_name"].as_str().expect("a name");
    let token = one["token"].as_str().expect("a token");
    for path in [
        format!("/STS/rooms/{room}"),
        format!("/STS/rooms/{room}?access_token={token}"),
        format!("/STS/rooms/{room}?access_token=x.y.z"),
    ] {
        assert_eq!(connect(service.address, &path, &[]).await.status, 401, "{path}");
    }
    // As a browser has it, too.
    let path = format!("/STS/rooms/{}", one["room_name"].as_str().expect("a name"));
    let offered = format!("token, {token}");
    let handshake = connect(service.address, &path, &[("sec-websocket-protocol", offered.as_str())]).await;
    assert_eq!((handshake.status, handshake.header("sec-websocket-protocol")), (101, Some("token")));
}

#[tokio::test]
async fn an_agent_that_is_spoken_over_is_silent_and_what_was_heard_is_kept() {
    let voice = Voice::start().await;
    let mut setup = Setup { heard: vec!["Where can I park?"], ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, start) = service.session(json!({
        "greeting": "Welcome.",
        "documents": [
            {"title": "History", "type": "text", "content": "The history of the clinic begins in a small house near the river where two brothers opened a practice for the people of the valley and their many animals and it goes on for a very long time until today."},
            {"title": "Parking", "type": "text", "content": "Parking is free behind the building."},
        ],
    })).await;
    let status = service.ready(&id).await;
    assert_eq!(status["agent"]["engine"]["voice"], "endpoint");
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    let greeting = caller.voice.len() as f64 / 2.0 / OUTPUT_RATE;
    assert!((0.3..3.0).contains(&greeting), "{greeting} s");
    caller.write("Tell me about the history of the clinic.").await;
    let started = caller.message("AgentStartedSpeaking").await;
    assert_eq!(crate::figures::count(&started), 3, "{started}");
    caller.hear(1.5).await;
    caller.speak(&recording("en_quick_brown_fox.wav")).await;
    caller.message("Clear").await;
    let cut = caller.find(|m| m["type"] == "ConversationText" && m["interrupted"] == true).await;
    let heard = cut["content"].as_str().expect("text");
    assert!(heard.len() < 150 && heard.starts_with("The history"), "{heard}");
    assert_eq!(caller.listen().await, "Parking is free behind the building.");
}

#[tokio::test]
async fn a_website_is_read_and_answered_from() {
    static PAGES: &[(&str, &str)] = &[
        ("/robots.txt", "User-agent: *\nDisallow: /secret"),
        (
            "/",
            "<title>Acme</title><h1>Acme Dental</h1><a href='/hours'>Hours</a><a href='/secret'>no</a><a href='http://127.0.0.1:9/'>other</a>",
        ),
        ("/hours", "<title>Opening hours</title><p>We are open on Saturday from ten to two.</p>"),
        ("/secret", "<p>The safe is behind the painting.</p>"),
    ];
    let (url, _door) = doubles::website(PAGES).await;
    let service = Service::start(Setup::default()).await;
    let (id, start) = service.session(json!({"website_url": url})).await;
    let status = service.ready(&id).await;
    assert_eq!(status["knowledge"]["website"]["status"], "ready", "{}", status["knowledge"]);
    assert_eq!(status["knowledge"]["website"]["pages"], 2);
    let mut caller = Caller::join(&service, &start).await;
    caller.listen().await;
    caller.write("Are you open on Saturday?").await;
    assert_eq!(caller.listen().await, "We are open on Saturday from ten to two.");
    caller.write("What is behind the painting?").await;
    assert!(caller.listen().await.contains("don't have that information"));

    // Addresses that aren't public aren't reached, and the message doesn't say why.
    let (id, _) = service.session(json!({"website_url": "http://10.0.0.1/"})).await;
    let status = service.ready(&id).await;
    assert_eq!(status["knowledge"]["website"]["status"], "failed");
    assert_eq!(status["knowledge"]["website"]["error"], "the address is not a public one");
    assert_eq!(status["warnings"], json!(["`website_url` was not read: the address is not a public one"]));

    // Other reasons show only when the website is read.
    let secret = format!("{}/secret", url.trim_end_matches('/'));
    let (id, start) = service.session(json!({"website_url": secret})).await;
    assert_eq!(start["warnings"], json!([]));
    let status = service.ready(&id).await;
    let excluded = "`website_url` was not read: the website's robots.txt does not allow it";
    assert_eq!(status["warnings"], json!([excluded]));
}
