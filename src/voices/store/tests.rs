use std::os::unix::fs::PermissionsExt as _;

use super::super::name::NAME_CHARACTERS_MAX;
use super::*;

fn open(dir: &Path) -> Voices {
    Voices::open(dir, &Config::default()).unwrap()
}

fn embedding() -> Vec<f32> {
    (1..=192).map(|index| (index as f32 * 0.37).sin() / 9.8).collect()
}

/// All files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn holds(path: &Path, needle: &[u8]) -> bool {
    fs::read(path).unwrap().windows(needle.len()).any(|window| window == needle)
}

#[test]
fn voices_outlive_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(7, "  Ada Lovelace ", embedding()).unwrap();
    let bo = voices.add(7, "Bo", embedding()).unwrap();
    assert_eq!(ada.name, "Ada Lovelace");
    assert_eq!(&*voices.of(7), [ada.clone(), bo.clone()]);
    drop(voices);
    let mut again = open(dir.path()).of(7).to_vec();
    again.sort_by_key(|voice| voice.name.clone());
    assert_eq!(again, [ada, bo]);
}

#[test]
fn an_organisation_sees_and_deletes_its_own_alone() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(1, "Ada", embedding()).unwrap();
    assert!(voices.of(2).is_empty());
    assert!(!voices.remove(2, ada.id).unwrap());
    assert_eq!(voices.of(1).len(), 1);
    voices.add(2, "Ada", embedding()).expect("names are an organisation's own");
}

#[test]
fn files_are_private_and_hold_nothing_plain() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).add(1, "Ada Lovelace", embedding()).unwrap();
    let files = files(dir.path());
    assert_eq!(files.len(), 2, "the voice and the key: {files:?}");
    for path in files {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        assert!(!holds(&path, b"Ada") && !holds(&path, b"embedding"), "{}", path.display());
        for value in embedding() {
            let text = value.to_string();
            assert!(!holds(&path, &value.to_le_bytes()) && !holds(&path, text.as_bytes()), "{value}");
        }
    }
}

#[test]
fn a_voice_opens_under_its_key_organisation_and_id_only() {
    let dir = tempfile::tempdir().unwrap();
    let ada = open(dir.path()).add(1, "Ada", embedding()).unwrap();
    let folder = dir.path().join(FOLDER);
    let path = folder.join("1").join(ada.id.to_string());
    let sealed = fs::read(&path).unwrap();
    fs::create_dir(folder.join("2")).unwrap();
    fs::copy(&path, folder.join("2").join(ada.id.to_string())).unwrap();
    fs::copy(&path, folder.join("1").join(Uuid::new_v4().to_string())).unwrap();
    let voices = open(dir.path());
    assert_eq!(voices.of(1).len(), 1);
    assert!(voices.of(2).is_empty());

    let mut damaged = sealed.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, damaged).unwrap();
    assert!(open(dir.path()).of(1).is_empty());

    fs::write(&path, sealed).unwrap();
    assert_eq!(open(dir.path()).of(1).len(), 1);
    let key = dir.path().join("elsewhere");
    fs::write(&key, [7; 32]).unwrap();
    let other = Voices::open(dir.path(), &Config { key_file: Some(key), ..Config::default() }).unwrap();
    assert!(other.of(1).is_empty(), "another key");
    assert!(other.remove(1, ada.id).unwrap(), "but it can be deleted");
}

#[test]
fn a_deleted_voice_is_gone_from_memory_and_disk() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(1, "Ada", embedding()).unwrap();
    let path = dir.path().join(FOLDER).join("1").join(ada.id.to_string());
    // Another name of the same file shows what is left of it.
    let remains = dir.path().join("remains");
    fs::hard_link(&path, &remains).unwrap();
    assert!(voices.remove(1, ada.id).unwrap());
    assert!(!voices.remove(1, ada.id).unwrap());
    assert!(voices.of(1).is_empty() && !path.exists());
    assert!(fs::read(&remains).unwrap().iter().all(|&byte| byte == 0));
    assert!(open(dir.path()).of(1).is_empty());
    voices.add(1, "Ada", embedding()).expect("the name is free again");
}

#[test]
fn a_deletion_that_was_cut_short_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(1, "Ada", embedding()).unwrap();
    let path = dir.path().join(FOLDER).join("1").join(ada.id.to_string());
    let draft = path.with_extension(DRAFT);
    // A directory can be renamed, but not overwritten.
    let sealed = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(voices.remove(1, ada.id), Err(Error::File { .. })));
    assert!(
        voices.of(1).is_empty() && !path.exists(),
        "a half-erased file must not keep the name of a voice"
    );
    fs::remove_dir(&draft).unwrap();
    fs::write(&draft, sealed).unwrap();
    assert!(voices.remove(1, ada.id).unwrap(), "the next call erases what is left");
    assert!(!draft.exists());
    assert!(!voices.remove(1, ada.id).unwrap());
}

#[test]
fn voices_are_read_while_a_disk_stalls() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(1, "Ada", embedding()).unwrap();
    voices.add(2, "Bo", embedding()).unwrap();
    let path = dir.path().join(FOLDER).join("1").join(ada.id.to_string());
    let draft = path.with_extension(DRAFT);
    // Opening a pipe to write blocks until a reader comes.
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let remover = std::thread::spawn({
        let voices = voices.clone();
        move || voices.remove(1, ada.id)
    });
    while !draft.exists() {
        std::thread::yield_now();
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send((voices.of(1).len(), voices.of(2).len())));
    let found = receiver.recv_timeout(Duration::from_secs(10)).expect("reading must not wait for the disk");
    assert_eq!(found.1, 1);
    drop(fs::File::open(&draft).unwrap());
    // A pipe cannot be synced; how the deletion ends is not the point.
    let _ = remover.join().unwrap();
}

