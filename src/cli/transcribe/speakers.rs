//! The flags that ask for speakers.

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::app;
use crate::cli::input;
use crate::config::Config;
use crate::speakers::{Diarizer, Options};

#[derive(Args)]
#[command(next_help_heading = "Speakers")]
pub struct SpeakerFlags {
    /// Tell speakers apart: text and captions name them, JSON has their turns. `--format rttm` implies it.
    #[arg(long)]
    diarize: bool,
    /// The number of speakers.
    #[arg(long, value_name = "N", value_parser = input::count)]
    speakers: Option<usize>,
    /// The least number of speakers.
    #[arg(long, value_name = "N", value_parser = input::count)]
    min_speakers: Option<usize>,
    /// The greatest number of speakers.
    #[arg(long, value_name = "N", value_parser = input::count)]
    max_speakers: Option<usize>,
}

impl SpeakerFlags {
    /// Limits on the number of speakers; `None`: no diarization.
    ///
    /// # Errors
    /// Numbers that contradict each other, or that have no effect.
    pub fn asked(&self, implied: bool) -> anyhow::Result<Option<Options>> {
        let Self { diarize, speakers, min_speakers, max_speakers } = *self;
        let asked = Options { min_speakers, max_speakers, speakers_expected: speakers };
        let are_ordered =
            |low: Option<usize>, high: Option<usize>| low.zip(high).is_none_or(|(low, high)| low <= high);
        ensure!(
            diarize || implied || asked == Options::default(),
            "a number of speakers has an effect with --diarize only"
        );
        ensure!(are_ordered(min_speakers, max_speakers), "--min-speakers is greater than --max-speakers");
        ensure!(are_ordered(min_speakers, speakers), "--min-speakers is greater than --speakers");
        ensure!(are_ordered(speakers, max_speakers), "--speakers is greater than --max-speakers");
        Ok((diarize || implied).then_some(asked))
    }
}

/// # Errors
/// There are no models, or they can't be loaded.
pub async fn diarizer(config: &Config) -> anyhow::Result<Diarizer> {
    let none = "there are no speaker models, or speakers.models = \"off\": `./setup speakers` brings them";
    app::diarizer(config, app::vad(config)?).await?.context(none)
}
