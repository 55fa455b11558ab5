//! A check's result, and the report that collects them: a line each, or JSON.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::output::print;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// It works, and something is missing or near its limit.
    Warning,
    Failed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// The result of one check. No text in it holds a secret.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub status: Status,
    pub message: String,
    /// The change that would mend it: a setting, or a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Check {
    pub fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, message: message.into(), mend: None }
    }

    pub fn warning(name: &'static str, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Warning, message: message.into(), mend: Some(mend.into()) }
    }

    pub fn failed(name: &'static str, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { name, status: Status::Failed, message: message.into(), mend: Some(mend.into()) }
    }

    fn line(&self) -> String {
        let mend = self.mend.as_ref().map(|mend| format!(" → {mend}")).unwrap_or_default();
        let text = format!("{:<8} {:<16} {}{mend}", self.status.name(), self.name, self.message);
        // A line of its own for each check, whatever an error's text has.
        text.replace(char::is_control, " ") + "\n"
    }
}

/// Collects the checks. As text, each is printed as soon as it is done.
pub struct Report {
    checks: Vec<Check>,
    is_json: bool,
}

#[derive(Serialize)]
struct Summary<'a> {
    ok: bool,
    checks: &'a [Check],
}

impl Report {
    pub fn new(is_json: bool) -> Self {
        Self { checks: Vec::new(), is_json }
    }

    /// # Errors
    /// The output is closed.
    pub fn add(&mut self, check: Check) -> anyhow::Result<()> {
        if !self.is_json {
            print(&check.line())?;
        }
        self.checks.push(check);
        Ok(())
    }

    /// Prints the summary. The exit code is 1 if a check failed.
    ///
    /// # Errors
    /// The output is closed.
    pub fn end(self) -> anyhow::Result<ExitCode> {
        let count = |status| self.checks.iter().filter(|check| check.status == status).count();
        let (warnings, failed) = (count(Status::Warning), count(Status::Failed));
        let text = match self.is_json {
            true => serde_json::to_string(&Summary { ok: failed == 0, checks: &self.checks })?,
            false => format!("\n{} checks: {failed} failed, {warnings} warnings", self.checks.len()),
        };
        print(&format!("{text}\n"))?;
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// An error with its causes, without the addresses that `reqwest` adds: they may hold passwords.
pub fn plain(error: reqwest::Error) -> String {
    format!("{:#}", anyhow::Error::new(error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_one_line() {
        let check = Check::failed("voice", "two\nlines", "sts.speech");
        assert_eq!(check.line(), "failed   voice            two lines → sts.speech\n");
        assert_eq!(Check::ok("keys", "3").line(), "ok       keys             3\n");
    }
}
