use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::super::{NewKey, Secret, Verifier};
use super::*;

/// A node with the secrets of `first`.
fn node(first: Option<&tempfile::TempDir>) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    if let Some(first) = first {
        for file in ["keys.pepper", "keys.signing"] {
            std::fs::copy(first.path().join(file), dir.path().join(file)).unwrap();
        }
    }
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

type Bucket = BTreeMap<String, Columns>;

/// Publishes what `store` lists, as a node that reaches the bucket.
fn publish(store: &Store, bucket: &mut Bucket) {
    for change in store.changes(1000).unwrap() {
        if let Some((change, entry)) = store.reconcile(&change.name, bucket.get(&change.name)).unwrap() {
            bucket.insert(change.name.clone(), entry);
            store.settle(&change).unwrap();
        }
    }
}

/// Reads the whole bucket, as a node that connects.
fn read(store: &Store, bucket: &Bucket) {
    for (name, entry) in bucket {
        store.reconcile(name, Some(entry)).unwrap();
    }
    store.offer_all_but(&bucket.keys().cloned().collect()).unwrap();
}

fn meet(store: &Store, bucket: &mut Bucket) {
    read(store, bucket);
    publish(store, bucket);
}

#[test]
fn a_key_made_on_one_node_opens_another() {
    let (dir, a) = node(None);
    let (_other, b) = node(Some(&dir));
    let (key, _) = a.insert(NewKey { tags: vec!["x".into()], ..NewKey::of_a_client("one") }).unwrap();
    a.rename_organisation(key.tenant, "Acme").unwrap();
    let mut bucket = Bucket::new();
    meet(&a, &mut bucket);
    meet(&b, &mut bucket);
    assert_eq!(b.list().unwrap(), std::slice::from_ref(&key));
    assert_eq!(b.active().unwrap()[&key.id].tag, a.active().unwrap()[&key.id].tag);
    assert_eq!(b.organisation_name(key.tenant).unwrap(), "Acme");
    for store in [&a, &b] {
        assert!(store.changes(10).unwrap().is_empty());
    }
}

#[test]
fn no_key_is_in_an_entry() {
    let (_dir, a) = node(None);
    let (_, secret) = a.create("one").unwrap();
    let mut bucket = Bucket::new();
    publish(&a, &mut bucket);
    let told = String::from_utf8(bucket.values().next().unwrap().to_bytes()).unwrap();
    assert!(told.contains(secret.id().as_str()) && !told.contains(&secret.expose()[12..]), "{told}");
}

/// The broker's disk was emptied while one node was away: it must not bring the key back.
#[test]
fn a_node_that_was_away_brings_no_revoked_key_back() {
    let (dir, a) = node(None);
    let (_other, b) = node(Some(&dir));
    let (key, _) = a.create("one").unwrap();
    let mut bucket = Bucket::new();
    meet(&a, &mut bucket);
    meet(&b, &mut bucket);
    let revoked = a.revoke(&key.id).unwrap().unwrap();
    publish(&a, &mut bucket);
    for mut bucket in [bucket, Bucket::new()] {
        meet(&b, &mut bucket);
        meet(&a, &mut bucket);
        meet(&b, &mut bucket);
        assert_eq!(b.list().unwrap(), std::slice::from_ref(&revoked));
        assert!(b.active().unwrap().is_empty());
        assert_eq!(
            bucket[&format!("key.{}", key.id)].revoked(),
            Some(crate::clock::unix_ms(revoked.revoked.unwrap()))
        );
    }
}

#[test]
fn a_forgotten_key_stays_forgotten() {
    let (dir, a) = node(None);
    let (_other, b) = node(Some(&dir));
    let (key, _) = a.create("one").unwrap();
    let mut bucket = Bucket::new();
    meet(&a, &mut bucket);
    meet(&b, &mut bucket);
    a.connection.execute("DELETE FROM keys", []).unwrap();
    meet(&a, &mut bucket);
    b.revoke(&key.id).unwrap();
    meet(&b, &mut bucket);
    meet(&a, &mut bucket);
    for store in [&a, &b] {
        assert!(store.list().unwrap().is_empty());
        assert!(store.changes(10).unwrap().is_empty());
    }
}

#[test]
fn the_later_writer_counts_and_columns_of_newer_nodes_stay() {
    let (dir, a) = node(None);
    let (_other, b) = node(Some(&dir));
    let (key, _) = a.create("one").unwrap();
    let mut bucket = Bucket::new();
    meet(&a, &mut bucket);
    meet(&b, &mut bucket);
    let name = format!("key.{}", key.id);
    bucket.get_mut(&name).unwrap().0.insert("of_a_newer_version".into(), 7.into());
    let label = |store: &Store, label: &str| {
        store.connection.execute("UPDATE keys SET label = ?1", [label]).unwrap();
    };
    label(&a, "by a");
    label(&b, "by b");
    publish(&a, &mut bucket);
    publish(&b, &mut bucket);
    read(&a, &bucket);
    for store in [&a, &b] {
        assert_eq!(store.list().unwrap()[0].label, "by b");
    }
    assert_eq!(bucket[&name].0["of_a_newer_version"], 7);
}

