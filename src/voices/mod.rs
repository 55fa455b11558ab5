//! Enrolled voices: named embeddings of each organisation, by which speakers of a recording get their names.
#![doc = include_str!("README.md")]

mod config;
mod enrolment;
mod matching;
mod name;
mod sealing;
mod store;

pub use config::Config;
pub use enrolment::{CLIP_SECONDS_MAX, Unfit, enrolled};
pub use matching::{Identified, Naming, identify};
pub use name::NAME_CHARACTERS_MAX;
pub use store::{Voice, Voices};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use `{path}` to keep voices in")]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "`{path}` must hold the {expected} bytes of the key that voices were sealed with: mount its disk, or restore it from a \
         backup; without it, delete `voices` in the state directory and enrol all anew"
    )]
    Key { path: PathBuf, expected: usize },
    #[error("a name has 1 to {NAME_CHARACTERS_MAX} printable characters")]
    Name,
    #[error("another voice has this name")]
    NameTaken,
    #[error("an organisation may enrol {most} voices")]
    Full { most: usize },
    #[error("the voice could not be sealed")]
    Sealing,
}
