//! Checks of the models: files, recognition of a clip, the detector of speech, the voice, the model of turns.

use std::time::Instant;

use futures_util::TryStreamExt as _;

use super::check::Check;
use crate::api::{Parameters, language};
use crate::app;
use crate::audio::{self, DecodeOptions, Pcm, RateConverter, SAMPLE_RATE, Sound};
use crate::config::Config;
use crate::engine;
use crate::hub::{self, Verdict};
use crate::speech::{self, EmbeddedVoice, Manner, VOICE_RATE, Voice};
use crate::transcribe::{TranscribeOptions, Transcriber};
use crate::turn::{EndOfTurn, TurnModel};

/// Spoken by Kokoro (Apache-2.0), Opus in Ogg.
const CLIP: &[u8] = include_bytes!("clip.ogg");
const CLIP_TEXT: &str = "Our office is open from nine to five, and parking is free behind the building.";
const SENTENCE: &str = "Please call the office again tomorrow morning.";
/// The part of the words that recognition must find: small models and voices miss one.
const WORDS_FOUND_MIN: f64 = 0.7;
const FETCH: &str = "`verbatim models fetch NAME`";

/// The files of the served models, by their checksums.
pub async fn model(config: &Config) -> Check {
    const NAME: &str = "model";
    let (mut shown, mut unknown) = (Vec::new(), Vec::new());
    for (name, model) in config.models.served() {
        if model.starts_with(crate::models::SYNTHETIC) {
            shown.push(format!("{name} (random weights)"));
            continue;
        }
        let folder = match hub::folder(model, &config.model_dir) {
            Ok(folder) if hub::is_model(&folder) => folder,
            Ok(folder) => {
                let message = format!("{name} is not installed in {}", folder.display());
                return Check::failed(NAME, message, format!("`verbatim models fetch {name}`"));
            }
            Err(error) => {
                let message = format!("{:#}", anyhow::Error::new(error));
                return Check::failed(NAME, message, format!("set `models.model` to a folder, or {FETCH}"));
            }
        };
        let verdicts = match hub::verify(&folder).await {
            Ok(verdicts) => verdicts,
            Err(error) => {
                let message = format!("{name} cannot be read: {:#}", anyhow::Error::new(error));
                return Check::failed(NAME, message, "give the server's user `model_dir`");
            }
        };
        if let Some((file, verdict)) = verdicts.iter().find(|(_, verdict)| *verdict != Verdict::Right) {
            let what = if *verdict == Verdict::Missing { "missing" } else { "not the file that was fetched" };
            let mend = format!("remove {} and `verbatim models fetch {name}`", folder.display());
            return Check::failed(NAME, format!("{name}: {file} is {what}"), mend);
        }
        if verdicts.is_empty() {
            unknown.push(name.clone());
        }
        shown.push(format!("{name}, {} files checked", verdicts.len()));
    }
    match unknown.is_empty() {
        true => Check::ok(NAME, shown.join("; ")),
        false => Check::ok(
            NAME,
            format!("{}; no checksums are recorded of {}", shown.join("; "), unknown.join(", ")),
        ),
    }
}

/// Loads the model as the server does, and transcribes a clip that this program carries.
pub async fn transcription(config: &Config) -> (Check, Option<Transcriber>) {
    const NAME: &str = "transcription";
    let config = Config {
        engine: engine::Config { max_held_seconds: 600.0, ..config.engine.clone() },
        ..config.clone()
    };
    let begun = Instant::now();
    let transcriber = match app::transcriber(&config).await {
        Ok(transcriber) => transcriber,
        Err(error @ app::Error::Memory(_)) => {
            let message = format!("{error}; a running server holds memory too");
            return (Check::warning(NAME, message, "run the doctor while the server is stopped"), None);
        }
        Err(error) => {
            let message = format!("{:#}", anyhow::Error::new(error));
            return (Check::failed(NAME, message, "see `models.model`, `models.device` and `./setup`"), None);
        }
    };
    let loaded = begun.elapsed().as_secs_f64();
    let (begun, clip) = (Instant::now(), clip());
    let seconds = clip.as_ref().map_or(0.0, Sound::duration_seconds);
    let heard = match clip {
        Ok(clip) => hears(&transcriber, clip).await,
        Err(error) => Err(error),
    };
    let took = begun.elapsed().as_secs_f64();
    let check = match heard {
        Err(error) => Check::failed(NAME, format!("the clip failed: {error:#}"), "see the server's log"),
        Ok(text) if found(&text, CLIP_TEXT) < WORDS_FOUND_MIN => Check::failed(
            NAME,
            format!("the model heard {text:?} in a clip that says {CLIP_TEXT:?}"),
            format!("use another model (`models.model`), or fetch it again: {FETCH}"),
        ),
        Ok(_) => Check::ok(
            NAME,
            format!("right: {seconds:.1} s of speech in {took:.1} s, after {loaded:.1} s to load"),
        ),
    };
    (check, Some(transcriber))
}

fn clip() -> anyhow::Result<Sound> {
    let options = DecodeOptions { raw: None, split_channels: false, limits: audio::Limits::default() };
    let decoded = audio::decode(CLIP.into(), &options)?;
    decoded.channels.into_iter().next().ok_or_else(|| anyhow::anyhow!("no channel"))
}

async fn hears(transcriber: &Transcriber, sound: Sound) -> anyhow::Result<String> {
    let english = Parameters { language: Some("en".into()), ..Parameters::default() };
    // A model without English hears what it can.
    let language = language::choice(&english, transcriber.model())
        .or_else(|_| language::choice(&Parameters::default(), transcriber.model()))?;
    let options = TranscribeOptions::new(language);
    Ok(transcriber.transcribe(sound, &options).await?.text())
}

