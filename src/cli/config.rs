//! `verbatim config`

use std::process::ExitCode;

use crate::config::Sources;

pub fn run(sources: &Sources) -> anyhow::Result<ExitCode> {
    let rows = sources.describe()?;
    let width = |pick: fn(&(String, String, String)) -> usize| rows.iter().map(pick).max().unwrap_or(0);
    let (names, values) = (width(|row| row.0.len()), width(|row| row.1.len()).min(60));
    for (name, value, source) in &rows {
        println!("{name:<names$} = {value:<values$} # {source}");
    }
    Ok(ExitCode::SUCCESS)
}
