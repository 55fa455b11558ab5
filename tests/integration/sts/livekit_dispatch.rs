//! Rooms of a LiveKit server with many in them, or of others' making: agents called by name, several callers, ten talks
//! at once, telephones.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use verbatim::jwt;

use super::livekit::{Caller, KEY, Media, SECRET};
use super::service::{Service, Setup};
use super::voices::{self, COUNTRY, FOX, Voice};
use crate::server::client;

const QUESTION: &str = "What does the quick brown fox do?";

/// A token of the server's account: the rights `video`, for the participant `identity` if any.
fn token(identity: Option<&str>, kind: &str, video: Value) -> String {
    let mut claims = json!({"iss": KEY, "nbf": 0, "exp": 4_000_000_000_u64, "kind": kind, "video": video});
    if let Some(identity) = identity {
        claims["sub"] = identity.into();
    }
    jwt::sign(SECRET.as_bytes(), &claims)
}

/// What a caller joins `room` by, in the form of a start's reply.
fn invitation(media: &Media, room: &str, identity: &str, kind: &str) -> Value {
    let token = token(Some(identity), kind, json!({"roomJoin": true, "room": room}));
    json!({
        "websocket_url": format!("ws://{}", media.address), "token": token, "participant_identity": identity,
    })
}

/// Calls the server's interface as its own clients do.
async fn call(media: &Media, method: &str, room: &str, body: Value) -> (u16, Value) {
    let token = token(
        None,
        "standard",
        json!({"roomAdmin": true, "roomCreate": true, "roomList": true, "room": room}),
    );
    let url = format!("http://{}/twirp/livekit.{method}", media.address);
    let request = client().post(url).bearer_auth(token).header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.bytes().await.expect("a whole body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// Waits until the server knows of the agent: it comes into one of the rooms that are asked for.
async fn is_known(media: &Media) {
    let wait = async {
        for number in 0.. {
            let room = format!("rehearsal-{number}");
            dispatch(media, &room, &json!({})).await;
            for _ in 0..20 {
                let (_, there) =
                    call(media, "RoomService/ListParticipants", &room, json!({"room": room})).await;
                if there["participants"].as_array().is_some_and(|all| !all.is_empty()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("it is registered");
}

async fn dispatch(media: &Media, room: &str, metadata: &Value) {
    let asked = json!({"agent_name": "concierge", "room": room, "metadata": metadata.to_string()});
    let (status, reply) = call(media, "AgentDispatchService/CreateDispatch", room, asked).await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn the_servers_own_clients_call_the_agent_by_name() {
    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    setup.config.livekit.agent_name = Some("concierge".into());
    // Whoever waits for a caller who has left waits for no time.
    setup.config.rejoin_seconds = 0;
    let service = Service::start(setup).await;
    let metadata = json!({
        "greeting": "Welcome to the shop.",
        "documents": [{"title": "Pangram", "type": "text", "content": FOX.0}],
    });
    is_known(&media).await;
    dispatch(&media, "shop", &metadata).await;
    let mut caller = Caller::join(&invitation(&media, "shop", "ann", "standard")).await;
    let agent = caller.find(|event| event["event"] == "words").await;
    let agent = agent["identity"].as_str().expect("text").to_owned();
    assert!(agent.starts_with("agent-sess_"), "{agent}");
    assert_eq!(caller.line(&agent).await["text"], "Welcome to the shop.");
    caller.tell(json!({"type": QUESTION})).await;
    assert_eq!(caller.line(&agent).await["text"], FOX.0);

    // The session is one like others, and when it is over the room is still there.
    let id = agent.strip_prefix("agent-").expect("its session");
    let status = service.status(id).await;
    assert_eq!((&status["room_name"], &status["status"]), (&json!("shop"), &json!("active")));
    caller.tell(json!({"leave": true})).await;
    service.until(id, |status| status["status"] == "ended").await;
    let (status, rooms) = call(&media, "RoomService/ListRooms", "shop", json!({"names": ["shop"]})).await;
    assert_eq!((status, rooms["rooms"].as_array().map(Vec::len)), (200, Some(1)), "{rooms}");

    // A job whose metadata make no session is refused, and the next is taken.
    dispatch(&media, "office", &json!({"greeting": 7})).await;
    dispatch(&media, "office", &json!({"greeting": "Welcome to the office."})).await;
    let mut caller = Caller::join(&invitation(&media, "office", "ben", "standard")).await;
    let line = caller.find(|event| event["event"] == "line").await;
    assert_eq!(line["text"], "Welcome to the office.");
}

#[tokio::test]
async fn several_callers_in_a_room_are_told_apart() {
    let Some(media) = Media::start().await else { return };
    let voice = Voice::start().await;
    let script = [Some(QUESTION), Some("What may you ask for your country?")];
    let mut setup = Setup { recognize: Some(voices::ears(&script)), ..Setup::default() };
    // On a busy machine packets arrive late, and a gap in a sentence isn't its end.
    setup.config.turn.silence_ms = 3_000;
    media.give(&mut setup);
    voice.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, reply) = service
        .session(json!({
            "greeting": "Hello there.",
            "documents": [
                {"title": "Pangram", "type": "text", "content": FOX.0},
                {"title": "Speech", "type": "text", "content": COUNTRY.0},
            ],
        }))
        .await;
    let mut ann = Caller::join(&reply).await;
    ann.message("AgentAudioDone").await;
    let room = reply["room_name"].as_str().expect("a name");
    let mut ben = Caller::join(&invitation(&media, room, "ben", "standard")).await;
    service.until(&id, |status| status["participants"].as_array().is_some_and(|all| all.len() == 2)).await;

    // Each hears whose line it is, and both hear the answers.
    let me = reply["participant_identity"].as_str().expect("text").to_owned();
    ann.speak(FOX.1).await;
    for caller in [&mut ann, &mut ben] {
        assert_eq!(caller.line(&me).await["text"], QUESTION);
        caller.find(|event| event["event"] == "line" && event["text"] == FOX.0).await;
        caller.message("AgentAudioDone").await;
    }
    ben.speak(FOX.1).await;
    for caller in [&mut ann, &mut ben] {
        assert_eq!(caller.line("ben").await["text"], "What may you ask for your country?");
    }
    // One leaves; the other is still heard.
    ann.tell(json!({"leave": true})).await;
    service.until(&id, |status| status["participants"].as_array().is_some_and(|all| all.len() == 1)).await;
    ben.tell(json!({"type": QUESTION})).await;
    ben.find(|event| event["event"] == "line" && event["text"] == FOX.0).await;
    assert_eq!(service.status(&id).await["status"], "active");
}

#[tokio::test]
async fn a_telephone_in_a_room_is_a_telephone_and_its_number_is_shown_to_no_one() {
    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    let service = Service::start(setup).await;
    let (id, reply) = service.session(json!({"greeting": "Hello there."})).await;
    let room = reply["room_name"].as_str().expect("a name");
    let claims = json!({
        "iss": KEY, "sub": "sip_+15005550042", "nbf": 0, "exp": 4_000_000_000_u64, "kind": "sip",
        "attributes": {"sip.phoneNumber": "+15005550042"}, "video": {"roomJoin": true, "room": room},
    });
    let mut phone = invitation(&media, room, "sip_+15005550042", "sip");
    phone["token"] = jwt::sign(SECRET.as_bytes(), &claims).into();
    let mut caller = Caller::join(&phone).await;
    caller.message("AgentAudioDone").await;
    let status = service.status(&id).await;
    let seat = &status["participants"][0];
    assert_eq!((&seat["identity"], &seat["kind"]), (&json!("caller"), &json!("phone")), "{seat}");
    assert_eq!(status["caller_number"], "+15005550042");
    // A telephone that hangs up does not come back.
    caller.tell(json!({"leave": true})).await;
    let status = service.until(&id, |status| status["status"] == "ended").await;
    assert_eq!(status["end_reason"], "hung_up");
}

#[tokio::test]
async fn ten_talks_at_once_get_their_answers() {
    let Some(media) = Media::start().await else { return };
    let mut setup = Setup::default();
    media.give(&mut setup);
    let service = Service::start(setup).await;
    let mut talks = JoinSet::new();
    for number in 0..10 {
        let greeting = format!("Welcome to room {number}.");
        let fact = json!([{"title": "Pangram", "type": "text", "content": FOX.0}]);
        let (id, reply) = service.session(json!({"greeting": greeting, "documents": fact})).await;
        talks.spawn(async move {
            let mut caller = Caller::join(&reply).await;
            let agent = format!("agent-{id}");
            assert_eq!(caller.line(&agent).await["text"], greeting.as_str());
            caller.tell(json!({"type": QUESTION})).await;
            assert_eq!(caller.line(&agent).await["text"], FOX.0);
            id
        });
    }
    let all = async {
        while let Some(talk) = talks.join_next().await {
            let status = service.status(&talk.expect("no panic")).await;
            assert_eq!(status["room"]["provider"], "livekit");
        }
    };
    tokio::time::timeout(Duration::from_secs(300), all).await.expect("all are served");
}
