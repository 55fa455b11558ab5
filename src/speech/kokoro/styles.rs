//! The styles of a voice: one for each length of a text in symbols.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::error::VoiceError;
use super::model::STYLE_VALUES;

/// The folders with voices: `./setup voice`, and `./setup --with voices`.
const FOLDERS: [&str; 2] = ["kokoro", "kokoro-voices"];
/// A voice holds one style per input length, up to the model's longest input in symbols.
const STYLES: usize = 510;

/// The styles of one voice.
pub struct Styles(Vec<f32>);

impl Styles {
    /// # Errors
    /// [`VoiceError::Unreadable`], [`VoiceError::Malformed`].
    pub fn read(models: &Path, voice: &str) -> Result<Self, VoiceError> {
        let file = format!("{voice}.bin");
        let [own, other] = FOLDERS.map(|folder| models.join(folder).join(&file));
        let path: PathBuf = if other.exists() && !own.exists() { other } else { own };
        let bytes = fs::read(&path).map_err(|source| VoiceError::Unreadable { path, source })?;
        let styles: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        if styles.len() == STYLES * STYLE_VALUES {
            Ok(Self(styles))
        } else {
            Err(VoiceError::Malformed { rows: STYLES })
        }
    }

    /// The style for a text of so many symbols, one at least.
    pub fn of(&self, symbols: usize) -> Option<&[f32]> {
        let row = symbols.checked_sub(1)?.min(STYLES - 1);
        self.0.get(row * STYLE_VALUES..(row + 1) * STYLE_VALUES)
    }
}

/// Names are names of files.
pub fn is_name(voice: &str) -> bool {
    !voice.is_empty() && voice.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The voices among the models, in order of name.
pub fn installed(models: &Path) -> Vec<String> {
    let folders = FOLDERS.iter().map(|folder| models.join(folder));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".bin")?.to_owned()));
    let mut names: Vec<String> = names.filter(|name| is_name(name) && name.contains('_')).collect();
    names.sort_unstable();
    names.dedup();
    names
}
