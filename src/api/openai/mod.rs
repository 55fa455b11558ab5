//! OpenAI's audio API on the same engine.

pub mod realtime;
