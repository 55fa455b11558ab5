//! One binary for all integration tests: linking once is faster than linking many times.

mod checkpoint;
mod doors;
mod engine;
mod listen;
mod scripted;
mod server;
mod whisper;
