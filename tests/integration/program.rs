//! The built program, run as a server by a test.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

pub struct Program {
    process: Child,
    pub address: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Program {
    /// Starts with the model in a folder; the server may reach `allowed` besides public addresses.
    pub async fn start(state: &Path, model: &Path, allowed: &str) -> Self {
        Self::start_with(state, model, &[("VERBATIM_FETCH_ALLOW", allowed)]).await
    }

    /// Starts with settings in environment variables.
    pub async fn start_with(state: &Path, model: &Path, settings: &[(&str, &str)]) -> Self {
        let arguments = [OsStr::new("--model"), model.as_os_str()];
        Self::serve(state, &arguments, settings).await
    }

    /// Starts `serve` with more arguments, and with settings in environment variables.
    pub async fn serve(state: &Path, arguments: &[&OsStr], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbatim"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--threads", "1"])
            .args(arguments)
            .env("VERBATIM_STATE_DIR", state)
            .env("XDG_CONFIG_HOME", state)
            .env("VERBATIM_TRANSCRIBE__WINDOWS", "sequential")
            .env("VERBATIM_LOG__FORMAT", "json")
            .env("VERBATIM_LOG__LEVEL", "info")
            .env("VERBATIM_SHUTDOWN__GRACE_SECONDS", "0")
            .envs(settings.iter().copied())
            .stderr(Stdio::piped());
        let start = move || {
            let mut process = command.spawn().expect("it starts");
            let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
            let log = Arc::new(Mutex::new(String::new()));
            let keep = |log: &Mutex<String>, line: &str| {
                let mut log = log.lock().expect("no test panics here");
                log.push_str(line);
                log.push('\n');
            };
            let address = loop {
                let line = lines.next().expect("it ended before it listened").expect("a log");
                keep(&log, &line);
                let entry: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                if entry["message"] == "listening" {
                    break entry["address"].as_str().expect("text").parse().expect("an address");
                }
            };
            // Read the log, so that the program never blocks on writing it.
            let kept = log.clone();
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| keep(&kept, &line)));
            Self { process, address, log }
        };
        tokio::task::spawn_blocking(start).await.expect("no panic")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The log so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no test panics here").clone()
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Stops it with SIGTERM, and expects exit code 0.
    pub async fn stop(self) {
        self.signal("-TERM");
        assert_eq!(self.ends().await, Some(0));
    }

    /// Sends the signal `name`, as `kill` spells it.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.process.id().to_string()]).status();
        assert!(sent.expect("a command").success());
    }

    /// Its exit code, once it has ended.
    pub async fn ends(mut self) -> Option<i32> {
        let wait = move || self.process.wait().expect("it ends").code();
        tokio::task::spawn_blocking(wait).await.expect("no panic")
    }

    /// Suspends it (SIGSTOP) for `time`, then resumes it; runs `meanwhile` in between.
    pub async fn stands_still(&self, time: Duration, meanwhile: impl Future<Output = ()>) {
        self.signal("-STOP");
        let stat = format!("/proc/{}/stat", self.process.id());
        // After the name in brackets: the state, T when it is stopped.
        while !std::fs::read_to_string(&stat).expect("it runs").contains(") T ") {
            tokio::task::yield_now().await;
        }
        tokio::join!(tokio::time::sleep(time), meanwhile);
        self.signal("-CONT");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
