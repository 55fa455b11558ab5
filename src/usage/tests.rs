use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use super::database::Database;
use super::message::Message;
use super::*;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn now() -> SystemTime {
    UNIX_EPOCH + NOW
}

fn open(config: Config) -> (tempfile::TempDir, Database, Config) {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path()).unwrap();
    (dir, database, config)
}

fn entry(tenant: u64, age: Duration) -> Entry {
    Entry {
        id: Uuid::new_v4(),
        holder: Holder { tenant, key: Uuid::from_u128(u128::from(tenant)) },
        created: now() - age,
        path: "/v1/listen".into(),
        endpoint: Endpoint::Listen,
        method: Method::Sync,
        code: 200,
        elapsed: Duration::from_millis(1500),
        work: Work {
            audio_seconds: 1800.0,
            channels: 2,
            characters: 0,
            model: Some(Model { id: Uuid::from_u128(9), name: "base".into() }),
        },
        tags: vec!["a".into(), "b c".into()],
        features: vec!["diarize"],
    }
}

fn write(database: &Database, entries: impl IntoIterator<Item = Entry>) {
    let messages = entries.into_iter().map(|entry| Message::Add(Box::new(entry))).collect();
    assert!(database.write(messages).unwrap().is_empty());
}

fn all(tenant: u64) -> Filter {
    Filter::all(tenant, UNIX_EPOCH, now() + Duration::from_secs(1))
}

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn an_organisation_sees_its_own_requests_newest_first() {
    let (_dir, database, _) = open(Config::default());
    let (old, new) = (entry(1, DAY), entry(1, Duration::ZERO));
    write(&database, [new.clone(), old.clone(), entry(2, Duration::ZERO)]);
    let rows = query::requests(&database, &all(1), 0, 10).unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [new.id, old.id]);
    assert_eq!((rows[0].code, rows[0].audio_seconds, rows[0].channels), (200, 1800.0, 2));
    assert_eq!((&rows[0].tags, rows[0].model_id), (&new.tags, Some(Uuid::from_u128(9))));
    assert_eq!(query::requests(&database, &all(1), 1, 10).unwrap().len(), 1);
    assert_eq!(query::requests(&database, &all(1), 0, 1).unwrap().len(), 1);
    assert!(query::requests(&database, &Filter { id: Some(old.id), ..all(2) }, 0, 10).unwrap().is_empty());
}

#[test]
fn every_filter_counts() {
    let (_dir, database, _) = open(Config::default());
    let failed =
        Entry { code: 503, method: Method::Streaming, features: vec![], tags: vec![], ..entry(1, DAY) };
    write(&database, [entry(1, Duration::ZERO), failed.clone()]);
    let found = |filter: Filter| {
        let rows = query::requests(&database, &filter, 0, 10).unwrap();
        (rows.len() == 1).then(|| rows[0].id == failed.id)
    };
    let base = || all(1);
    assert_eq!(found(Filter { has_succeeded: Some(false), ..base() }), Some(true));
    assert_eq!(found(Filter { has_succeeded: Some(true), ..base() }), Some(false));
    assert_eq!(found(Filter { method: Some(Method::Streaming), ..base() }), Some(true));
    assert_eq!(found(Filter { tag: Some("b c".into()), ..base() }), Some(false));
    assert_eq!(found(Filter { tag: Some("b".into()), ..base() }), None);
    assert_eq!(found(Filter { features: vec![("diarize", true)], ..base() }), Some(false));
    assert_eq!(found(Filter { features: vec![("diarize", false)], ..base() }), Some(true));
    assert_eq!(found(Filter { end: now() - DAY / 2, ..base() }), Some(true));
    assert_eq!(found(Filter { start: now() - DAY / 2, ..base() }), Some(false));
    assert_eq!(found(Filter { id: Some(failed.id), ..base() }), Some(true));
    assert_eq!(found(Filter { endpoint: Some(Endpoint::Speak), ..base() }), None);
    assert_eq!(found(Filter { key: Some(Uuid::from_u128(2)), ..base() }), None);
    let count = |filter: Filter| query::requests(&database, &filter, 0, 10).unwrap().len();
    for model in ["base", &Uuid::from_u128(9).to_string()] {
        assert_eq!(count(Filter { model: Some(model.to_owned()), ..base() }), 2, "{model}");
    }
    assert_eq!(count(Filter { model: Some("' OR 1".into()), ..base() }), 0);
}

