//! Voice as a channel hears it, frame by frame: the input of turn taking.

use crate::audio::Pcm;

/// A frame of audio, or a pause.
#[derive(Debug, Clone, PartialEq)]
pub struct Voice {
    pub channel: usize,
    /// The end of the audio so far, in seconds from the start of the stream.
    pub at: f64,
    pub heard: Heard,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A frame of speech.
    Speech,
    Silence,
    /// A pause closes the span, whose final result follows. With the last [`crate::turn::SAMPLES`].
    Pause(Pcm),
}
