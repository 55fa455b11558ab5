//! One binary for all integration tests: linking once is faster than linking many times.

mod audio;
mod callers;
mod checkpoint;
mod commands;
mod demo;
mod doors;
mod engine;
mod formatting;
mod hub;
mod job_store;
mod jobs;
mod killed;
mod listen;
mod protocol;
mod receiver;
mod scripted;
mod server;
mod speech;
mod whisper;
