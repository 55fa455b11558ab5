//! Kokoro (82M parameters, int8): phonemes to speech at [`VOICE_RATE`].
//!
//! Source of the model's form: `hexgrad/kokoro` (`KPipeline.infer`, `KModel.forward`; Apache-2.0), and its
//! `config.json` for the symbols.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use misaki_rs::Language;
use tokio::sync::OnceCell;

use super::error::VoiceError;
use super::phonemes::Phonemes;
use super::wav::VOICE_RATE;
use crate::onnx::{self, Input, Session, Worker};

const FOLDER: &str = "kokoro";
const FILE: &str = "kokoro/model.onnx";
/// Compute threads: fewer would delay sentences, more would slow the engine down.
const THREADS: usize = 2;
/// A voice holds one style per input length, up to the model's longest input in symbols.
const STYLES: usize = 510;
const STYLE_VALUES: usize = 256;
/// Symbols per run: longer inputs sound hurried, and their first sound comes late.
const SYMBOLS_MAX: usize = 300;
/// Quieter samples at either end are the model's silence.
const SILENCE: f32 = 0.01;
const LEAD: usize = VOICE_RATE as usize * 3 / 100;
const TAIL: usize = VOICE_RATE as usize * 18 / 100;

/// The model's symbols and their numbers.
#[rustfmt::skip]
const SYMBOLS: &[(char, i64)] = &[
    (';', 1), (':', 2), (',', 3), ('.', 4), ('!', 5), ('?', 6), ('—', 9), ('…', 10), ('"', 11), ('(', 12),
    (')', 13), ('“', 14), ('”', 15), (' ', 16), ('\u{303}', 17), ('ʣ', 18), ('ʥ', 19), ('ʦ', 20), ('ʨ', 21),
    ('ᵝ', 22), ('ꭧ', 23), ('A', 24), ('I', 25), ('O', 31), ('Q', 33), ('S', 35), ('T', 36), ('W', 39),
    ('Y', 41), ('ᵊ', 42), ('a', 43), ('b', 44), ('c', 45), ('d', 46), ('e', 47), ('f', 48), ('h', 50),
    ('i', 51), ('j', 52), ('k', 53), ('l', 54), ('m', 55), ('n', 56), ('o', 57), ('p', 58), ('q', 59),
    ('r', 60), ('s', 61), ('t', 62), ('u', 63), ('v', 64), ('w', 65), ('x', 66), ('y', 67), ('z', 68),
    ('ɑ', 69), ('ɐ', 70), ('ɒ', 71), ('æ', 72), ('β', 75), ('ɔ', 76), ('ɕ', 77), ('ç', 78), ('ɖ', 80),
    ('ð', 81), ('ʤ', 82), ('ə', 83), ('ɚ', 85), ('ɛ', 86), ('ɜ', 87), ('ɟ', 90), ('ɡ', 92), ('ɥ', 99),
    ('ɨ', 101), ('ɪ', 102), ('ʝ', 103), ('ɯ', 110), ('ɰ', 111), ('ŋ', 112), ('ɳ', 113), ('ɲ', 114),
    ('ɴ', 115), ('ø', 116), ('ɸ', 118), ('θ', 119), ('œ', 120), ('ɹ', 123), ('ɾ', 125), ('ɻ', 126),
    ('ʁ', 128), ('ɽ', 129), ('ʂ', 130), ('ʃ', 131), ('ʈ', 132), ('ʧ', 133), ('ʊ', 135), ('ʋ', 136),
    ('ʌ', 138), ('ɣ', 139), ('ɤ', 140), ('χ', 142), ('ʎ', 143), ('ʒ', 147), ('ʔ', 148), ('ˈ', 156),
    ('ˌ', 157), ('ː', 158), ('ʰ', 162), ('ʲ', 164), ('↓', 169), ('→', 171), ('↗', 172), ('↘', 173),
    ('ᵻ', 177),
];

