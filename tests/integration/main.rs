//! One binary for all integration tests: linking once is faster than linking many times.

mod audio;
mod callers;
mod checkpoint;
mod commands;
mod demo;
mod doors;
mod engine;
mod formatting;
mod health;
mod hub;
mod job_store;
mod jobs;
mod killed;
mod listen;
mod live;
mod protocol;
mod receiver;
mod scripted;
mod server;
mod socket;
mod speech;
mod streams;
mod sts;
mod tones;
mod whisper;
