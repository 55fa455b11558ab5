//! One binary for all integration tests: linking once is faster than linking many times.

mod checkpoint;
mod engine;
mod scripted;
mod whisper;
