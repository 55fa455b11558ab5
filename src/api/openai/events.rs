//! `stream=true`: the text as server-sent events, as each window of the audio becomes final.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, pending, try_join};
use futures_util::{FutureExt as _, Stream, stream};
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::decode::{Admitted, Fetched, Origin, decode};
use super::super::readiness::Active;
use super::super::services::Services;
use super::super::transcription::Wanted;
use super::answer::{diarized, done, log_probabilities};
use super::error::{body, of_file};
use super::known_speakers;
use super::request::Asked;
use super::wire::Event;
use crate::audio::DecodeOptions;
use crate::engine;
use crate::http::{Failure, Response, streamed};
use crate::patience::by;
use crate::telemetry::metrics;
use crate::transcript::Segment;
use crate::usage::Ending;
use crate::voices::Voice;

const EVENTS: &str = "text/event-stream; charset=utf-8";

/// Decodes and admits the file, then answers with events: `transcript.text.delta` for each segment,
/// `transcript.text.segment` for each turn if speakers are wanted, which are known at the end, and `transcript.text.done`.
/// Later failures are an event with an `error`. The work ends when the client disconnects.
///
/// # Errors
/// Those of [`decode`].
pub async fn stream(
    services: Arc<Services>,
    asked: Asked,
    (wanted, voices): (Wanted, Vec<Voice>),
    (origin, active): (Origin, Active),
    file: Fetched,
) -> Result<Response, Failure> {
    let decode_options =
        DecodeOptions { raw: wanted.raw, split_channels: false, limits: services.audio.clone() };
    let whose = (wanted.options.tenant, wanted.options.deadline);
    let engine = wanted.model.transcriber().engine();
    let admitted =
        decode((&services, engine), file, decode_options, whose, &origin).await.map_err(of_file)?;
    admitted.log(engine.model());
    // Bounded by the text of one file.
    let (sender, receiver) = unbounded_channel();
    let mut ending = Ending::of_current();
    let work = async move {
        let _held = (origin, active);
        let recognised =
            AssertUnwindSafe(recognise(&services, &asked, (&wanted, &voices), admitted, &sender));
        let result = recognised.catch_unwind().await;
        let result = result.unwrap_or_else(|_| Err(Failure::internal("the transcription panicked")));
        match result {
            Ok(()) => ending.complete(),
            Err(failure) => {
                let status = failure.status().as_u16();
                tracing::info!(status, code = failure.code(), "a stream of events failed");
                send(&sender, &body(&failure, None));
                ending.broke_off(status);
            }
        }
    };
    Ok(streamed(EVENTS, pieces(receiver, work.boxed())))
}

/// The pieces that `work` sends. It runs while the stream is polled.
fn pieces(
    receiver: UnboundedReceiver<Bytes>,
    work: BoxFuture<'static, ()>,
) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((receiver, Some(work)), |(mut receiver, mut work)| async move {
        loop {
            let working = async {
                match &mut work {
                    Some(work) => work.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                piece = receiver.recv() => return piece.map(|piece| (piece, (receiver, work))),
                // With it goes the sender.
                () = working => work = None,
            }
        }
    })
}

async fn recognise(
    services: &Services,
    asked: &Asked,
    (wanted, voices): (&Wanted, &[Voice]),
    admitted: Admitted,
    sender: &UnboundedSender<Bytes>,
) -> Result<(), Failure> {
    let Admitted { decoded, admission, .. } = admitted;
    let sound = decoded.channels.first().ok_or_else(|| Failure::internal("a file without a channel"))?;
    let mut is_first = true;
    let mut deliver = |segments: &[Segment]| {
        for segment in segments {
            let text = if is_first { segment.text.trim_start() } else { &segment.text };
            if !text.is_empty() {
                is_first = false;
                let logprobs =
                    asked.log_probabilities.then(|| log_probabilities(std::slice::from_ref(segment)));
                send(sender, &Event::Delta { delta: text.to_owned(), logprobs });
            }
        }
    };
    let options = &wanted.options;
    let words = wanted.model.transcriber().transcribe_streamed(sound, &admission, options, &mut deliver);
    let speakers = async {
        let Some((diarizer, asked)) = services.diarizer.as_ref().zip(wanted.speakers) else {
            return Ok(None);
        };
        let diarizer = diarizer.for_tenant(options.tenant.0);
        let found = by(options.deadline, diarizer.diarize(sound, &asked)).await;
        let found = found.ok_or(engine::Error::DeadlineExceeded)?;
        metrics::DIARIZED.with(&[]).increment(sound.duration_seconds() as u64);
        found.map(Some).map_err(|error| engine::Error::ModelFailed(error.to_string()))
    };
    let (mut transcript, speakers) = try_join(words, speakers).await?;
    if let Some(speakers) = speakers {
        speakers.label(transcript.segments.iter_mut().flat_map(|segment| &mut segment.words));
        for segment in diarized(&transcript, &known_speakers::names(voices, &speakers)) {
            send(sender, &segment);
        }
    }
    send(sender, &done(asked, &transcript, decoded.damaged));
    Ok(())
}

/// One event (WHATWG HTML, section 9.2). JSON has no line breaks.
fn send(sender: &UnboundedSender<Bytes>, event: &impl Serialize) {
    let Ok(json) = serde_json::to_string(event) else { return };
    // Fails if the client has left.
    let _ = sender.send(Bytes::from(format!("data: {json}\n\n")));
}
