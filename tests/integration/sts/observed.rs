//! A supervisor listens in on a talk: both sides are heard, and neither notices.

use serde_json::{Value, json};

use super::phone::Call;
use super::room::{Caller, recording};
use super::service::{Service, Setup};
use super::voices::Voice;
use crate::socket::{Said, Socket, connect};

/// Someone who listens in.
struct Observer {
    socket: Socket,
    /// 16-bit at 16 kHz.
    heard: Vec<i16>,
    messages: Vec<Value>,
    /// Messages that were waited for.
    looked_at: usize,
}

impl Observer {
    async fn join(service: &Service, id: &str) -> Self {
        let reply = service.act(json!({"action": "observe", "session_id": id})).await;
        let url = reply["websocket_url"].as_str().expect("an address");
        let path = url.strip_prefix(&format!("ws://{}", service.address)).expect("this server's");
        let mut socket = connect(service.address, path, &[]).await.socket.expect("agreed");
        let welcome = socket.message().await;
        assert_eq!((&welcome["type"], &welcome["session_id"]), (&json!("Welcome"), &json!(id)));
        Self { socket, heard: Vec::new(), messages: Vec::new(), looked_at: 0 }
    }

    /// Listens until a message of this kind comes.
    async fn until(&mut self, wish: impl Fn(&Value) -> bool) {
        let wait = async {
            // What came while it listened for something else counts.
            let mut seen = self.looked_at;
            while !self.messages.iter().skip(seen).any(&wish) {
                seen = self.messages.len();
                self.next().await;
            }
            let at = self.messages.iter().skip(self.looked_at).position(&wish).expect("it is there");
            self.looked_at += at + 1;
        };
        tokio::time::timeout(std::time::Duration::from_secs(120), wait).await.expect("it comes");
    }

    async fn next(&mut self) {
        match self.socket.said().await {
            Said::Audio(bytes) => {
                assert_eq!(bytes.len(), 640, "20 ms");
                self.heard.extend(bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])));
            }
            Said::Message(message) => self.messages.push(message),
            other => panic!("{other:?}"),
        }
    }

    /// Listens for some tenths of a second.
    async fn tenths(&mut self, count: usize) {
        let enough = self.heard.len() + count * 1600;
        while self.heard.len() < enough {
            self.next().await;
        }
    }

    /// How long it was loud since the last call, in seconds.
    fn loud_seconds(&mut self) -> f64 {
        let frames = self.heard.chunks(320).filter(|frame| frame.iter().any(|sample| sample.abs() > 600));
        let seconds = frames.count() as f64 / 50.0;
        self.heard.clear();
        seconds
    }
}

#[tokio::test]
async fn a_supervisor_hears_both_sides_of_a_telephone_call() {
    let voice = Voice::start().await;
    let mut setup = Setup { heard: vec!["Where can I park?"], ..Setup::default() };
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let start = json!({
        "channel": "phone", "greeting": "Welcome to Acme.",
        "documents": [{"title": "Parking", "type": "text", "content": "Parking is free behind the building."}],
    });
    let (id, start) = service.session(start).await;
    service.ready(&id).await;
    // Before anyone is there.
    let mut observer = Observer::join(&service, &id).await;
    assert_eq!(service.status(&id).await["participants"], json!([]));
    let mut call = Call::dial(&service, &start, "anonymous").await;
    let greeting = async {
        call.until("mark").await;
    };
    tokio::join!(greeting, observer.until(|message| message["type"] == "AgentAudioDone"));
    assert!(observer.loud_seconds() > 0.2, "the agent");
    // At the speed of speech, which the observer's frames tell.
    for tenth in recording("en_quick_brown_fox.wav").chunks(1600) {
        call.speak(tenth).await;
        observer.tenths(1).await;
    }
    observer.until(|message| message["type"] == "UserStoppedSpeaking").await;
    assert!(observer.loud_seconds() > 0.5, "the caller");
    observer.until(|message| message["type"] == "ConversationText" && message["role"] == "assistant").await;
    let said = observer.messages.iter().any(|message| message["content"] == "Where can I park?");
    assert!(said, "{:?}", observer.messages);
    // Nobody else counts as there.
    let status = service.status(&id).await;
    assert_eq!(status["participants"].as_array().map(Vec::len), Some(1), "{status}");
    call.hang_up().await;
    service.until(&id, |status| status["status"] == "ended").await;
    let rest = tokio::time::timeout(std::time::Duration::from_secs(60), observer.socket.rest()).await;
    assert!(matches!(rest.expect("it ends").1, Said::Close(4000, _)));
}

#[tokio::test]
async fn an_observer_says_nothing_and_keeps_no_session_alive() {
    let mut setup = Setup::default();
    setup.config.rejoin_seconds = 0;
    let service = Service::start(setup).await;
    let (id, start) = service.session(json!({"greeting": "Hello."})).await;
    let mut caller = Caller::join(&service, &start).await;
    assert_eq!(caller.listen().await, "Hello.");
    let mut observer = Observer::join(&service, &id).await;
    observer.socket.text(&json!({"type": "InjectUserMessage", "content": "Goodbye!"}).to_string()).await;
    observer.socket.audio(&[0x40; 6400]).await;
    caller.write("Hello").await;
    caller.listen().await;
    let lines = service.status(&id).await["transcript"].clone();
    assert!(!lines.to_string().contains("Goodbye"), "{lines}");
    drop(caller);
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "left");
    // No one listens in on what is over, nor with another's token.
    let (status, _) = service.action(json!({"action": "observe", "session_id": id})).await;
    assert_eq!(status, 409);
}
