//! Jobs whose audio is damaged or dangerous.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc;

use serde_json::{Value, json};
use verbatim::jobs;

use super::{PATIENCE, allow, job_in, quick, taken, to, with_callback};
use crate::receiver::Receiver;
use crate::server::{RAW, Setup, TestServer, say};

#[tokio::test]
async fn audio_that_is_missing_or_altered_is_told_at_once_as_a_fault_of_the_server() {
    let mut receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let jobs = jobs::Config { concurrency: 1, ..quick() };
    let setup = Setup { gate: Some(gate), fetch: allow(&[&receiver]), jobs, ..Setup::default() };
    let server = TestServer::start(setup).await;
    let mut ids = Vec::new();
    for number in 1..=4 {
        ids.push(taken(with_callback(&server, &to(&receiver), RAW, say(number))).await);
    }
    let [whole, missing, cut, altered] = ids[..] else { panic!("four of them") };
    job_in(&server, whole, "running").await;
    let file = |id: uuid::Uuid| server.state.path().join("jobs-audio").join(id.to_string());
    fs::remove_file(file(missing)).unwrap();
    fs::write(file(cut), &say(3)[..20]).unwrap();
    fs::write(file(altered), say(5)).unwrap();
    drop(open);

    let mut told: HashMap<String, Value> = HashMap::new();
    for _ in 0..4 {
        let received = receiver.next().await;
        told.insert(received.headers["webhook-id"].clone(), received.json());
    }
    assert!(told[&whole.to_string()]["results"].is_object());
    for id in [missing, cut, altered] {
        let body = &told[&id.to_string()];
        assert_eq!((&body["err_code"], &body["request_id"]), (&json!("AUDIO_LOST"), &json!(id)), "{body}");
        assert!(body["err_msg"].as_str().unwrap().starts_with("The server lost"), "{body}");
        let done = job_in(&server, id, "delivered").await;
        assert_eq!((&done["runs"], &done["last_error"]), (&json!(1), &json!("AUDIO_LOST")));
    }
}

#[tokio::test]
async fn a_job_is_noted_as_dangerous_while_it_is_decoded_and_no_longer() {
    let receiver = Receiver::start(&[]).await;
    let (open, gate) = mpsc::channel();
    let setup = Setup { gate: Some(gate), fetch: allow(&[&receiver]), jobs: quick(), ..Setup::default() };
    let server = TestServer::start(setup).await;
    let database = rusqlite::Connection::open(server.state.path().join("jobs.sqlite3")).unwrap();
    database.busy_timeout(PATIENCE).unwrap();
    database
        .execute_batch(
            "CREATE TABLE noted (decoding INTEGER);
             CREATE TRIGGER note AFTER UPDATE OF decoding ON jobs WHEN NEW.decoding <> OLD.decoding
             BEGIN INSERT INTO noted VALUES (NEW.decoding); END;",
        )
        .unwrap();
    let id = taken(with_callback(&server, &to(&receiver), RAW, say(7))).await;
    // The model waits at its gate, so only the steps before it are done.
    let noted = || -> Vec<i64> {
        let mut statement = database.prepare("SELECT decoding FROM noted ORDER BY rowid").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let over = async {
        while noted().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, over).await.expect("in time");
    assert_eq!(noted(), [1, 0]);
    job_in(&server, id, "running").await;
    drop(open);
}
