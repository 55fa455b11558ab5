//! The built program and its input files: present, missing, and several at once.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{home, model, run, verbatim, write_silence};

/// A model that takes no time, and the path of the voice activity model.
struct Desk {
    home: TempDir,
    model: PathBuf,
    models: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let home = home();
        let (model, models) = model(&home);
        Self { home, model, models }
    }

    fn silence(&self, name: &str) -> String {
        let path = self.home.path().join(name);
        write_silence(&path, 1);
        path.to_str().expect("text").to_owned()
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let fixed = ["transcribe", "--threads", "1", "--model", self.model.to_str().expect("text")];
        let mut command = verbatim(&self.home, &[&fixed, arguments].concat());
        command.env("VERBATIM_MODEL_DIR", &self.models);
        command
    }

    fn transcribe(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        run(&mut self.command(arguments))
    }
}

/// Inputs that are no audio, each with its error message.
fn wrong(desk: &Desk) -> Vec<(String, &'static str)> {
    let folder = desk.home.path();
    std::fs::write(folder.join("empty.wav"), "").expect("writable");
    vec![
        (folder.join("missing.wav").display().to_string(), "there is no such file"),
        (folder.display().to_string(), "it is a folder"),
        (folder.join("empty.wav").display().to_string(), "it is empty"),
    ]
}

#[test]
fn what_is_not_there_is_found_before_the_model_is_looked_for() {
    let desk = Desk::new();
    for (path, reason) in wrong(&desk) {
        for command in ["transcribe", "bench"] {
            // This model would be an error of its own.
            let arguments = [command, &path, "--model", "/no/model/either"];
            let (code, output, error) = run(&mut verbatim(&desk.home, &arguments));
            assert_eq!((code, output.as_str()), (Some(1), ""), "{error}");
            assert!(error.contains(&path) && error.contains(reason), "{command}: {error}");
            assert!(!error.contains("model"), "{error}");
        }
    }
}

#[test]
fn files_that_are_there_are_transcribed_beside_others_that_are_not() {
    let desk = Desk::new();
    let good = desk.silence("good.wav");
    let junk = desk.home.path().join("junk.wav");
    std::fs::write(&junk, b"\x00\x01 this is no audio").expect("writable");
    let mut arguments: Vec<String> = wrong(&desk).into_iter().map(|(path, _)| path).collect();
    arguments.extend([junk.display().to_string(), good.clone(), "--format".into(), "json".into()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (code, output, error) = desk.transcribe(&arguments);
    assert_eq!(code, Some(1), "{error}");
    let values: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(values.len(), 1, "{output}");
    assert_eq!(values[0]["file"], good.as_str());
    for path in ["missing.wav", "empty.wav", "junk.wav"] {
        assert!(error.lines().any(|line| line.contains(path)), "{path}: {error}");
    }
}

#[test]
fn several_files_to_one_output_are_told_apart() {
    let desk = Desk::new();
    let (one, two) = (desk.silence("one.wav"), desk.silence("two.wav"));
    let transcribe = |format: &str, files: &[&str]| {
        let (code, output, error) = desk.transcribe(&[files, &["--format", format]].concat());
        assert_eq!((code, error.as_str()), (Some(0), ""), "{format}");
        output
    };
    let both = [one.as_str(), two.as_str()];
    let json = transcribe("json", &both);
    let files: Vec<String> = json
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["file"].as_str().expect("a name").to_owned()
        })
        .collect();
    assert_eq!(files, both);
    for format in ["text", "srt"] {
        let output = transcribe(format, &both);
        let headings: Vec<&str> = output.lines().filter(|line| line.starts_with("==> ")).collect();
        assert_eq!(headings, [format!("==> {one} <=="), format!("==> {two} <==")], "{format}");
        assert!(!transcribe(format, &[&one]).contains("==>"), "{format}");
    }
    let captions = transcribe("vtt", &both);
    assert!(captions.starts_with("WEBVTT\n"), "{captions}");
    let notes: Vec<&str> = captions.lines().filter(|line| line.starts_with("NOTE ")).collect();
    assert_eq!(notes, [format!("NOTE {one}"), format!("NOTE {two}")]);
    assert_eq!(transcribe("vtt", &[&one]).matches("NOTE").count(), 0);

    let folder = desk.home.path().join("out");
    let to_folder = ["--output-dir", folder.to_str().expect("text"), "--format", "text"];
    let (code, output, _) = desk.transcribe(&[&both, &to_folder[..]].concat());
    assert_eq!((code, output.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(folder.join("one.txt")).expect("written");
    assert!(!text.contains("==>"), "{text}");
}

#[test]
fn an_output_that_cannot_be_is_found_before_the_model_is_looked_for() {
    let desk = Desk::new();
    let good = desk.silence("good.wav");
    let arguments = ["transcribe", &good, "--model", "/no/model", "--output-dir", &good];
    let (code, _, error) = run(&mut verbatim(&desk.home, &arguments));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("good.wav") && !error.contains("model"), "{error}");
    let (code, _, error) = run(&mut verbatim(&desk.home, &["transcribe", "-", "-"]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("once"), "{error}");
}

/// A terminal: its own end, and the one for a program.
fn terminal() -> (File, OwnedFd) {
    let (mut own, mut other) = (0, 0);
    let size = libc::winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both pointers are to integers that outlive the call; no name and no settings are asked for.
    let opened =
        unsafe { libc::openpty(&mut own, &mut other, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(opened, 0, "a terminal");
    // SAFETY: the call just opened both, and nothing else owns them.
    unsafe { (File::from_raw_fd(own), OwnedFd::from_raw_fd(other)) }
}

/// All that a terminal shows until the program at its other end is gone.
fn shown(mut terminal: File) -> String {
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    // Linux says EIO when no end is open any more.
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn progress_is_shown_on_a_terminal_and_nowhere_else() {
    let desk = Desk::new();
    let path = desk.home.path().join("long.wav");
    write_silence(&path, 300);
    let file = path.to_str().expect("text");
    let (own, other) = terminal();
    let mut command = desk.command(&[file]);
    let mut child = command.stdout(Stdio::null()).stderr(other).spawn().expect("it runs");
    drop(command);
    let shown = shown(own);
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{shown}");
    assert!(shown.contains("of audio") && shown.contains('%'), "{shown:?}");
    let (code, _, error) = desk.transcribe(&[file]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

#[test]
fn a_pipe_is_a_file_like_others() {
    let desk = Desk::new();
    let fifo = desk.home.path().join("pipe.wav");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let audio = std::fs::read(Path::new(&desk.silence("a.wav"))).expect("readable");
    let (to, bytes) = (fifo.clone(), audio.clone());
    let feeding = std::thread::spawn(move || File::create(to).and_then(|mut pipe| pipe.write_all(&bytes)));
    let (code, _, error) = desk.transcribe(&[fifo.to_str().expect("text")]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    feeding.join().expect("it ends").expect("it was read");
}
