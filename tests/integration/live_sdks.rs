//! The live clients of the wire format's own SDKs, with nothing changed but address and key: interim and final
//! results, Finalize, KeepAlive, CloseStream with its trailing Metadata. What each checks is in tests/sdks.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use verbatim::live::Config;

use crate::live::start;
use crate::live_audio::wave;
use crate::tones::utter;

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is installed as `name`; `None` where nothing is, which fails where all must be.
fn installed(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".verbatim/sdks").join(name);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "{} is not there", path.display());
    eprintln!("skipped: {} is not there", path.display());
    None
}

fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/sdks").join(name)
}

fn python(version: &str) -> Option<Command> {
    let mut command = Command::new(installed(&format!("{version}/bin/python"))?);
    command.arg(source("live.py"));
    Some(command)
}

fn node() -> Option<Command> {
    let packages = installed("node/node_modules")?;
    let mut command = Command::new("node");
    // A program finds its packages beside itself, and they are elsewhere.
    let script = std::fs::read_to_string(source("node/live.js")).expect("readable");
    command.current_dir(packages.parent()?).args(["--input-type=module", "--eval", &script]);
    Some(command)
}

fn rust() -> Option<Command> {
    Some(Command::new(installed("rust/live-client")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_clients_of_the_sdks_are_served() {
    let server = start(Config { hop_ms: 200, ..Config::default() }).await;
    // Six seconds; the middle, where the clients finalize, is in a pause.
    let said: Vec<(u8, f64, f64)> = (1..=12).map(|word| (word, 0.3, 0.2)).collect();
    let samples = utter(&said);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("said.wav");
    std::fs::write(&file, wave(16_000, samples.len() as u32 * 2, &samples)).expect("written");
    let expected: Vec<String> = said.iter().map(|(word, ..)| format!("W{word},")).collect();
    for client in [python("python"), python("python-3"), node(), rust()] {
        let Some(mut client) = client else { continue };
        let address = format!("http://{}", server.address);
        let output = client
            .args([&address, &server.key])
            .arg(&file)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(PATIENCE, output).await.expect("in time").expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected.join(" "), "{errors}");
    }
}