/// The part of the words of `said` that are in `heard`.
fn found(heard: &str, said: &str) -> f64 {
    let words = |text: &str| {
        let kept: String =
            text.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
        // Recognition writes numbers either way.
        let kept = kept.replace("nine", "9").replace("five", "5");
        kept.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let (heard, said) = (words(heard), words(said));
    let there = said.iter().filter(|word| heard.contains(word)).count();
    there as f64 / said.len().max(1) as f64
}

/// Agents hear nothing without the detector, however files are transcribed.
pub fn detector(config: &Config) -> Check {
    const NAME: &str = "speech detector";
    match app::detector(config) {
        Ok(_) => Check::ok(NAME, "Silero VAD loads"),
        Err(error) => {
            let message = format!("it does not load: {:#}", anyhow::Error::new(error));
            Check::failed(NAME, message, "`./setup` installs it in `model_dir`")
        }
    }
}

/// Speaks a sentence, and has it recognised.
pub async fn voice(config: &Config, transcriber: Option<&Transcriber>) -> Check {
    const NAME: &str = "voice";
    const MEND: &str = "`./setup voice`, install flite, or set `sts.speech`";
    let endpoint = config.sts.speech.base_url.is_some();
    // Alone, so that no other voice hides its failure.
    let embedded = if endpoint { EmbeddedVoice::None } else { config.sts.speech.embedded };
    let (speech, models) =
        (speech::Config { embedded, ..config.sts.speech.clone() }, config.model_dir.clone());
    let opened = tokio::task::spawn_blocking(move || Voice::open(&speech, &models)).await;
    let voice = match opened {
        Ok(Ok(voice)) => voice,
        Ok(Err(error)) => return Check::failed(NAME, format!("{:#}", anyhow::Error::new(error)), MEND),
        Err(error) => return Check::failed(NAME, error.to_string(), MEND),
    };
    let name = voice.name();
    if name == "none" {
        return Check::warning(NAME, "there is none: agents only write, and `/v1/speak` is refused", MEND);
    }
    let begun = Instant::now();
    let parts = voice.speak(SENTENCE, &Manner::default()).try_collect::<Vec<_>>().await;
    let samples: Vec<f32> = parts.unwrap_or_default().into_iter().flat_map(|part| part.samples).collect();
    let took = begun.elapsed().as_secs_f64();
    if samples.is_empty() {
        let mend = if endpoint { "see `sts.speech.base_url`, `api_key`, `model` and `voice`" } else { MEND };
        return Check::failed(NAME, format!("{name} said nothing"), mend);
    }
    let seconds = samples.len() as f64 / f64::from(VOICE_RATE);
    let spoken = format!("{name}: {seconds:.1} s of speech in {took:.1} s");
    let Some(transcriber) = transcriber else { return Check::ok(NAME, format!("{spoken}, not transcribed")) };
    let heard = match resampled(&samples) {
        Ok(pcm) => hears(transcriber, pcm.into()).await,
        Err(error) => Err(error.into()),
    };
    match heard {
        Err(error) => Check::warning(
            NAME,
            format!("{spoken}; recognition failed: {error:#}"),
            "see the line of the transcription",
        ),
        Ok(text) if found(&text, SENTENCE) < WORDS_FOUND_MIN => {
            let message = format!("{spoken}; of {SENTENCE:?} recognition heard {text:?}");
            Check::warning(NAME, message, "use another voice: `sts.speech.embedded_voice`")
        }
        Ok(_) => Check::ok(NAME, format!("{spoken}, understood")),
    }
}

fn resampled(samples: &[f32]) -> Result<Pcm, audio::Error> {
    let mut converter = RateConverter::new(VOICE_RATE, SAMPLE_RATE)?;
    let mut pcm = converter.push(samples);
    pcm.extend(converter.finish());
    Ok(Pcm::new(pcm))
}

pub async fn turn_model(config: &Config) -> Check {
    const NAME: &str = "turn model";
    const MEND: &str = "`./setup smart-turn`, or set `sts.turn.end_of_turn` to `silence`";
    let turn = &config.sts.turn;
    if turn.end_of_turn == EndOfTurn::Silence {
        return Check::ok(NAME, format!("not used: {} ms of silence end a turn", turn.silence_ms));
    }
    let (wanted, models) = (turn.end_of_turn, config.model_dir.clone());
    let opened = tokio::task::spawn_blocking(move || TurnModel::open(wanted, &models, 1)).await;
    let model = match opened {
        Ok(Ok(Some(model))) => model,
        Ok(Ok(None)) => {
            let message = format!("not installed: {} ms of silence end a turn", turn.silence_ms);
            return Check::warning(NAME, message, MEND);
        }
        Ok(Err(error)) => return Check::failed(NAME, format!("{:#}", anyhow::Error::new(error)), MEND),
        Err(error) => return Check::failed(NAME, error.to_string(), MEND),
    };
    let Ok(clip) = clip() else { return Check::failed(NAME, "the clip cannot be read", MEND) };
    match model.probability(clip.pcm(..)).await {
        Some(probability) => {
            Check::ok(NAME, format!("a whole sentence is complete by {:.0}%", f64::from(probability) * 100.0))
        }
        None => Check::failed(NAME, "it loads, and judges nothing", MEND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_however_numbers_are_written() {
        assert!(
            found("Our office is open from 9 to 5 and parking is free behind the building", CLIP_TEXT) > 0.99
        );
        assert!(found("Thank you.", CLIP_TEXT) < 0.1);
        assert!(clip().is_ok_and(|clip| (2.0..10.0).contains(&clip.duration_seconds())));
    }
}
