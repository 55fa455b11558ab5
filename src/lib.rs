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
//! Imports go down only; `tests/architecture.rs` reads the table below and checks it.
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
//! [`engine::Recognition`] → [`transcribe`] stitches a [`transcript::Transcript`] → [`format`] →
//! `api::wire` → JSON.
//!
//! # Circles that stay
//!
//! Files of one module import each other in a circle only where a row says why.
//!
//! | files | why |
//! |-------|-----|
//! | api/decode.rs, api/health.rs, api/jobs.rs, api/listen.rs, api/live/mod.rs, api/mod.rs, api/openapi.rs | the endpoints share `Services`, and `mod.rs` both defines it and routes to them; a request with a callback is a request first |
//! | api/parameters.rs, api/parameters/table.rs, api/parameters/values.rs | a value is read into the type of its parameter, and refused with the error of all parameters |
//! | audio/budget.rs, audio/container.rs, audio/decode.rs, audio/gather.rs, audio/opus.rs, audio/raw.rs, audio/resample.rs, audio/speech/amr.rs, audio/speech/g729.rs, audio/speech/mod.rs, audio/speech/speex.rs, audio/wave.rs | decoders fail with one `Error` and gather into one sound: to be opened |
//! | audio/stream.rs, audio/stream/reading.rs | a stream and the thread that reads it are two ends of one channel |
//! | cpu/encoder_attention.rs, cpu/encoder_attention/avx512.rs | one interface with a kernel per processor behind it, on the types of that interface |
//! | cpu/matrix.rs, cpu/matrix/tile.rs, cpu/matrix/tile/avx512.rs | one interface with kernels per processor behind it, on the types of that interface |
//! | engine/fairness.rs, engine/lane.rs, engine/load.rs, engine/load/tickets.rs, engine/meters.rs, engine/mod.rs, engine/model.rs, engine/queue.rs, engine/watch.rs, engine/worker.rs | `Engine` is the handle on the parts, which fail with its `Error` |
//! | fetch/download.rs, fetch/send.rs | a message leaves through the client and the policy of downloads; both hide the user of a URL |
//! | format/captions/atoms.rs, format/captions/layout.rs | atoms are measured in the columns of a line, lines are laid out of atoms |
//! | format/english/amounts.rs, format/english/mod.rs, format/english/ranges.rs | the rules of a language choose which passes run; ranges are of amounts |
//! | format/english/numbers.rs, format/english/spoken.rs | a number is made of spoken digits, and digits end where a number begins |
//! | format/redact.rs, format/redact/evidence.rs, format/redact/rows.rs | rows of digits and the evidence about them decide together, by class |
//! | http/authority.rs, http/body.rs, http/connection.rs, http/cors.rs, http/failure.rs, http/linger.rs, http/mod.rs, http/router.rs, http/service.rs, http/websocket/mod.rs | a failure is a response, and everything that refuses makes one |
//! | jobs/attempt.rs, jobs/delivery.rs, jobs/keeper.rs, jobs/mod.rs, jobs/quarantine.rs, jobs/runner.rs, jobs/spool.rs, jobs/sqlite.rs, jobs/sqlite/line.rs, jobs/sqlite/rows.rs, jobs/store.rs, jobs/watch.rs | the tasks share what `Jobs` holds and fail with its `Error` |
//! | live/channel.rs, live/mod.rs, live/session.rs, live/utterance.rs | `Live` opens sessions, whose channels make its events |
//! | models/mod.rs, models/weights/ctranslate2.rs, models/weights/mod.rs, models/weights/random.rs, models/weights/safetensors.rs, models/whisper/bias/mod.rs, models/whisper/bias/search.rs, models/whisper/decoder/audio_cache.rs, models/whisper/decoder/device.rs, models/whisper/decoder/device/network.rs, models/whisper/decoder/host.rs, models/whisper/decoder/mod.rs, models/whisper/decoder/torch.rs, models/whisper/encoder/host.rs, models/whisper/encoder/mod.rs, models/whisper/encoder/torch.rs, models/whisper/features/device.rs, models/whisper/host.rs, models/whisper/layers.rs, models/whisper/mod.rs, models/whisper/rules.rs, models/whisper/sequence.rs, models/whisper/synthetic.rs, models/whisper/timing.rs, models/whisper/tokenizer.rs | all fail with one `Error` of `mod.rs`, and backends know each other: to be opened |
//! | models/hub/download.rs, models/hub/mod.rs, models/hub/packages.rs, models/hub/sums.rs | a file is fetched from the hub or from the package index, under the errors of both |
//! | sts/action.rs, sts/agent/chat.rs, sts/agent/mod.rs, sts/agent/reply.rs, sts/agent/responder.rs, sts/endpoint.rs, sts/event.rs, sts/failure.rs, sts/fields.rs, sts/held.rs, sts/knowledge/library.rs, sts/mod.rs, sts/remains.rs, sts/room/livekit/data.rs, sts/room/livekit/mod.rs, sts/room/livekit/participant.rs, sts/room/livekit/participant/callers.rs, sts/room/livekit/signal.rs, sts/room/livekit/sound.rs, sts/room/media.rs, sts/room/mod.rs, sts/room/no_livekit.rs, sts/room/phone.rs, sts/room/websocket.rs, sts/room/wire.rs, sts/session.rs, sts/sessions.rs, sts/sessions/kept.rs, sts/sessions/live.rs, sts/setup.rs, sts/sms.rs, sts/snapshot.rs, sts/store.rs, sts/store/schema.rs, sts/twilio.rs, sts/verify.rs | session, room and agent hold each other: to be opened |
//! | sts/knowledge/html.rs, sts/knowledge/table.rs | cells of a table are read as the text around it is |
//! | sts/voice/kokoro.rs, sts/voice/mod.rs, sts/voice/phonemes.rs, sts/voice/program.rs | voices fail with the error of all of them; phonemes may come from another program |
//! | transcribe/mod.rs, transcribe/speech.rs | finding speech is a step of the recipe, by the recipe's options |
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
//! | jobs       | fetch, share, state |
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
