//! The attempts to deliver a result, as the store remembers them.

use tempfile::TempDir;
use verbatim::jobs::{ATTEMPTS_MAX, Attempt, Next, Sqlite, Store as _};

use super::{accept, at, claim, finish, order};

#[tokio::test]
async fn attempts_are_known_by_their_answers() {
    let dir = TempDir::new().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    accept(&store, order(1, 1, at(0))).await;
    claim(&store, at(0)).await.unwrap();
    finish(&store, 1, at(1)).await;
    let attempt = async |seconds, next| {
        let id = store.claim_delivery(at(seconds), vec![], vec![]).await.unwrap().unwrap().id;
        store.attempted(id, at(seconds), next, true).await.unwrap();
        id
    };
    let error = || "STATUS_503".to_owned();
    let id = attempt(2, Next::Again { at: at(3), error: error() }).await;
    attempt(3, Next::Dead { error: error() }).await;
    // A report that comes too late is none.
    store.attempted(id, at(4), Next::Delivered, true).await.unwrap();
    assert!(store.redrive(id, at(5)).await.unwrap());
    attempt(6, Next::Delivered).await;
    let known = [(1, 2, Some(error())), (2, 3, Some(error())), (3, 6, None)]
        .map(|(number, ended, error)| Attempt { number, ended: at(ended), error });
    assert_eq!(store.attempts(id).await.unwrap(), known);
    for seconds in 10..10 + u64::from(ATTEMPTS_MAX) {
        rusqlite::Connection::open(dir.path().join("jobs.sqlite3"))
            .unwrap()
            .execute("UPDATE jobs SET phase = 'waiting', body = x'00', callback = 'https://example.com/'", [])
            .unwrap();
        attempt(seconds, Next::Again { at: at(seconds), error: error() }).await;
    }
    let kept = store.attempts(id).await.unwrap();
    assert_eq!((kept.len(), kept.last().unwrap().number), (ATTEMPTS_MAX as usize, 3 + ATTEMPTS_MAX));
}
