//! One binary for all integration tests: linking once is faster than linking many times.

mod audio;
mod autobahn;
mod callers;
mod checkpoint;
mod commands;
#[path = "../contract/mod.rs"]
mod contract;
mod demo;
mod doors;
mod engine;
mod formatting;
mod fuzzed;
mod health;
mod hub;
mod inside;
mod job_store;
mod jobs;
mod killed;
mod listen;
mod live;
mod live_audio;
mod live_callback;
mod live_changes;
mod live_clients;
mod live_sdks;
mod protocol;
mod receiver;
mod scripted;
mod sdks;
mod server;
mod socket;
mod speech;
mod streams;
mod sts;
mod tones;
mod whisper;
