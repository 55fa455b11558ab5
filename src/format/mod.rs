//! Transcripts in other forms. Pure.

pub mod captions;
pub mod redact;
