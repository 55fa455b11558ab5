//! Decodes a file's audio, as work like any other: admitted by its header, in turn, and only as long as it is
//! wanted.

use std::time::Instant;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::services::Services;
use crate::audio::{self, DecodeOptions, Decoded, Progress, SAMPLE_RATE};
use crate::engine::{self, Audio, AudioPermit, Class, Engine, ModelInfo, RequestPermit, TenantId};
use crate::http::Failure;
use crate::jobs::Watch;
use crate::patience::{Deadline, by};
use crate::usage::{self, Work};

/// A file in memory, and the permits for that memory; both are dropped together.
pub(super) struct Fetched {
    pub bytes: Bytes,
    pub held: Box<dyn Send>,
}

/// Where work comes from.
pub(super) enum Origin {
    /// A request whose client waits for the answer; the permit admits its audio.
    Request(RequestPermit),
    /// A job; the watch is kept over the decoding.
    Job(Watch),
}

impl Origin {
    pub(super) fn class(&self) -> Class {
        match self {
            Self::Request(_) => Class::Interactive,
            Self::Job(_) => Class::Job,
        }
    }
}

/// A file's audio, admitted for transcription.
pub(super) struct Admitted {
    pub decoded: Decoded,
    /// The file's hash.
    pub sha256: [u8; 32],
    pub admission: AudioPermit,
}

/// Decodes a file for `tenant` on a thread. The file is admitted by `engine` first, by the length in its header, and decoding stops if
/// it turns out longer than there is room for. Dropping the future stops the work within a second of audio.
/// A job's watch is held while the thread works.
///
/// # Errors
/// Those of [`audio::decode`], [`audio::estimate`] and [`engine::Engine::admit`]; 504 past the deadline.
pub(super) async fn decode(
    (services, engine): (&Services, &Engine),
    file: Fetched,
    options: DecodeOptions,
    (tenant, deadline): (TenantId, Option<Deadline>),
    origin: &Origin,
) -> Result<Admitted, Failure> {
    let expected = audio::estimate(&file.bytes, &options)?;
    let expected = Audio {
        seconds: expected.output_seconds(options.split_channels),
        source_samples: expected.source_samples(),
    };
    let admission = match origin {
        Origin::Request(permit) => engine.admit_request(permit, expected)?,
        Origin::Job(_) => engine.admit_job(tenant, expected).await,
    };
    let turn = by(deadline, services.decoders.take(tenant.0)).await;
    let turn = turn.ok_or(engine::Error::DeadlineExceeded)?;
    let left = CancellationToken::new();
    let _leaves = left.clone().drop_guard();
    let work = move || {
        let Fetched { bytes, held } = file;
        let (_turn, _held) = (turn, held);
        let sha256 = Sha256::digest(&bytes).into();
        let (begun, mut done, mut refused) = (Instant::now(), Progress::default(), None);
        let decoded = audio::decode_within(bytes, &options, &mut |progress: Progress| {
            done = progress;
            let room = match () {
                () if left.is_cancelled() => Err(engine::Error::ShuttingDown),
                () if deadline.is_some_and(|deadline| deadline.has_passed(Instant::now())) => {
                    Err(engine::Error::DeadlineExceeded)
                }
                () => admission.grow(progress.output_samples as f64 / f64::from(SAMPLE_RATE)),
            };
            room.map_err(|error| {
                refused = Some(error);
                audio::Error::Stopped
            })
        });
        if let Some(refused) = refused {
            return Err(Failure::from(refused));
        }
        let decoded = decoded?;
        let seconds = done.output_samples as f64 / f64::from(SAMPLE_RATE);
        admission.decoded(seconds, done.source_samples as f64, begun.elapsed());
        Ok(Admitted { decoded, sha256, admission })
    };
    // The thread starts when this is first awaited, which is under the watch.
    let decoding = async { tokio::task::spawn_blocking(work).await };
    let decoded = match origin {
        Origin::Request(_) => decoding.await,
        Origin::Job(watch) => watch.over(decoding).await,
    };
    decoded.map_err(Failure::internal)?
}

impl Admitted {
    /// Notes in the log of requests that this is the audio of the request.
    pub(super) fn log(&self, model: &ModelInfo) {
        usage::worked(Work {
            audio_seconds: self.decoded.duration_seconds,
            channels: u32::try_from(self.decoded.channels.len()).unwrap_or(u32::MAX),
            model: Some(usage::Model { id: model.uuid, name: model.name.clone() }),
            ..Work::default()
        });
    }
}
