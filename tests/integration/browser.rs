//! The console's pages in a real browser: the specs of `tests/console`, each against the built program with a real model.
//!
//! `./setup browser` installs Chromium and what drives it. Without them the specs are skipped with a message; with
//! `TEST_ALL_SDKS` set, as in CI, that is a failure. Firefox is used as well where it is installed, with sound where
//! PulseAudio is. With `SHOTS=FOLDER` the specs leave screenshots there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::program::Program;
use crate::server::new_key;
use crate::speech::cache;

const CHROMIUM: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const FIREFOX: [&str; 2] = ["firefox-esr", "firefox"];
/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(900);

/// Held while a spec runs: two browsers and their servers would starve each other on a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A browser by which a spec is run.
#[derive(Debug, Clone, PartialEq)]
pub enum Browser {
    Chromium(PathBuf),
    Firefox(PathBuf),
}

impl Browser {
    /// Chromium; `None` if it, or what drives it, is not installed.
    pub fn chromium() -> Option<Self> {
        let found = installed(&CHROMIUM).filter(|_| packages().join("node_modules").exists());
        if found.is_none() {
            assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup browser");
            eprintln!("skipped: there is no browser; run ./setup browser");
        }
        found.map(Self::Chromium)
    }

    /// Firefox, beside Chromium; `None` with a message where it is not installed.
    pub fn firefox() -> Option<Self> {
        Self::chromium()?;
        let found = installed(&FIREFOX);
        if found.is_none() {
            eprintln!("skipped: there is no Firefox (on Debian: apt-get install firefox-esr pulseaudio)");
        }
        found.map(Self::Firefox)
    }
}

fn packages() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim/sdks/browser")
}

/// The first of these programs that the PATH has.
fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs =
        names.iter().flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    programs.into_iter().find(|program| program.is_file())
}

/// A key with which one signs in to the console, made as an operator makes it.
pub async fn admin_key(state: &Path) -> String {
    let create = ["keys", "create", "--admin", "--label", "console"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
    let output = command.args(create).env("VERBATIM_STATE_DIR", state).env("XDG_CONFIG_HOME", state).output();
    let output = output.await.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("text");
    let key = printed.split_whitespace().find(|word| word.starts_with("org_"));
    key.unwrap_or_else(|| panic!("a key: {printed}")).to_owned()
}

/// Runs `tests/console/NAME.spec.mjs` in a browser against the program with the model `tiny.en` and these settings.
pub async fn spec(name: &str, browser: Option<Browser>, settings: &[(&str, &str)]) {
    let Some(browser) = browser else { return };
    let _turn = ONE_AT_A_TIME.lock().await;
    let state = TempDir::new().expect("a folder");
    let (admin, key) = (admin_key(state.path()).await, new_key(state.path()));
    let program = Program::start_with(state.path(), &cache("models/tiny.en"), settings).await;
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/console/{name}.spec.mjs"));
    let mut node = Command::new("node");
    node.args(["--test-reporter", "spec"])
        .arg(file)
        .env("SERVER", format!("http://{}", program.address))
        .env("ADMIN_KEY", admin)
        .env("KEY", key)
        .env("SPEECH", cache("speech"))
        .env("PACKAGES", packages())
        .env("SDKS", cache("sdks"))
        .env("SCRATCH", env!("CARGO_TARGET_TMPDIR"))
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    match &browser {
        Browser::Chromium(program) => node.env("CHROMIUM", program),
        Browser::Firefox(program) => node.env("FIREFOX", program),
    };
    let output = tokio::time::timeout(PATIENCE, node.output()).await.expect("in time").expect("node");
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{name}, {browser:?}:\n{}", printed.concat());
}

#[tokio::test]
async fn the_playground_transcribes_and_shows_what_was_said() {
    spec("playground", Browser::chromium(), &[("VERBATIM_FETCH_ALLOW", "127.0.0.1")]).await;
}

#[tokio::test]
async fn the_playground_shows_an_hour_and_is_used_by_the_keyboard() {
    spec("playground-hour", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn the_lines_of_the_playground_run_as_they_are() {
    spec("playground-code", Browser::chromium(), &[("VERBATIM_FETCH_ALLOW", "127.0.0.1")]).await;
}

#[tokio::test]
async fn live_speech_is_shown_as_it_is_heard() {
    spec("live", Browser::chromium(), &[]).await;
}

#[tokio::test]
async fn firefox_shows_playground_and_live() {
    spec("firefox", Browser::firefox(), &[]).await;
}
