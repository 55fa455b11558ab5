//! The progress bar of `transcribe`, on standard error if that is a terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{Interval, MissedTickBehavior, interval};

const TICK: Duration = Duration::from_millis(200);
/// Steps of the bar.
const STEPS: u64 = 1000;

pub struct Progress {
    bar: ProgressBar,
    ticks: Interval,
    files: usize,
    files_done: usize,
    /// Seconds of audio in the files that are done.
    seconds_done: f64,
    /// The most audio that the engine held at once. Audio that it holds less of now is done.
    seconds_held: f64,
}

impl Progress {
    pub fn new(files: usize) -> Self {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(STEPS),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{wide_bar} {percent}% {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message("loading the model");
        bar.tick();
        Self { bar, ticks, files, files_done: 0, seconds_done: 0.0, seconds_held: 0.0 }
    }

    /// Waits a moment, then shows the progress, given the seconds of audio that the engine holds. Cancel-safe.
    pub async fn tick(&mut self, held_seconds: impl Fn() -> f64) {
        self.ticks.tick().await;
        self.show(held_seconds());
    }

    /// Counts a file of this many seconds as done.
    pub fn done(&mut self, seconds: f64) {
        self.files_done += 1;
        self.seconds_done += seconds;
        self.seconds_held = (self.seconds_held - seconds).max(0.0);
        self.show(self.seconds_held);
    }

    fn show(&mut self, held: f64) {
        // Audio arrives in whole files, so the engine's share grows in steps, and shrinks window by window.
        self.seconds_held = self.seconds_held.max(held);
        let under_way = (self.seconds_held - held).max(0.0);
        let part = if self.seconds_held > 0.0 { under_way / self.seconds_held } else { 0.0 };
        let done = (self.files_done as f64 + part.min(1.0)) / self.files as f64;
        self.bar.set_position((done * STEPS as f64) as u64);
        let audio = Duration::from_secs((self.seconds_done + under_way) as u64);
        let files = match self.files {
            1 => String::new(),
            files => format!("{} of {files} files, ", self.files_done),
        };
        self.bar.set_message(format!("{files}{} of audio", humantime::format_duration(audio)));
    }

    /// Hides the bar while `write` prints.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
