//! Attribution: the device's time by stage, beside the work that the stage does and the device's ceilings.

use std::time::Duration;

use serde::Serialize;

use crate::cuda::{Stage, StageTimes};
use crate::models::{Ceilings, Shape};

/// Times that count from a moment on.
pub struct Stages {
    times: StageTimes,
    before: Vec<(Stage, u64, Duration)>,
}

/// The work that a measurement consists of.
pub struct Work {
    pub shape: Shape,
    pub windows: f64,
    /// Text positions before a mean token.
    pub text: f64,
    /// Size of an element of the audio caches.
    pub audio_bytes: f64,
}

/// A stage's figures. Shares are of 1; those of stages that run side by side may add up to more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub stage: &'static str,
    /// Rows of the bucket, of stages that have buckets.
    pub rows: Option<usize>,
    /// How many times it ran: encoding by batches, decoding by launches.
    pub count: u64,
    pub microseconds: f64,
    pub share_of_wall: f64,
    pub teraflops: Option<f64>,
    pub gigabytes_per_second: Option<f64>,
    /// The time that the ceilings allow, over the time taken.
    pub share_of_ceiling: Option<f64>,
}

impl Stages {
    pub fn begin(times: StageTimes) -> Self {
        Self { before: times.totals(), times }
    }

    /// Figures of the stages that ran since the beginning, `wall` seconds ago.
    pub fn figures(&self, work: &Work, wall: f64, ceilings: Option<Ceilings>) -> Vec<Figures> {
        let mut totals = self.times.totals();
        totals.sort_by_key(|&(stage, ..)| order(stage));
        let since = totals.into_iter().filter_map(|(stage, count, time)| {
            let before = self.before.iter().find(|(known, ..)| *known == stage);
            let (count_before, time_before) =
                before.map_or((0, Duration::ZERO), |&(_, count, time)| (count, time));
            let (count, time) = (count.saturating_sub(count_before), time.saturating_sub(time_before));
            (count > 0).then(|| figures(stage, count, time.as_secs_f64(), (work, wall, ceilings)))
        });
        since.collect()
    }
}

fn figures(
    stage: Stage,
    count: u64,
    seconds: f64,
    (work, wall, ceilings): (&Work, f64, Option<Ceilings>),
) -> Figures {
    let (stage_name, rows) = named(stage);
    let done = work.of(stage, count as f64);
    let rate = |done: f64, unit: f64| Some(done / seconds / unit).filter(|rate| rate.is_finite());
    let least = done.zip(ceilings).map(|((flops, bytes), ceilings)| {
        let product = flops / (ceilings.product_teraflops * 1e12);
        product.max(bytes / (ceilings.copy_gigabytes_per_second * 1e9))
    });
    Figures {
        stage: stage_name,
        rows,
        count,
        microseconds: seconds * 1e6,
        share_of_wall: seconds / wall,
        teraflops: done.and_then(|(flops, _)| rate(flops, 1e12)),
        gigabytes_per_second: done.and_then(|(_, bytes)| rate(bytes, 1e9)),
        share_of_ceiling: least.and_then(|least| rate(least, 1.0)),
    }
}

impl Work {
    /// Operations and bytes of `count` runs of a stage; `None` where neither bounds it. Rows of a bucket that hold no window
    /// count, as they are computed too.
    fn of(&self, stage: Stage, count: f64) -> Option<(f64, f64)> {
        let Self { shape, windows, text, audio_bytes } = self;
        match stage {
            Stage::Encoder => Some((windows * shape.encoder_flops(), count * shape.encoder_bytes())),
            Stage::CacheFill => {
                let written = shape.token_bytes(0.0, *audio_bytes);
                Some((windows * shape.audio_flops(), windows * written))
            }
            // Without the audio, which the rows of a prompt share.
            Stage::Prefill(rows) => {
                Some((count * rows as f64 * shape.token_flops(0.0), count * shape.step_bytes()))
            }
            Stage::Step(rows) => {
                let rows = rows as f64;
                let bytes = shape.step_bytes() + rows * shape.token_bytes(*text, *audio_bytes);
                Some((count * rows * shape.token_flops(*text), count * bytes))
            }
            Stage::Mel | Stage::Alignment => None,
        }
    }
}

/// The stage's name, and the rows of its bucket.
fn named(stage: Stage) -> (&'static str, Option<usize>) {
    match stage {
        Stage::Mel => ("mel", None),
        Stage::Encoder => ("encoder", None),
        Stage::CacheFill => ("cache_fill", None),
        Stage::Prefill(rows) => ("prefill", Some(rows)),
        Stage::Step(rows) => ("step", Some(rows)),
        Stage::Alignment => ("alignment", None),
    }
}

/// The order of a window's way.
fn order(stage: Stage) -> (usize, usize) {
    match stage {
        Stage::Mel => (0, 0),
        Stage::Encoder => (1, 0),
        Stage::CacheFill => (2, 0),
        Stage::Prefill(rows) => (3, rows),
        Stage::Step(rows) => (4, rows),
        Stage::Alignment => (5, 0),
    }
}

/// A line for each stage.
pub fn table(stages: &[Figures]) -> String {
    if stages.is_empty() {
        return "          stages  not measured on this device\n".into();
    }
    let number =
        |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let head = ["stage", "rows", "count", "µs each", "of wall %", "TFLOP/s", "GB/s", "of ceiling %"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(stages.iter().map(|stage| {
        [
            stage.stage.to_owned(),
            stage.rows.map_or("-".into(), |rows| rows.to_string()),
            stage.count.to_string(),
            number(Some(stage.microseconds / stage.count as f64), 1),
            number(Some(stage.share_of_wall * 100.0), 1),
            number(stage.teraflops, 3),
            number(stage.gigabytes_per_second, 1),
            number(stage.share_of_ceiling.map(|share| share * 100.0), 1),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        format!("  {}\n", cells.collect::<Vec<_>>().join("  "))
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_the_times_and_the_work_since_the_beginning() {
        let times = StageTimes::default();
        let second = Duration::from_secs(1);
        times.add(Stage::Step(8), second);
        let stages = Stages::begin(times.clone());
        times.add(Stage::Step(8), second);
        times.add(Stage::Step(8), second);
        times.add(Stage::Mel, second / 2);
        let shape = Shape::named("base").expect("known");
        let work = Work { shape, windows: 4.0, text: 10.0, audio_bytes: 2.0 };
        let ceilings = Ceilings { copy_gigabytes_per_second: 2.0, product_teraflops: 1e6 };
        let figures = stages.figures(&work, 10.0, Some(ceilings));
        assert_eq!(
            figures.iter().map(|f| (f.stage, f.rows, f.count)).collect::<Vec<_>>(),
            [("mel", None, 1), ("step", Some(8), 2),]
        );
        let (mel, step) = (&figures[0], &figures[1]);
        assert_eq!((mel.microseconds, mel.share_of_wall, mel.teraflops), (5e5, 0.05, None));
        let gigabytes = (shape.step_bytes() + 8.0 * shape.token_bytes(10.0, 2.0)) / 1e9;
        let close =
            |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-9);
        assert!(close(step.gigabytes_per_second, gigabytes), "{step:?}");
        assert!(close(step.share_of_ceiling, gigabytes / 2.0), "{step:?}");
        assert_eq!(table(&figures).lines().count(), 3);
        assert!(table(&[]).contains("not measured"));
    }
}