/// Loads the model when it first speaks, so that a server that only transcribes does not hold it.
pub struct Kokoro {
    worker: Worker<Line, Option<Vec<f32>>>,
    /// The voice that the configuration names.
    voice: Arc<str>,
    /// All voices in the model's folder that speak English, in order of name.
    voices: Vec<String>,
    loaded: OnceCell<()>,
}

/// Something to say: in which voice, and how fast.
struct Line {
    text: String,
    voice: Arc<str>,
    speed: f32,
}

impl Kokoro {
    /// Checks that all files exist. `voice` is a file in the model's folder, such as `af_heart`; its first letter
    /// is the accent.
    ///
    /// # Errors
    /// [`VoiceError`].
    pub fn open(models: &Path, voice: &str) -> Result<Self, VoiceError> {
        if !is_name(voice) {
            return Err(VoiceError::Name(voice.to_owned()));
        }
        let (folder, name) = (models.join(FOLDER), voice.to_owned());
        let models = models.to_owned();
        let load = move || {
            let styles = HashMap::from([(name.clone(), read_styles(&models, &name)?)]);
            let file = models.join(FILE);
            File::open(&file).map_err(|source| VoiceError::Unreadable { path: file, source })?;
            onnx::open_runtime(&models)?;
            let mut speaker = Speaker { models, styles, session: None, phonemes: HashMap::new() };
            Ok::<_, VoiceError>(move |line: Line| speaker.speak(&line))
        };
        let worker = Worker::start("kokoro", load)?;
        Ok(Self { worker, voice: voice.into(), voices: installed(&folder), loaded: OnceCell::new() })
    }

    /// The voice that the configuration names.
    pub fn voice(&self) -> &str {
        &self.voice
    }

    /// All voices in the model's folder that speak English.
    pub fn voices(&self) -> &[String] {
        &self.voices
    }

    /// Loads the model the first time it is called.
    pub async fn prepare(&self) {
        let nothing = || async { drop(self.worker.ask(self.line(String::new(), None, 1.0)).await) };
        self.loaded.get_or_init(nothing).await;
    }

    /// Speaks `text` in the voice of this name, or else in the configured one; none if the model cannot say it.
    /// `speed` multiplies the pace.
    pub async fn speak(&self, text: String, voice: Option<&str>, speed: f32) -> Option<Vec<f32>> {
        self.worker.ask(self.line(text, voice, speed)).await?
    }

    fn line(&self, text: String, voice: Option<&str>, speed: f32) -> Line {
        Line { text, voice: voice.map_or_else(|| self.voice.clone(), Arc::from), speed }
    }
}

/// Names are names of files.
fn is_name(voice: &str) -> bool {
    !voice.is_empty() && voice.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The English voices in `folder`: the first letter is the accent, American or British.
fn installed(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".bin")?.to_owned()));
    let mut names: Vec<String> =
        names.filter(|name| is_name(name) && name.starts_with(['a', 'b']) && name.contains('_')).collect();
    names.sort_unstable();
    names
}

fn read_styles(models: &Path, voice: &str) -> Result<Vec<f32>, VoiceError> {
    let path = models.join(FOLDER).join(format!("{voice}.bin"));
    let bytes = fs::read(&path).map_err(|source| VoiceError::Unreadable { path, source })?;
    let styles: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    if styles.len() == STYLES * STYLE_VALUES {
        Ok(styles)
    } else {
        Err(VoiceError::Malformed { rows: STYLES })
    }
}

struct Speaker {
    models: PathBuf,
    /// By voice.
    styles: HashMap<String, Vec<f32>>,
    session: Option<Session>,
    /// By whether they are British.
    phonemes: HashMap<bool, Phonemes>,
}

