//! The agreement of files and rows at the start.
//!
//! A row says what a file in the spool is for. So a database that is lost, damaged or restored from a backup
//! leaves orphans: audio whose job was acknowledged. A crash between file and row also leaves one, whose job
//! was not. The two look alike, so both are kept.

use std::time::SystemTime;

use super::error::Error;
use super::quarantine::Quarantine;
use super::spool::Spool;
use super::store::{JobId, Store};

/// The findings of [`reconcile`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Files that belong to no job, by name.
    pub set_aside: Vec<String>,
    /// Jobs whose audio had been set aside while their rows were missing.
    pub brought_back: Vec<JobId>,
}

/// Makes files and rows agree, before any job is accepted or run: drafts and audio that is no longer needed
/// are removed, files that belong to no job are set aside, and set-aside files whose row is back are
/// restored.
///
/// # Errors
/// If rows cannot be read, or files cannot be listed. A file that cannot be moved is left for the next start.
pub async fn reconcile(store: &dyn Store, spool: &Spool, now: SystemTime) -> Result<Findings, Error> {
    let needed = store.with_audio().await?;
    let mut findings = Findings::default();
    for &id in &needed {
        if spool.bring_back(id)? {
            findings.brought_back.push(id);
        }
    }
    for name in spool.names()? {
        if !Spool::is_draft(&name) {
            let id = Spool::job_of(&name);
            if id.is_some_and(|id| needed.contains(&id)) {
                continue;
            }
            let is_known = match id {
                Some(id) => store.job(id).await?.is_some(),
                None => false,
            };
            if !is_known {
                match spool.set_aside(&name, now) {
                    Ok(()) => findings.set_aside.push(name.to_string_lossy().into_owned()),
                    Err(error) => tracing::warn!(%error, "cannot set audio without a job aside"),
                }
                continue;
            }
        }
        spool.discard(&name);
    }
    Ok(findings)
}

/// Logs the findings. `is_new`: the database has just been created.
pub fn report(findings: &Findings, is_new: bool, quarantine: &Quarantine, kept_seconds: u64) {
    let (count, folder) = (findings.set_aside.len(), quarantine.folder().display());
    if count > 0 && is_new {
        tracing::error!(
            count, %folder, kept_seconds,
            "the job database is new, though audio of jobs was waiting: those jobs are lost, unless a copy of the \
             database is put back; their audio is set aside"
        );
    } else if count > 0 {
        tracing::warn!(count, %folder, kept_seconds, "audio that belongs to no job is set aside");
    }
    if !findings.brought_back.is_empty() {
        tracing::warn!(count = findings.brought_back.len(), "audio that was set aside has its jobs again");
    }
}
