//! Verbatim: a speech-to-text server.
//!
//! # Layout
//!
//! Imports go down only; `tests/architecture.rs` reads the table below and checks it.
//!
//! ```text
//! 6  main → cli → app       composition root, the only one that names everything; config
//! 5  api  sts  demo         endpoints, wire types, error → status; the voice agent; what an integrator would
//!                           build, who knows a service by its address: all on  http (hyper plumbing)
//! 4  transcribe  live  jobs whole audio → transcript; audio as it comes → words; what is delivered later
//! 3  format  vad            speech arts
//! 2  engine                 queue, scheduler, one thread per device  ⇐ models → cpu, cuda (kernels)
//! 1  audio  transcript  figures  fetch  hub  identity  keys  onnx  patience  share  state  telemetry   ground
//! ```
//!
//! # The path of a request
//!
//! bytes → [`audio`] (container, resample) → [`audio::Sound`] → [`vad`] spans →
//! [`engine::Window`] (≤ 30 s, exact offset) → [`engine`] (queue → encode → slot → steps) →
//! [`engine::Recognition`] → [`transcribe`] stitches a [`transcript::Transcript`] → [`format`] →
//! `api::wire` → JSON.
//!
//! # Who may use whom
//!
//! | module     | may use |
//! |------------|---------|
//! | audio      | |
//! | transcript | |
//! | figures    | |
//! | fetch      | patience |
//! | hub        | fetch |
//! | identity   | |
//! | onnx       | |
//! | patience   | |
//! | share      | |
//! | state      | |
//! | keys       | share, state |
//! | telemetry  | |
//! | vad        | audio |
//! | engine     | audio, patience, share, transcript, telemetry |
//! | cpu        | |
//! | cuda       | |
//! | models     | engine, audio, transcript, cpu, cuda, hub |
//! | format     | transcript |
//! | transcribe | audio, patience, share, vad, engine, transcript, telemetry |
//! | live       | audio, share, vad, engine, transcript, telemetry |
//! | jobs       | fetch, patience, share, state |
//! | http       | keys, patience, share, telemetry |
//! | api        | http, jobs, live, transcribe, engine, fetch, figures, format, keys, patience, share, transcript, audio, telemetry |
//! | sts        | http, fetch, figures, identity, onnx, patience, share, state, audio, vad |
//! | demo       | http, identity |
//! | config     | api, audio, demo, engine, fetch, http, jobs, keys, live, models, sts, telemetry, transcribe |
//! | app        | all |
//! | cli        | all |

pub mod api;
pub mod app;
pub mod audio;
pub mod cli;
pub mod config;
pub mod cpu;
pub mod cuda;
pub mod demo;
pub mod engine;
pub mod fetch;
pub mod figures;
pub mod format;
pub mod http;
pub mod hub;
mod identity;
pub mod jobs;
pub mod keys;
pub mod live;
pub mod models;
pub mod onnx;
pub mod patience;
pub mod share;
pub mod state;
pub mod sts;
pub mod telemetry;
pub mod transcribe;
pub mod transcript;
pub mod vad;
