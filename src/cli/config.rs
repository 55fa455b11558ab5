//! `verbatim config`: the effective configuration.

use std::process::ExitCode;

use super::output::print;
use crate::config::{Setting, Sources};

/// Prints a file that `--config` can read, with the source of each value as a comment.
pub fn run(sources: &Sources) -> anyhow::Result<ExitCode> {
    let line = |Setting { name, value, source }: &Setting| match value {
        Some(value) => (format!("{name} = {value}"), format!("# {source}")),
        None if source == "default" => (format!("# {name} is not set"), String::new()),
        None => (format!("# {name} is set, and not shown"), format!("# {source}")),
    };
    let lines: Vec<_> = sources.describe()?.iter().map(line).collect();
    let width = lines.iter().map(|(setting, _)| setting.len()).max().unwrap_or(0).min(72);
    let lines = lines.iter().map(|(setting, source)| format!("{setting:<width$} {source}"));
    print(&lines.map(|line| line.trim_end().to_owned() + "\n").collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
