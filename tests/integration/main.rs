//! One binary for all integration tests: linking once is faster than linking many times.

mod engine;
mod scripted;