#[test]
fn sums_are_made_by_day_and_group() {
    let (_dir, database, _) = open(Config::default());
    let other = Entry { tags: vec![], method: Method::Async, ..entry(1, Duration::ZERO) };
    write(&database, [entry(1, Duration::ZERO), other, entry(1, DAY), entry(2, DAY)]);
    let days = query::sums(&database, &all(1), None).unwrap();
    let requests: Vec<_> = days.iter().map(|sum| (sum.day.as_str(), sum.requests)).collect();
    assert_eq!(requests, [("2027-01-14", 1), ("2027-01-15", 2)]);
    assert_eq!((days[1].audio_seconds, days[1].channel_seconds), (3600.0, 7200.0));
    for (grouping, groups) in [
        (Grouping::Method, vec![Some("sync"), Some("async"), Some("sync")]),
        (Grouping::Tags, vec![Some(r#"["a","b c"]"#), Some("[]"), Some(r#"["a","b c"]"#)]),
        (Grouping::Deployment, vec![Some("self-hosted"), Some("self-hosted")]),
    ] {
        let mut found: Vec<_> = query::sums(&database, &all(1), Some(grouping))
            .unwrap()
            .into_iter()
            .map(|sum| sum.group)
            .collect();
        let mut groups: Vec<_> = groups.into_iter().map(|group| group.map(str::to_owned)).collect();
        found.sort();
        groups.sort();
        assert_eq!(found, groups, "{grouping:?}");
    }
    let fields = query::fields(&database, &all(1)).unwrap();
    assert_eq!((fields.tags, fields.features), (vec!["a".into(), "b c".into()], vec!["diarize".to_owned()]));
    assert_eq!(fields.methods, ["async", "sync"]);
    assert_eq!(fields.models, [("base".to_owned(), Uuid::from_u128(9))]);
}

#[test]
fn the_log_is_bounded_and_a_busy_organisation_displaces_itself() {
    let (_dir, database, config) = open(Config { requests_max: 30, ..Config::default() });
    let busy = (0..40).map(|second| entry(1, Duration::from_secs(second)));
    write(&database, busy.chain([entry(2, Duration::from_secs(3600)), entry(2, DAY * 91)]));
    database.purge(&config, now()).unwrap();
    let left = query::requests(&database, &all(1), 0, 100).unwrap();
    assert_eq!((left.len(), left[0].created), (29, now()));
    assert_eq!(query::requests(&database, &all(2), 0, 100).unwrap().len(), 1);
}

#[test]
fn work_that_is_done_later_is_added_even_if_it_is_noted_first() {
    let (_dir, database, _) = open(Config::default());
    let request = Entry { work: Work::default(), method: Method::Async, ..entry(1, Duration::ZERO) };
    let amend = |code| Message::Amend { id: request.id, code, work: Box::new(entry(1, DAY).work) };
    let early = database.write(vec![amend(None)]).unwrap();
    assert_eq!(early.len(), 1);
    let add = Message::Add(Box::new(request.clone()));
    assert!(database.write(early.into_iter().chain([add]).collect()).unwrap().is_empty());
    let row = || query::requests(&database, &all(1), 0, 1).unwrap().remove(0);
    assert_eq!((row().audio_seconds, row().channels, row().code), (1800.0, 2, 200));
    assert!(database.write(vec![amend(Some(500))]).unwrap().is_empty());
    assert_eq!(row().code, 500);
}

#[tokio::test]
async fn a_ticket_is_written_when_its_last_holder_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), &Config::default()).unwrap();
    let holder = Holder { tenant: 1, key: Uuid::from_u128(1) };
    let all = || Filter::all(1, UNIX_EPOCH, SystemTime::now() + DAY);
    let id = Uuid::new_v4();
    let ticket = log.ticket(id, "/v1/listen", Some("tag=x&diarize=true&search=secret"), false).unwrap();
    let kept = within(Some(ticket.clone()), async {
        held_by(holder);
        worked(Work { audio_seconds: 1.5, channels: 1, ..Work::default() });
        current()
    })
    .await;
    ticket.answered(200);
    drop(ticket);
    assert!(log.requests(all(), 0, 10).await.unwrap().is_empty());
    drop(kept);
    let rows = log.requests(all(), 0, 10).await.unwrap();
    assert_eq!((rows[0].id, rows[0].code, rows[0].audio_seconds), (id, 200, 1.5));
    assert_eq!(
        (rows[0].tags.as_slice(), rows[0].features.as_slice()),
        (&["x".into()][..], &["diarize".into(), "search".into()][..])
    );

    // Without valid credentials there is no organisation to log it for.
    drop(log.ticket(Uuid::new_v4(), "/v1/listen", None, false));
    assert!(log.ticket(Uuid::new_v4(), "/health", None, false).is_none());
    assert_eq!(log.requests(all(), 0, 10).await.unwrap().len(), 1);
    // The client left.
    let left = log.ticket(Uuid::new_v4(), "/v1/speak", None, false);
    within(left, async { held_by(holder) }).await;
    let failed = Filter { has_succeeded: Some(false), ..all() };
    assert_eq!(log.requests(failed, 0, 10).await.unwrap()[0].code, CLIENT_LEFT);
}