impl Speaker {
    fn speak(&mut self, line: &Line) -> Option<Vec<f32>> {
        let Line { text, voice, speed } = line;
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(load(&self.models)?),
        };
        let is_british = voice.starts_with('b');
        let phonemes = self.phonemes.entry(is_british).or_insert_with(|| {
            Phonemes::new(if is_british { Language::EnglishGB } else { Language::EnglishUS })
        });
        if !self.styles.contains_key(&**voice) {
            let styles = read_styles(&self.models, voice)
                .inspect_err(|error| tracing::warn!(%error, voice = &**voice, "a voice cannot be read"));
            self.styles.insert(voice.to_string(), styles.ok()?);
        }
        let styles = self.styles.get(&**voice)?;
        let symbols: Vec<(char, i64)> = phonemes.of(text)?.chars().filter_map(symbol).collect();
        let mut speech = Vec::new();
        for piece in pieces(&symbols) {
            speech.extend(say(session, styles, *speed, piece)?);
        }
        Some(speech)
    }
}

fn load(models: &Path) -> Option<Session> {
    Session::load(models, FILE, THREADS)
        .inspect_err(|error| tracing::warn!(%error, "the model of the voice cannot be loaded"))
        .ok()
}

fn say(session: &mut Session, styles: &[f32], speed: f32, symbols: &[(char, i64)]) -> Option<Vec<f32>> {
    let row = symbols.len().checked_sub(1)?.min(STYLES - 1);
    let style = styles.get(row * STYLE_VALUES..(row + 1) * STYLE_VALUES)?.to_vec();
    let mut tokens = vec![0];
    tokens.extend(symbols.iter().map(|(_, id)| id));
    tokens.push(0);
    let inputs = [
        ("tokens", Input::Integers(vec![1, tokens.len() as i64], tokens)),
        ("style", Input::Floats(vec![1, STYLE_VALUES as i64], style)),
        ("speed", Input::Floats(vec![1], vec![speed])),
    ];
    let samples = session
        .run(inputs)
        .inspect_err(|error| tracing::warn!(%error, "the model of the voice failed"))
        .ok()?;
    let is_loud = |sample: &f32| sample.abs() > SILENCE;
    let start = samples.iter().position(is_loud)?.saturating_sub(LEAD);
    let end = samples.iter().rposition(is_loud)?.saturating_add(TAIL).min(samples.len());
    samples.get(start..end).map(<[f32]>::to_vec)
}

fn symbol(c: char) -> Option<(char, i64)> {
    SYMBOLS.iter().find(|(symbol, _)| *symbol == c).copied()
}

/// Splits `symbols` into pieces of at most [`SYMBOLS_MAX`], at pauses or else between words.
fn pieces(symbols: &[(char, i64)]) -> Vec<&[(char, i64)]> {
    let mut pieces = Vec::new();
    let mut rest = symbols;
    while rest.len() > SYMBOLS_MAX {
        let head = rest.get(..SYMBOLS_MAX).unwrap_or_default();
        let last = |ends: &[char]| head.iter().rposition(|(c, _)| ends.contains(c));
        let cut = last(&[',', ';', ':', '.', '—']).or_else(|| last(&[' '])).map_or(SYMBOLS_MAX, |at| at + 1);
        let (piece, others) = rest.split_at(cut);
        pieces.push(piece);
        rest = others;
    }
    pieces.push(rest);
    pieces.retain(|piece| piece.iter().any(|(c, _)| c.is_alphabetic()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_cut_where_one_pauses() {
        let symbols = |text: &str| text.chars().filter_map(symbol).collect::<Vec<_>>();
        let text = "ab, ".repeat(70) + &"abc ".repeat(200) + &"a".repeat(700);
        let all = symbols(&text);
        let cut = pieces(&all);
        let lengths: Vec<usize> = cut.iter().map(|piece| piece.len()).collect();
        assert!(cut.concat() == all, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length <= SYMBOLS_MAX), "{lengths:?}");
        assert_eq!(lengths.first(), Some(&279));
        assert_eq!(pieces(&symbols(".")), Vec::<&[(char, i64)]>::new());
    }
}
