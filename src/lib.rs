//! Verbatim: a speech-to-text server that speaks a hosted API's wire format, with a voice agent beside it.
//!
//! # Chapters
//!
//! Each is the `README.md` of its module.
//!
//! | to use it | to run it |
//! |---|---|
//! | [`api`]: transcription over HTTP, parameters, keys | [`config`]: settings and where they come from |
//! | [`audio`]: formats | [`app`]: health, metrics, logs |
//! | [`live`]: streaming, redaction | [`engine`]: admission and load |
//! | [`jobs`]: callbacks | [`share`]: shares of organisations |
//! | [`sts`]: the voice agent | [`http`]: TLS, uploads, stopping |
//! | [`demo`]: a backend to copy from | [`fetch`]: which addresses the server connects to |
//! | [`cli`]: the command line | [`cuda`], [`models`]: GPUs, models |
//!
//! # Layout
//!
//! Imports go down only. `tests/architecture.rs` holds the modules to the table below, and the files of each module to
//! `src/circles.md`, which lists those that may import each other in a circle.
//!
//! ```text
//! 6  main → cli → app       composition root, the only one that names everything; config
//! 5  api  sts  demo         endpoints, wire types, error → status; the voice agent; what an integrator would
//!                           build, who knows a service by its address: all on  http (hyper plumbing)
//! 4  transcribe  live  jobs whole audio → transcript; audio as it comes → words; what is delivered later
//! 3  format  vad            speech arts
//! 2  engine                 queue, scheduler, one thread per device  ⇐ models → cpu, cuda (machine hall)
//! 1  audio  transcript  figures  fetch  identity  keys  onnx  patience  share  state  telemetry   ground
//! ```
//!
//! # The path of a request
//!
//! bytes → [`audio`] (container, resample) → [`audio::Sound`] → [`vad`] spans →
//! [`engine::Window`] (≤ 30 s, exact offset) → [`engine`] (queue → encode → slot → steps) →
//! [`engine::Recognition`] → [`transcribe`] stitches a [`transcript::Transcript`] →
//! [`mod@format`] →
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
//! | identity   | |
//! | onnx       | |
//! | patience   | |
//! | share      | |
//! | state      | |
//! | keys       | share, state |
//! | telemetry  | |
//! | vad        | audio |
//! | engine     | audio, share, transcript, telemetry |
//! | cpu        | |
//! | cuda       | |
//! | models     | engine, audio, transcript, cpu, cuda, fetch |
//! | format     | transcript |
//! | transcribe | audio, share, vad, engine, transcript, telemetry |
//! | live       | audio, share, vad, engine, transcript, telemetry |
//! | jobs       | fetch, share, state, telemetry |
//! | http       | keys, patience, share, telemetry |
//! | api        | http, jobs, live, transcribe, engine, fetch, figures, format, keys, patience, share, transcript, audio, telemetry |
//! | sts        | http, fetch, figures, identity, onnx, patience, share, state, telemetry, audio, vad |
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