#[tokio::test]
async fn no_text_of_a_request_reaches_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), &Config::default()).unwrap();
    let query = "search=zqsecret&callback=https%3A%2F%2Fzqsecret.example&keyterm=zqsecret&metadata=zqsecret&extra=zqsecret:zqsecret";
    let ticket = log.ticket(Uuid::new_v4(), "/v1/listen", Some(query), false);
    within(ticket, async { held_by(Holder { tenant: 1, key: Uuid::nil() }) }).await;
    log.flush().await;
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|window| window == b"zqsecret"));
    }
}

/// Ends only if it is interrupted.
fn endless(database: &Database) -> rusqlite::Result<i64> {
    let sql = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    database.0.query_row(sql, [], |row| row.get(0))
}

#[tokio::test]
async fn a_reader_who_leaves_frees_the_log_and_a_crowd_of_one_organisation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path(), &Config::default()).unwrap();
    let (begun, begins) = tokio::sync::oneshot::channel();
    let reading = tokio::spawn({
        let log = log.clone();
        async move {
            let read = move |database: &Database| {
                let _ = begun.send(());
                endless(database)
            };
            log.read(1, read).await
        }
    });
    begins.await.unwrap();
    let crowd: Vec<_> = (0..2 * log::WAITING_MAX)
        .map(|_| {
            let log = log.clone();
            tokio::spawn(async move { log.read(1, |_| Ok(())).await })
        })
        .collect();
    // Refused at once, while the log is read.
    while crowd.iter().filter(|asked| asked.is_finished()).count() < log::WAITING_MAX {
        tokio::task::yield_now().await;
    }
    let other = tokio::spawn({
        let log = log.clone();
        async move { log.read(2, |_| Ok(())).await }
    });
    reading.abort();
    assert!(other.await.unwrap().is_ok());
    let mut refused = 0;
    for asked in crowd {
        refused += usize::from(matches!(asked.await.unwrap(), Err(Error::Busy)));
    }
    assert_eq!(refused, log::WAITING_MAX);
}
