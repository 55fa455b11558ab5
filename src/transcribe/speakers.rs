//! The speakers of whole files, found while their words are recognised.

use std::sync::Arc;

use futures_util::future::try_join;

use super::{TranscribeOptions, Transcriber};
use crate::audio::Sound;
use crate::engine::{AudioPermit, Error};
use crate::patience::by;
use crate::speakers::{self, Diarization, Diarizer};
use crate::telemetry::metrics;
use crate::transcript::Transcript;

impl Transcriber {
    /// As [`Self::transcribe_all`], and labels the words with their speakers, of which `asked` says how many there may
    /// be. Each channel has speakers of its own, numbered from 0. Dropping the future ends all work.
    ///
    /// # Errors
    /// Those of [`Self::transcribe_all`] and of [`Diarizer::diarize`], and [`Error::DeadlineExceeded`] if the speakers
    /// aren't known by then. There are no partial results.
    pub async fn transcribe_speakers(
        &self,
        channels: Vec<Sound>,
        admission: AudioPermit,
        options: &TranscribeOptions,
        (diarizer, asked): (&Diarizer, &speakers::Options),
    ) -> Result<Vec<(Transcript, Diarization)>, Error> {
        // Dropped before the admission, in which its memory is counted.
        let channels: Arc<[Sound]> = channels.into();
        let speakers = async {
            let diarizer = diarizer.for_tenant(options.tenant.0);
            let found = by(options.deadline, diarize(&diarizer, &channels, asked)).await;
            found.ok_or(Error::DeadlineExceeded)?
        };
        let words = self.recognise(&channels, &admission, options);
        let (mut transcripts, speakers) = try_join(words, speakers).await?;
        for (transcript, speakers) in transcripts.iter_mut().zip(&speakers) {
            speakers.label(transcript.segments.iter_mut().flat_map(|segment| &mut segment.words));
        }
        Ok(transcripts.into_iter().zip(speakers).collect())
    }
}

/// One channel after the other, so that a file of many channels takes up no more memory than one of a single one.
async fn diarize(
    diarizer: &Diarizer,
    channels: &[Sound],
    asked: &speakers::Options,
) -> Result<Vec<Diarization>, Error> {
    let mut found = Vec::with_capacity(channels.len());
    for sound in channels {
        found.push(
            diarizer.diarize(sound, asked).await.map_err(|error| Error::ModelFailed(error.to_string()))?,
        );
        metrics::DIARIZED.with(&[]).increment(sound.duration_seconds() as u64);
    }
    Ok(found)
}
