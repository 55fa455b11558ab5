//! The options of transcription: the server's, and those of one request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::{Class, LanguageChoice, Task, TenantId, Term};
use crate::patience::Deadline;
use crate::vad::VadOptions;

/// How whole files are transcribed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Default `speech`.
    pub windows: Windows,
    /// How spans of speech are found.
    pub vad: VadOptions,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Windows {
    /// Windows of speech, cut in its pauses and recognised in parallel. Silence costs nothing, and the model
    /// can invent no text over it.
    #[default]
    Speech,
    /// As the reference does, for comparison: windows of 30 s, each from where the one before ended.
    Sequential,
}

/// The caller's options for one transcription.
#[derive(Debug, Clone)]
pub struct TranscribeOptions {
    pub language: LanguageChoice,
    pub task: Task,
    /// The text before the audio.
    pub prompt: Option<String>,
    /// The temperature of the first attempt at a window, 0 to 1; others follow at higher ones if it fails. 0 is the
    /// likeliest text.
    pub temperature: f32,
    /// Names and terms to expect.
    pub bias: Arc<[Term]>,
    pub class: Class,
    pub tenant: TenantId,
    /// Work that has not begun by then fails: the search for speech, and each window.
    pub deadline: Option<Deadline>,
}

impl TranscribeOptions {
    /// The likeliest transcript, at once, on this server's own behalf.
    pub fn new(language: LanguageChoice) -> Self {
        Self {
            language,
            task: Task::Transcribe,
            prompt: None,
            temperature: 0.0,
            bias: Arc::default(),
            class: Class::Interactive,
            tenant: TenantId::default(),
            deadline: None,
        }
    }
}
