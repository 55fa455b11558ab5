//! The Helm chart of `docker/chart`, by Helm, kubeconform and promtool: `tests/chart/check.py`.
//!
//! `./setup deployment` installs them. Without them the test is skipped with a message; with `TEST_ALL_SDKS` set, as in CI,
//! that is a failure.

use std::path::PathBuf;

use tokio::process::Command;

use crate::speech::cache;

#[tokio::test]
async fn it_renders_what_kubernetes_and_the_program_take() {
    let python = cache("deployment").join("bin/python");
    if !python.exists() {
        assert!(std::env::var_os("TEST_ALL_SDKS").is_none(), "run ./setup deployment, with Go 1.26");
        eprintln!("skipped: there is no Helm; run ./setup deployment");
        return;
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/chart/check.py");
    let mut check = Command::new(python);
    check.arg(script).env("VERBATIM", env!("CARGO_BIN_EXE_verbatim")).kill_on_drop(true);
    let done = check.output().await.expect("Python runs");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}\n{}", String::from_utf8_lossy(&done.stdout));
    assert!(
        told.contains("Ran ") && told.trim_end().ends_with("OK") || told.contains("OK (skipped="),
        "{told}"
    );
}
