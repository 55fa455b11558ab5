//! Rows, and how they are run: all of them, whatever becomes of the others.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::doors::Doors;

/// Rows that wait for a server side by side; more would wait for its processors.
const AT_ONCE: usize = 6;
/// A row that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// One statement and its check.
pub struct Row {
    pub section: &'static str,
    pub statement: &'static str,
    check: Box<dyn Check>,
}

/// A statement that does not hold.
pub struct Broken {
    pub section: &'static str,
    pub statement: &'static str,
    /// The message of the assertion that failed.
    pub problem: String,
}

pub fn row(section: &'static str, statement: &'static str, check: impl AsyncFn(&Doors) + 'static) -> Row {
    Row { section, statement, check: Box::new(check) }
}

/// An [`AsyncFn`] behind a pointer.
trait Check {
    fn run<'a>(&'a self, doors: &'a Doors) -> LocalBoxFuture<'a, ()>;
}

impl<F: AsyncFn(&Doors)> Check for F {
    fn run<'a>(&'a self, doors: &'a Doors) -> LocalBoxFuture<'a, ()> {
        Box::pin(self(doors))
    }
}

/// Runs every row; the broken ones in their order.
pub async fn run(rows: &[Row], doors: &Doors) -> Vec<Broken> {
    let checks = rows.iter().enumerate().map(async |(place, row)| Some((place, check(row, doors).await?)));
    let outcomes = stream::iter(checks).buffer_unordered(AT_ONCE);
    let mut broken: Vec<(usize, Broken)> = outcomes.filter_map(async |broken| broken).collect().await;
    broken.sort_by_key(|(place, _)| *place);
    broken.into_iter().map(|(_, broken)| broken).collect()
}

async fn check(row: &Row, doors: &Doors) -> Option<Broken> {
    let Row { section, statement, check } = row;
    let checked = AssertUnwindSafe(check.run(doors)).catch_unwind();
    let problem = match tokio::time::timeout(PATIENCE, checked).await {
        Ok(Ok(())) => return None,
        Ok(Err(panic)) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => (*text).to_owned(),
            (None, None) => "it panicked without a message".to_owned(),
        },
        Err(_) => format!("no end after {PATIENCE:?}"),
    };
    Some(Broken { section, statement, problem })
}
