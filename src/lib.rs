//! Verbatim: a speech-to-text server that speaks a hosted API's wire format, with a voice agent beside it.
//!
//! # Chapters
//!
//! Each is the `README.md` of its module.
//!
//! | to use it | to run it |
//! |---|---|
//! | [`api`]: transcription over HTTP, parameters, keys | [`config`]: settings and where they come from |
//! | [`audio`]: formats; [`transcribe`]: how files are heard | [`app`]: health, metrics, logs |
//! | [`live`]: streaming, redaction | [`engine`]: admission and load |
//! | [`jobs`]: callbacks; [`speakers`]: diarization; [`voices`]: named speakers | [`share`]: shares of organisations |
//! | [`speech`]: text to speech | [`usage`]: the log of requests |
//! | [`sts`]: the voice agent; [`turn`]: turn taking | [`http`]: TLS, uploads, stopping |
//! | [`demo`]: a backend to copy from | [`fetch`]: which addresses the server connects to |
//! | [`console`]: pages in the browser | |
//! | [`cli`]: the command line | [`cuda`], [`models`]: GPUs, models |
//!
//! # Layout
//!
//! Imports go down only. `tests/architecture.rs` enforces the table below between modules, and that no files of one
//! module import each other in a circle.
//!
//! ```text
//! 6  main → cli → app       composition root, the only one that names everything; config
//! 5  api  sts  demo         endpoints, wire types, error → status; `sts::Host` joins session, room and agent;
//!    console                demo is an integrator's backend, which knows a service by its address; console is
//!                           the pages in a browser, and their routes
//! 4  transcribe  live  jobs whole audio → transcript; audio as it comes → words; work delivered later
//!    → registry             the served models, by name
//!    agent                  the voice agent: turns, floor, proofs, replies
//! 3  format                 how a transcript is written
//!    vad → speakers → voices  where in the audio speech is; who speaks; the names of enrolled voices
//!    vad → turn             where a speaker's turn begins, and whether a speaker who pauses has finished
//!    speech  knowledge      text to speech; the material that an agent answers from
//!    session → sms  room    an agent's session and its text messages; participants' seats
//!    recording              what was heard and said in a talk, on disk
//! 2  engine  http           queue, scheduler, one thread per device  ⇐ models → cpu, cuda (kernels);
//!                           hyper plumbing
//! 1  asyncapi  audio  clock  digits  fetch  fields  figures  hub  identity  jwt  keys  onnx  outbound  patience  secret  share
//!    state  telemetry  transcript  usage      ground
//! ```
//!
//! # The path of a request
//!
//! bytes → [`audio`] (container, resample) → [`audio::Sound`] → [`vad`] spans →
//! [`engine::Window`] (≤ 30 s, exact offset) → [`engine`] (queue → encode → slot → steps) →
//! [`engine::Recognition`] → [`transcribe`] stitches a [`transcript::Transcript`], and [`speakers`] labels its words →
//! [`mod@format`] → `api::wire` → JSON.
//!
//! # Who may use whom
//!
//! | module     | may use |
//! |------------|---------|
//! | asyncapi   | |
//! | audio      | |
//! | transcript | |
//! | figures    | |
//! | clock      | |
//! | digits     | |
//! | fetch      | patience |
//! | fields     | |
//! | hub        | fetch |
//! | identity   | |
//! | onnx       | |
//! | outbound   | |
//! | patience   | |
//! | secret     | |
//! | share      | |
//! | state      | |
//! | jwt        | |
//! | keys       | clock, jwt, share, state |
//! | telemetry  | |
//! | usage      | clock, share, state, telemetry |
//! | vad        | audio, cpu |
//! | speakers   | audio, cpu, share, vad, transcript, telemetry |
//! | voices     | clock, speakers, state |
//! | engine     | audio, patience, share, transcript, telemetry |
//! | cpu        | |
//! | cuda       | |
//! | models     | engine, audio, transcript, cpu, cuda, hub |
//! | format     | digits, transcript |
//! | transcribe | audio, patience, share, speakers, vad, engine, transcript, telemetry |
//! | live       | audio, share, speakers, turn, vad, voices, engine, transcript, telemetry, usage |
//! | registry   | engine, live, patience, telemetry, transcribe |
//! | jobs       | clock, fetch, patience, share, state, telemetry |
//! | knowledge  | digits, fetch, share |
//! | turn       | audio, digits, onnx, vad |
//! | speech     | audio, onnx, outbound, patience, secret, share, telemetry |
//! | http       | keys, patience, share, state, telemetry, usage |
//! | api        | asyncapi, clock, http, jobs, live, registry, transcribe, engine, fetch, figures, format, keys, patience, share, speakers, speech, transcript, turn, voices, audio, telemetry, usage |
//! | session    | clock, digits, fields, knowledge, share, state, telemetry |
//! | sms        | clock, fetch, outbound, secret, session |
//! | room       | audio, clock, fields, figures, http, identity, jwt, outbound, patience, secret, speech |
//! | agent      | audio, digits, engine, fields, figures, identity, knowledge, onnx, outbound, patience, recording, room, secret, session, sms, speech, telemetry, turn, vad |
//! | recording  | audio, share, speech, state |
//! | sts        | agent, asyncapi, clock, fetch, fields, figures, http, identity, jobs, knowledge, onnx, patience, recording, room, session, share, sms, speech, turn, usage, vad |
//! | demo       | http, digits, identity, secret |
//! | console    | clock, engine, fetch, http, jobs, keys, registry, telemetry, usage |
//! | config     | api, audio, console, demo, engine, fetch, http, jobs, keys, live, models, speakers, speech, sts, telemetry, transcribe, usage, voices |
//! | app        | all |
//! | cli        | all |

mod agent;
pub mod api;
pub mod app;
pub mod asyncapi;
pub mod audio;
pub mod cli;
mod clock;
pub mod config;
pub mod console;
pub mod cpu;
pub mod cuda;
pub mod demo;
mod digits;
pub mod engine;
pub mod fetch;
mod fields;
pub mod figures;
pub mod format;
pub mod http;
pub mod hub;
mod identity;
pub mod jobs;
pub mod jwt;
pub mod keys;
mod knowledge;
pub mod live;
pub mod models;
pub mod onnx;
mod outbound;
pub mod patience;
pub mod recording;
pub mod registry;
mod room;
pub mod secret;
mod session;
pub mod share;
mod sms;
pub mod speakers;
pub mod speech;
pub mod state;
pub mod sts;
pub mod telemetry;
pub mod transcribe;
pub mod transcript;
pub mod turn;
pub mod usage;
pub mod vad;
pub mod voices;
