//! `verbatim voices …`: enrolled voices of the state directory, with or without a running server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use uuid::Uuid;

use super::output::{complain, note, print, state_dir};
use super::{input, transcribe};
use crate::audio::{self, DecodeOptions, Limits};
use crate::clock::rfc3339;
use crate::config::Config;
use crate::keys;
use crate::speakers::Options;
use crate::voices::{CLIP_SECONDS_MAX, Voices, enrolled};

#[derive(Subcommand)]
pub enum Command {
    /// Enrol the voice of a clip under a name.
    ///
    /// The clip lasts up to two minutes and holds at least 3 s of speech, all of one person. It is not kept.
    Add {
        /// 1 to 100 printable characters, used once in the organisation.
        name: String,
        /// An audio file; `-` is standard input.
        clip: PathBuf,
        /// The organisation in whose transcripts the voice has its name, as `verbatim keys list` shows it. May be left
        /// out if all keys belong to one.
        #[arg(long, value_name = "ID")]
        organisation: Option<u64>,
    },
    /// List voices; only their names are shown.
    List {
        /// Those of one organisation.
        #[arg(long, value_name = "ID")]
        organisation: Option<u64>,
    },
    /// Delete voices, from the disk and from a running server.
    Remove {
        /// As `list` shows them.
        #[arg(required = true)]
        ids: Vec<Uuid>,
    },
}

pub async fn run(config: &Config, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Add { name, clip, organisation } => {
            let organisation = chosen(config, organisation)?;
            let voices = Voices::open(&config.state_dir, &config.voices)?;
            // Before the networks are loaded.
            let name = voices.check(organisation, &name)?;
            input::check(&clip).with_context(|| clip.display().to_string())?;
            let embedding = embedding(config, &clip).await.with_context(|| clip.display().to_string())?;
            let voice = voices.add(organisation, &name, embedding)?;
            print(&format!("{}\n", voice.id))?;
            note(&format!(
                "{:?} is enrolled for organisation {organisation}, in {}.",
                name,
                state_dir(config)
            ));
        }
        Command::List { organisation } => {
            let voices = Voices::open(&config.state_dir, &config.voices)?;
            let mut lines = format!("{:<36}  {:<24}  {:<20}  NAME\n", "ID", "CREATED", "ORGANISATION");
            for of in
                voices.organisations().into_iter().filter(|of| organisation.is_none_or(|one| one == *of))
            {
                for voice in voices.of(of).iter() {
                    let created = rfc3339(voice.created);
                    lines += &format!("{}  {created}  {of:<20}  {}\n", voice.id, voice.name);
                }
            }
            print(&lines)?;
        }
        Command::Remove { ids } => {
            let voices = Voices::open(&config.state_dir, &config.voices)?;
            let mut code = ExitCode::SUCCESS;
            for id in ids {
                let owner = |of: &u64| voices.of(*of).iter().any(|voice| voice.id == id);
                match voices.organisations().into_iter().find(owner) {
                    Some(of) if voices.remove(of, id)? => note(&format!("The voice {id} is deleted.")),
                    _ => {
                        complain(&format!("there is no voice {id}; see `verbatim voices list`"));
                        code = ExitCode::FAILURE;
                    }
                }
            }
            return Ok(code);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The organisation asked for, or the only one that has valid keys.
fn chosen(config: &Config, asked: Option<u64>) -> anyhow::Result<u64> {
    let now = SystemTime::now();
    let keys = keys::Store::open(&config.state_dir)?.list()?;
    let active = keys.iter().filter(|key| key.is_active(now) && !key.is_operator);
    let mut known: Vec<u64> = active.map(|key| key.tenant).collect();
    known.sort_unstable();
    known.dedup();
    match (asked, known.as_slice()) {
        (Some(asked), known) if known.contains(&asked) => Ok(asked),
        (Some(_), _) => Err(keys::Error::Organisation.into()),
        (None, [only]) => Ok(*only),
        (None, []) => bail!("no organisation has a key yet; `verbatim keys create` makes one"),
        (None, _) => {
            bail!("several organisations have keys: choose by --organisation; see `verbatim keys list`")
        }
    }
}

/// The embedding of a clip's speaker.
async fn embedding(config: &Config, clip: &Path) -> anyhow::Result<Vec<f32>> {
    let diarizer = transcribe::diarizer(config).await?;
    let limits =
        Limits { max_seconds: config.audio.max_seconds.min(CLIP_SECONDS_MAX), ..config.audio.clone() };
    let options = DecodeOptions { raw: None, split_channels: false, limits };
    let path = clip.to_owned();
    let decode = move || anyhow::Ok(audio::decode(input::read(&path)?.into(), &options)?);
    let decoded = tokio::task::spawn_blocking(decode).await??;
    let sound = decoded.channels.into_iter().next().context("no audio")?;
    Ok(enrolled(&diarizer.diarize(&sound, &Options::default()).await?)?)
}