#[test]
fn entries_that_are_none_are_refused() {
    let (_dir, a) = node(None);
    let id = Secret::generate().id().clone();
    let of = |value: Value| serde_json::from_value::<Columns>(value).unwrap();
    let name = format!("key.{id}");
    for entry in [json!({}), json!({"label": "x"}), json!({"tag": {"base64": "AAAA"}}), json!({"tag": [1]})] {
        let refused = a.reconcile(&name, Some(&of(entry)));
        assert!(matches!(refused, Err(Error::Foreign)), "{refused:?}");
    }
    for name in ["", "key.", "key.ABCDEFGH", "keys.abcdefgh", "organisation.x", "sqlite_master.a"] {
        assert!(matches!(a.reconcile(name, Some(&of(json!({})))), Err(Error::Foreign)), "{name}");
    }
    assert_eq!((a.list().unwrap().len(), a.changes(10).unwrap().len()), (0, 0));
}

#[tokio::test]
async fn the_next_request_counts_with_the_others_changes() {
    let (dir, a) = node(None);
    let (_other, b) = node(Some(&dir));
    let (key, secret) = a.create("one").unwrap();
    let verifier = Verifier::new(b).unwrap();
    let replica = verifier.replica().await.unwrap();
    assert_eq!(verifier.verify(secret.expose()).await.unwrap(), None);
    let name = format!("key.{}", key.id);
    let (_, entry) = a.reconcile(&name, None).unwrap().unwrap();
    replica.reconcile(name.clone(), Some(entry)).await.unwrap();
    let identity = verifier.verify(secret.expose()).await.unwrap().unwrap();
    assert_eq!(identity.tenant, key.tenant);

    let grants = Verifier::new(Store::open(dir.path()).unwrap()).unwrap();
    let token = grants.grant(&identity, Duration::from_secs(30)).token;
    assert!(verifier.verify(&token).await.unwrap().is_some());
    a.revoke(&key.id).unwrap();
    let (_, entry) = a.reconcile(&name, None).unwrap().unwrap();
    replica.reconcile(name, Some(entry)).await.unwrap();
    assert_eq!(verifier.verify(secret.expose()).await.unwrap(), None);
    assert_eq!(verifier.verify(&token).await.unwrap(), None);
}

/// What a node may do between two meetings with the others.
#[derive(Debug, Clone, Copy)]
enum Step {
    Make,
    Revoke(usize),
    Rename(usize),
    Meet,
    /// The broker loses everything.
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        2 => Just(Step::Make),
        2 => any::<usize>().prop_map(Step::Revoke),
        1 => any::<usize>().prop_map(Step::Rename),
        4 => Just(Step::Meet),
        1 => Just(Step::Empty),
    ];
    proptest::collection::vec((0..3usize, step), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, all nodes come to know the same keys, and each revoked key stays revoked.
    #[test]
    fn nodes_come_to_agree(steps in steps()) {
        let (first, a) = node(None);
        let (_second, b) = node(Some(&first));
        let (_third, c) = node(Some(&first));
        let nodes = [a, b, c];
        let mut bucket = Bucket::new();
        let mut revoked = HashSet::new();
        for (at, step) in steps {
            let store = &nodes[at];
            let keys = store.list().unwrap();
            match step {
                Step::Make => drop(store.create("key").unwrap()),
                Step::Revoke(n) if !keys.is_empty() => {
                    let id = keys[n % keys.len()].id.clone();
                    store.revoke(&id).unwrap();
                    revoked.insert(id);
                }
                Step::Rename(n) if !keys.is_empty() => {
                    let tenant = keys[n % keys.len()].tenant;
                    store.rename_organisation(tenant, &format!("name {n}")).unwrap();
                }
                Step::Meet => meet(store, &mut bucket),
                Step::Empty => bucket.clear(),
                _ => {}
            }
        }
        for _ in 0..3 {
            nodes.iter().for_each(|store| meet(store, &mut bucket));
        }
        let known = nodes[0].list().unwrap();
        for store in &nodes {
            prop_assert_eq!(store.list().unwrap(), known.clone());
            prop_assert!(store.changes(10).unwrap().is_empty());
        }
        for key in &known {
            prop_assert_eq!(key.is_active(SystemTime::now()), !revoked.contains(&key.id));
        }
    }
}