#[test]
fn names_and_numbers_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { max_per_organisation: 2, ..Config::default() };
    let voices = Voices::open(dir.path(), &config).unwrap();
    for name in ["", "  ", "a\nb", "\u{7}", "Ada\u{202e}", &"x".repeat(NAME_CHARACTERS_MAX + 1)] {
        assert!(matches!(voices.add(1, name, embedding()), Err(Error::Name)), "{name:?}");
    }
    voices.add(1, &"é".repeat(NAME_CHARACTERS_MAX), embedding()).unwrap();
    voices.add(1, "Ada", embedding()).unwrap();
    assert!(matches!(voices.add(1, " Ada", embedding()), Err(Error::NameTaken)));
    assert!(matches!(voices.check(1, "Bo"), Err(Error::Full { most: 2 })));
    voices.add(2, "Bo", embedding()).expect("each organisation has its own room");
}

#[test]
fn a_file_that_was_never_finished_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).add(1, "Ada", embedding()).unwrap();
    let draft = dir.path().join(FOLDER).join("1").join(format!("{}.{DRAFT}", Uuid::new_v4()));
    fs::write(&draft, b"half").unwrap();
    assert_eq!(open(dir.path()).of(1).len(), 1);
    assert!(!draft.exists());
}

#[test]
fn what_cannot_be_read_leaves_the_other_voices_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let ada = open(dir.path()).add(1, "Ada", embedding()).unwrap();
    let folder = dir.path().join(FOLDER);
    fs::write(folder.join("123"), b"no folder").unwrap();
    // Directories in the place of files: neither can be read as one.
    fs::create_dir(folder.join("1").join(Uuid::new_v4().to_string())).unwrap();
    fs::create_dir(folder.join("1").join(format!("{}.{DRAFT}", Uuid::new_v4()))).unwrap();
    assert_eq!(&*open(dir.path()).of(1), [ada]);
}

#[test]
fn a_missing_key_is_made_only_while_there_are_no_voices() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("unmounted");
    let config = Config { key_file: Some(key.clone()), ..Config::default() };
    let open = || Voices::open(dir.path(), &config);
    let ada = open().unwrap().add(1, "Ada", embedding()).unwrap();
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    assert!(matches!(open(), Err(Error::Key { .. })));
    assert!(!key.exists(), "a new key would hide the missing one");
    fs::write(&key, kept).unwrap();
    assert_eq!(&*open().unwrap().of(1), std::slice::from_ref(&ada));
    assert!(open().unwrap().remove(1, ada.id).unwrap());
    fs::remove_file(&key).unwrap();
    open().expect("nothing is sealed any more");
}

#[test]
fn a_key_that_others_may_read_is_made_private() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let key = dir.path().join(KEY);
    for mode in [0o644, 0o440] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        drop(open(dir.path()));
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, mode & 0o700);
    }
}

#[test]
fn a_damaged_key_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::write(dir.path().join(KEY), b"short").unwrap();
    assert!(matches!(Voices::open(dir.path(), &Config::default()), Err(Error::Key { .. })));
}

#[tokio::test]
async fn another_process_may_add_and_delete_voices() {
    let dir = tempfile::tempdir().unwrap();
    // Two stores share nothing but the folder, as two processes do.
    let (server, command) = (open(dir.path()), open(dir.path()));
    let ada = command.add(1, "Ada", embedding()).unwrap();
    assert!(server.of(1).is_empty());
    assert_eq!(&*server.latest(1).await, std::slice::from_ref(&ada));
    assert!(matches!(open(dir.path()).add(1, "Ada", embedding()), Err(Error::NameTaken)));
    let bo = server.add(1, "Bo", embedding()).unwrap();
    assert!(matches!(command.add(1, "Bo", embedding()), Err(Error::NameTaken)));
    assert_eq!(command.latest(1).await.len(), 2);
    assert!(command.remove(1, ada.id).unwrap() && command.remove(1, bo.id).unwrap());
    assert!(server.latest(1).await.is_empty());
    assert!(server.organisations().is_empty());
}

#[tokio::test]
async fn files_are_read_again_only_if_the_folder_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    let ada = voices.add(1, "Ada", embedding()).unwrap();
    let folder = dir.path().join(FOLDER).join("1");
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    let date = |time| fs::File::open(&folder).unwrap().set_modified(time).unwrap();
    date(long_ago);
    assert_eq!(voices.latest(1).await.len(), 1);
    let path = folder.join(ada.id.to_string());
    fs::remove_file(&path).unwrap();
    date(long_ago);
    assert_eq!(voices.latest(1).await.len(), 1, "the folder looks as it did");
    date(long_ago + Duration::from_secs(1));
    assert!(voices.latest(1).await.is_empty());
}

#[test]
fn a_draft_that_another_process_writes_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let voices = open(dir.path());
    voices.add(1, "Ada", embedding()).unwrap();
    let draft = dir.path().join(FOLDER).join("1").join(format!("{}.{DRAFT}", Uuid::new_v4()));
    let turn = voices.turn().unwrap();
    fs::write(&draft, b"half").unwrap();
    let opener = std::thread::spawn({
        let dir = dir.path().to_owned();
        move || open(&dir).of(1).len()
    });
    // It waits for the turn to end, and cannot be done before.
    assert!(!opener.is_finished() && draft.exists());
    fs::remove_file(&draft).unwrap();
    drop(turn);
    assert_eq!(opener.join().unwrap(), 1);
}
