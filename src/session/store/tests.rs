use serde_json::json;

use super::*;
use crate::fields::Fields;
use crate::session::event::EndReason;
use crate::session::message::SmsStatus;
use crate::session::presence::Media;
use crate::session::setup::Start;
use crate::session::state::{Checked, Source};

/// A session with a document of this length and a message that is being sent.
fn session(bytes: usize) -> (Session, Setup) {
    let start = json!({
        "caller_number": "+14155552671", "link_catalog": {"forms": "https://a.example/f"},
        "documents": [{"title": "d", "type": "text", "content": "x".repeat(bytes)}],
    });
    let start = Start::read(Fields::of(&start).expect("an object")).expect("a start");
    let (mut session, mut events) = (Session::new(7, &start, 0, 1000), Vec::new());
    let checked = |verified| Checked { verified, source: Source::Hook, details: json!({}) };
    session.verify("c", checked(false), &start.setup, 1, &mut events).expect("noted");
    session.send_link("c", "forms", &start.setup, &mut events);
    session.messages[0].status = SmsStatus::Sending;
    (session, start.setup)
}

fn ended(bytes: usize) -> (Session, Setup) {
    let (mut session, setup) = session(bytes);
    session.end(EndReason::Left, 5, &mut Vec::new());
    (session, setup)
}

fn size(folder: &Path) -> u64 {
    std::fs::metadata(folder.join(DATABASE)).expect("a file").len()
}

#[tokio::test]
async fn a_database_of_format_1_loses_what_ended_sessions_do_not_need() {
    let folder = tempfile::tempdir().expect("a folder");
    let [(open, open_setup), (over, over_setup)] = [session(10), ended(1 << 20)];
    {
        let old = Connection::open(folder.path().join(DATABASE)).expect("a database");
        old.pragma_update(None, "journal_mode", "wal").expect("set");
        old.execute_batch(
            "CREATE TABLE sessions (id TEXT PRIMARY KEY, setup TEXT NOT NULL, state TEXT NOT NULL, passages TEXT) STRICT;
             CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
             PRAGMA user_version = 1;",
        )
        .expect("made");
        for (session, setup) in [(&open, &open_setup), (&over, &over_setup)] {
            let row = params![session.id, json(setup), json(session), "[]"];
            old.execute("INSERT INTO sessions VALUES (?1, ?2, ?3, ?4)", row).expect("written");
        }
    }
    let opened = Store::open(folder.path()).expect("opened");
    let found: Vec<_> = opened.open.iter().map(|found| (&found.session.id, &found.setup)).collect();
    assert_eq!(found, [(&open.id, &open_setup)]);
    let [line] = &opened.ended[..] else { panic!("{:?}", opened.ended) };
    assert_eq!((&line.id, line.tenant, line.at, line.wrong_answers), (&over.id, 7, 5, 1));
    assert_eq!(line.caller_number.as_deref(), Some("+14155552671"));
    let remains = opened.store.remains(&over.id).await.expect("read").expect("kept");
    assert_eq!((&remains.session.id, remains.session.ended), (&over.id, Some((5, EndReason::Left))));
    assert!(line.bytes < 4096 && size(folder.path()) < 1 << 19, "{} of {}", line.bytes, size(folder.path()));
}

#[tokio::test]
async fn of_an_ended_session_the_remains_alone_are_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let (session, setup) = ended(1 << 20);
    let opened = Store::open(folder.path()).expect("opened");
    opened.store.add(&session, &setup).wait().await.expect("written");
    let remains = Remains::of(&session, &setup, Media::Closed.status(), Default::default());
    let (line, written) = opened.store.end(&remains);
    written.wait().await.expect("written");
    assert!(line.is_sending);
    assert_eq!(opened.store.remains(&session.id).await.expect("read").as_ref(), Some(&remains));
    drop(opened);

    let opened = Store::open(folder.path()).expect("opened again");
    assert!(opened.open.is_empty());
    let [line] = &opened.ended[..] else { panic!("{:?}", opened.ended) };
    let remains = opened.store.remains(&line.id).await.expect("read").expect("kept");
    // It may or may not have been sent.
    assert_eq!((remains.session.messages[0].status, line.is_sending), (SmsStatus::Failed, false));
    assert_eq!(remains.room, Media::Closed.status());
    opened.store.forget(&session.id).wait().await.expect("written");
    assert_eq!(opened.store.remains(&session.id).await.expect("read"), None);
    // A late update does not restore it.
    opened.store.update_remains(&remains).wait().await.expect("written");
    assert_eq!(opened.store.remains(&session.id).await.expect("read"), None);
}

#[tokio::test]
async fn the_places_of_ended_sessions_are_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let opened = Store::open(folder.path()).expect("opened");
    let mut largest = 0;
    for _ in 0..24 {
        let (session, setup) = ended(1 << 20);
        opened.store.add(&session, &setup).wait().await.expect("written");
        let remains = Remains::of(&session, &setup, Media::default().status(), Default::default());
        opened.store.end(&remains).1.wait().await.expect("written");
        largest = largest.max(size(folder.path()));
    }
    // They reuse the same pages one after another.
    assert!(largest < 8 << 20, "{largest} bytes");
    let mut open = Vec::new();
    for _ in 0..24 {
        let (session, setup) = session(1 << 20);
        opened.store.add(&session, &setup).wait().await.expect("written");
        open.push((session, setup));
    }
    for (mut session, setup) in open {
        session.end(EndReason::Left, 5, &mut Vec::new());
        let remains = Remains::of(&session, &setup, Media::default().status(), Default::default());
        opened.store.end(&remains).1.wait().await.expect("written");
    }
    let pages_left = (PAGES_SPARE as u64) * 4096;
    let log = folder.path().join(format!("{DATABASE}-wal"));
    let tidied = async {
        // The log holds nothing, and the file little more than the spare pages.
        while size(folder.path()) > pages_left + (1 << 20)
            || std::fs::metadata(&log).expect("a log").len() > 0
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), tidied).await.expect("it comes about");
}
