//! Recognition of utterances: an agent hands windows to the engine, as a live stream does.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::audio::SAMPLE_RATE;
use crate::engine::{
    Class, DecodingOptions, Engine, Error, LanguageChoice, TenantId, Term, WINDOW_SAMPLES, Window,
};
use crate::vad::{SURE_SPEECH, Utterance};

/// Recognises one utterance: its text, empty if nothing was said. The error is for the log.
pub type Recognize =
    Arc<dyn Fn(Utterance, Whose) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// The tenant of an utterance, and the terms that it expects there.
#[derive(Debug, Clone, Default)]
pub struct Whose {
    pub tenant: u64,
    pub terms: Arc<[Term]>,
}

/// A frame below this is silence. It is lower than where a turn ends: faint last syllables are kept.
const FAINT: f32 = 0.05;
/// Audio kept after the last frame that is not silence: 0.4 s, as in files and live streams.
const PAD_SAMPLES: usize = SAMPLE_RATE as usize * 2 / 5;

/// Recognises utterances with `engine`, ahead of whole files.
pub fn recognizer(engine: Engine, language: LanguageChoice) -> Recognize {
    Arc::new(move |utterance, whose| {
        let (engine, language) = (engine.clone(), language.clone());
        Box::pin(async move {
            let text = text(&engine, language, &utterance, whose).await;
            text.map_err(|error| error.to_string())
        })
    })
}

/// Windows one after the other, until all speech of the utterance is accounted for.
async fn text(
    engine: &Engine,
    language: LanguageChoice,
    utterance: &Utterance,
    Whose { tenant, terms }: Whose,
) -> Result<String, Error> {
    let tenant = TenantId(tenant);
    let pcm = utterance.pcm.slice(0..utterance.end(FAINT) + PAD_SAMPLES);
    let admission = engine.admit(tenant, pcm.duration_seconds())?;
    let mut options = DecodingOptions { language, bias: terms, ..DecodingOptions::default() };
    let mut text = String::new();
    let mut next = Some(0).filter(|_| !pcm.is_empty());
    while let Some(start) = next {
        let window = Window {
            pcm: pcm.slice(start..start + WINDOW_SAMPLES),
            options: options.clone(),
            class: Class::Live,
            tenant,
            deadline: None,
        };
        let recognition = engine.recognize(&admission, window).await?;
        admission.done(recognition.advance() as f64 / f64::from(SAMPLE_RATE));
        let rest =
            recognition.rest(pcm.len() - start, |rest| utterance.frames_after(start + rest, SURE_SPEECH));
        next = rest.map(|rest| start + rest);
        options.language = LanguageChoice::Named(recognition.language.code);
        text.extend(recognition.segments.into_iter().map(|segment| segment.text));
    }
    Ok(text.trim().to_owned())
}
