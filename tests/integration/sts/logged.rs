//! The log of requests has the stays of participants in agents' rooms.

use serde_json::json;

use super::phone::Call;
use super::room::Caller;
use super::service::{Service, Setup};

/// A second of silence at 16 kHz.
static SECOND: [i16; 16_000] = [0; 16_000];

#[tokio::test]
async fn stays_in_rooms_and_telephone_calls_are_logged_under_the_key_that_started_the_session() {
    let service = Service::start(Setup::default()).await;
    let start = async |channel: &str| {
        let body = json!({"action": "start", "channel": channel, "greeting": "Hello."});
        let (status, reply) =
            crate::server::answer(service.request(&body).bearer_auth(&service.keys[0])).await;
        assert_eq!(status, 200, "{reply}");
        reply
    };
    let mut caller = Caller::join(&service, &start("web").await).await;
    caller.listen().await;
    caller.speak(&SECOND).await;
    caller.send(json!({"type": "Close"})).await;
    assert_eq!(caller.goodbye().await, 1000);
    let stays = service.stays(1).await;
    let (path, seconds) = &stays[0];
    assert!(path == "/STS/rooms/{room}" && (0.9..=1.0).contains(seconds), "{stays:?}");

    let mut call = Call::dial(&service, &start("phone").await, "%2B14155550100").await;
    call.speak(&SECOND).await;
    call.hang_up().await;
    let stays = service.stays(2).await;
    let (path, seconds) = &stays[0];
    // Resampling keeps back a little.
    assert!(path == "/api/twilio/media" && (0.9..=1.0).contains(seconds), "{stays:?}");
}
