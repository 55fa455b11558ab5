//! The remains of an ended session: enough to look at, and little else in memory and on disk.

use std::path::Path;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use serde_json::{Value, json};

use super::room::Caller;
use super::service::{Service, Setup};
use crate::server::refusal;

/// In every document here.
const SENTENCE: &str = "The harvest of pineapples begins in spring. ";

/// Counts that only this test's thread makes.
pub fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

pub fn gauge(handle: &PrometheusHandle, name: &str) -> f64 {
    let text = handle.render();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

/// With about a megabyte to answer from.
fn start() -> Value {
    json!({
        "greeting": "Hello.", "tenant_id": "t1", "caller_number": "+14155552671",
        "instructions": "Be kind to friends of pineapples.",
        "documents": [{"title": "Fruit", "type": "text", "content": SENTENCE.repeat(20_000)}],
        "link_catalog": {"forms": "https://front.example/forms"},
        "verification_rules": {"patient_information": {"sms_catalog_key": "forms"}},
    })
}

/// Says goodbye; when this returns, the session is over and all is noted.
pub async fn leave(service: &Service, started: &Value) {
    let mut caller = Caller::join(service, started).await;
    caller.listen().await;
    caller.write("Goodbye!").await;
    assert_eq!(caller.goodbye().await, 4000);
}

/// A session that has ended.
async fn over(service: &Service) -> String {
    let (id, started) = service.session(json!({"greeting": "Hello."})).await;
    leave(service, &started).await;
    id
}

/// Without what changes when the last participant has gone.
fn settled(mut status: Value) -> Value {
    let status_ = status.as_object_mut().expect("an object");
    status_.retain(|name, _| !["revision", "updated_at"].contains(&name.as_str()));
    status
}

fn is_on_disk(folder: &Path, text: &str) -> bool {
    let files =
        ["sts.sqlite3", "sts.sqlite3-wal"].map(|name| std::fs::read(folder.join(name)).unwrap_or_default());
    files.iter().any(|file| file.windows(text.len()).any(|piece| piece == text.as_bytes()))
}

#[tokio::test]
async fn what_an_ended_session_held_is_free_and_its_status_is_still_right() {
    let (recorder, metrics) = recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let service = Service::start_in(folder.path(), Setup::default()).await;
    let (id, started) = service.session(start()).await;
    service.ready(&id).await;
    assert!(gauge(&metrics, "sts_held_bytes") > 1_500_000.0);
    assert!(is_on_disk(folder.path(), SENTENCE));
    let step = |action: &str, more: Value| {
        let mut body = json!({"action": action, "session_id": id});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    service.act(step("page_context", json!({"page_context": {"step": "two"}}))).await;
    service.act(step("verification", json!({"category": "patient_information", "verified": true}))).await;
    service.act(step("completion", json!({"message": "All done.", "updated_fields": ["email"]}))).await;
    let open = service.status(&id).await;
    leave(&service, &started).await;

    let status = service.status(&id).await;
    for name in [
        "session_id",
        "room_name",
        "channel",
        "created_at",
        "tenant_id",
        "caller_number",
        "room",
        "verification",
        "page_context",
        "page_context_version",
        "sms",
        "pending_sms",
        "completion",
        "knowledge",
        "link_catalog",
        "warnings",
    ] {
        assert_eq!(status[name], open[name], "{name}");
    }
    assert_eq!((&status["status"], &status["end_reason"]), (&json!("ended"), &json!("goodbye")));
    assert_eq!((&status["agent"]["state"], &status["participants"]), (&json!("left"), &json!([])));
    let said: Vec<_> =
        status["transcript"].as_array().expect("lines").iter().map(|line| &line["text"]).collect();
    assert_eq!(said.first(), Some(&&json!("Hello.")));
    assert_eq!(said.last(), Some(&&json!("Goodbye!")));
    assert_eq!(refusal(service.request(&step("completion", json!({})))).await, (409, "SESSION_ENDED".into()));
    let of_other = service.request(&step("status", json!({}))).bearer_auth(&service.keys[0]);
    assert_eq!(refusal(of_other).await, (404, "SESSION_NOT_FOUND".into()));

    for (name, expected) in [("sts_sessions", 0.0), ("sts_held_bytes", 0.0), ("sts_kept_sessions", 1.0)] {
        assert_eq!(gauge(&metrics, name), expected, "{name}");
    }
    let kept = gauge(&metrics, "sts_kept_bytes");
    assert!((100.0..16_384.0).contains(&kept), "{kept} bytes");
    // Its start parameters are overwritten, in the database and its log.
    let wiped = async {
        while is_on_disk(folder.path(), SENTENCE) || is_on_disk(folder.path(), "friends of pineapples") {
            service.status(&id).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wiped).await.expect("it comes about");
    service.stop().await;

    let service = Service::start_in(folder.path(), Setup::default()).await;
    assert_eq!(settled(service.status(&id).await), settled(status));
    let (other, _) = service.session(json!({})).await;
    assert_eq!(gauge(&metrics, "sts_sessions"), 1.0, "{other} alone is open");
    assert_eq!(gauge(&metrics, "sts_kept_sessions"), 1.0);
    let kept = gauge(&metrics, "sts_kept_bytes");
    assert!((100.0..16_384.0).contains(&kept), "{kept} bytes");
}

#[tokio::test]
async fn sessions_that_end_one_after_the_other_leave_little() {
    let (recorder, metrics) = recorder();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = Setup::default();
    setup.config.sessions_max = 2;
    let service = Service::start_in(folder.path(), setup).await;
    for count in 1..=30 {
        let (_, started) = service.session(start()).await;
        leave(&service, &started).await;
        assert_eq!(gauge(&metrics, "sts_held_bytes"), 0.0);
        assert_eq!(gauge(&metrics, "sts_kept_sessions"), f64::from(count));
    }
    assert!(gauge(&metrics, "sts_kept_bytes") < 30.0 * 16_384.0);
    let bytes = ["sts.sqlite3", "sts.sqlite3-wal"]
        .map(|name| std::fs::metadata(folder.path().join(name)).map_or(0, |file| file.len()));
    // The space of one session, spare pages and the log; the start parameters of thirty exceed 25 MiB.
    assert!(bytes.iter().sum::<u64>() < 20 << 20, "{bytes:?}");
}

#[tokio::test]
async fn the_oldest_sessions_are_forgotten_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut setup = Setup::default();
    setup.config.kept_max = 2;
    let service = Service::start_in(folder.path(), setup).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(over(&service).await);
    }
    let status = |id: &str| json!({"action": "status", "session_id": id});
    let forgotten = async |service: &Service, id: &str| {
        assert_eq!(refusal(service.request(&status(id))).await, (404, "SESSION_NOT_FOUND".into()));
    };
    forgotten(&service, &ids[0]).await;
    for id in &ids[1..] {
        assert_eq!(service.status(id).await["status"], "ended");
    }
    service.stop().await;

    let mut setup = Setup::default();
    setup.config.kept_max = 1;
    let service = Service::start_in(folder.path(), setup).await;
    let newest = over(&service).await;
    for id in &ids {
        forgotten(&service, id).await;
    }
    assert_eq!(service.status(&newest).await["status"], "ended");
}
