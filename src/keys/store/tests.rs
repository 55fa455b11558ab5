use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::keys::Permission;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_outlive_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (key, _) = Store::open(dir.path()).unwrap().create("  field team ").unwrap();
    assert_eq!(key.label, "field team");
    assert_eq!(Store::open(dir.path()).unwrap().list().unwrap(), [key]);
}

#[test]
fn a_revoked_key_stays_listed_with_the_first_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (key, _) = store.create("one").unwrap();
    let revoked = store.revoke(&key.id).unwrap().unwrap();
    assert!(revoked.revoked.is_some());
    assert_eq!(store.revoke(&key.id).unwrap(), Some(revoked.clone()));
    assert_eq!(store.list().unwrap(), [revoked]);
    assert!(store.active().unwrap().is_empty());
    assert_eq!(store.revoke(Secret::generate().id()).unwrap(), None);
}

#[test]
fn files_are_private_and_hold_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a").join("b");
    let store = Store::open(&state).unwrap();
    let (_, secret) = store.create("one").unwrap();
    assert_eq!(mode(&state), 0o700);
    let mut files = 0;
    for entry in fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        let bytes = fs::read(&path).unwrap();
        let needle = &secret.expose().as_bytes()[12..];
        assert!(!bytes.windows(needle.len()).any(|window| window == needle), "{}", path.display());
        files += 1;
    }
    assert!(files >= 3, "database, pepper and signing key");
}

#[test]
fn a_database_that_others_could_read_is_made_private() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let path = dir.path().join(DATABASE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Store::open(dir.path()).unwrap());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_damaged_secret_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for file in [PEPPER, SIGNING_KEY] {
        drop(Store::open(dir.path()).unwrap());
        let whole = fs::read(dir.path().join(file)).unwrap();
        fs::write(dir.path().join(file), b"short").unwrap();
        assert!(matches!(Store::open(dir.path()), Err(Error::Secret { .. })), "{file}");
        fs::write(dir.path().join(file), whole).unwrap();
    }
}

#[test]
fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    store.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(store);
    assert!(matches!(Store::open(dir.path()), Err(Error::Newer { found: 99, .. })));
}

/// Takes the database back to an older format.
fn make_old(store: &Store, format: i64) {
    let limits = "ALTER TABLE keys DROP COLUMN requests_per_minute; ALTER TABLE keys DROP COLUMN concurrent;
                  ALTER TABLE keys DROP COLUMN audio_seconds_per_day; ALTER TABLE keys DROP COLUMN audio_seconds_per_month;
                  ALTER TABLE keys DROP COLUMN account; DROP TABLE audit;";
    store.connection.execute_batch(limits).unwrap();
    store.connection.pragma_update(None, "user_version", format).unwrap();
    if format == 4 {
        return;
    }
    store.connection.execute_batch("ALTER TABLE keys DROP COLUMN admin;").unwrap();
    if format == 3 {
        return;
    }
    let scopes = "ALTER TABLE keys DROP COLUMN scopes; ALTER TABLE keys DROP COLUMN expires_unix_ms;
                  ALTER TABLE keys DROP COLUMN tags; DROP INDEX keys_by_tenant; DROP TABLE organisations;";
    store.connection.execute_batch(scopes).unwrap();
    if format == 1 {
        store.connection.execute_batch("ALTER TABLE keys DROP COLUMN operator;").unwrap();
    }
}

#[test]
fn keys_of_older_formats_can_do_what_they_could() {
    for format in [1, 2, 3, 4] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (old, _) = store.create("old").unwrap();
        make_old(&store, format);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.list().unwrap(), std::slice::from_ref(&old), "{format}");
        assert!(old.scopes.allow(Permission::UsageWrite) && !old.scopes.allow(Permission::KeysWrite));
        let (operator, _) = store.create_operator("scraper").unwrap();
        assert!(operator.is_operator && !old.is_operator && !operator.is_admin && !old.is_admin);
        assert!(store.create_admin("console").unwrap().0.is_admin);
        let known = store.active().unwrap();
        assert!(known[&operator.id].is_operator && !known[&old.id].is_operator);
        assert!(known[&operator.id].scopes.allow(Permission::KeysWrite));
    }
}

#[test]
fn an_operator_of_an_older_format_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (operator, _) = store.create_operator("scraper").unwrap();
    make_old(&store, 2);
    drop(store);
    assert_eq!(Store::open(dir.path()).unwrap().list().unwrap(), [operator]);
}

#[test]
fn a_key_is_kept_as_it_was_made() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let (first, _) = store.create("one").unwrap();
    let expires = Some(from_unix_ms(unix_ms(SystemTime::now()) + 60_000));
    let scopes = Scopes::parse(["member", "billing:read"]).unwrap();
    let new = NewKey {
        tenant: Some(first.tenant),
        scopes,
        expires,
        tags: vec!["a b".into()],
        ..NewKey::of_a_client("two")
    };
    let (second, _) = store.insert(new.clone()).unwrap();
    assert_eq!((second.tenant, second.scopes, second.expires), (first.tenant, scopes, expires));
    assert_eq!(store.list().unwrap().into_iter().find(|key| key.id == second.id), Some(second));
    let refused = |new: NewKey| store.insert(new).unwrap_err();
    let past = Some(SystemTime::now());
    assert!(matches!(refused(NewKey { expires: past, ..new.clone() }), Error::Expired));
    assert!(matches!(refused(NewKey { tenant: Some(first.tenant ^ 1), ..new.clone() }), Error::Organisation));
    assert!(matches!(refused(NewKey { scopes: Scopes::NONE, ..new.clone() }), Error::NoScope));
    assert!(matches!(refused(NewKey { tags: vec!["x".into(); TAGS_MAX + 1], ..new }), Error::Tags));
}

#[test]
fn labels_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    for label in ["", "   ", "a\nb", "\u{7}", &"x".repeat(LABEL_CHARACTERS_MAX + 1)] {
        assert!(matches!(store.create(label), Err(Error::Label)), "{label:?}");
    }
    assert!(store.create(&"é".repeat(LABEL_CHARACTERS_MAX)).is_ok());
}

#[test]
fn stores_opened_at_once_share_one_pepper() {
    let dir = tempfile::tempdir().unwrap();
    let tags: Vec<Tag> = std::thread::scope(|scope| {
        let openers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| Store::open(dir.path()).unwrap().pepper().tag("x"))).collect();
        openers.into_iter().map(|opener| opener.join().unwrap()).collect()
    });
    assert!(tags.windows(2).all(|pair| pair[0] == pair[1]));
}
