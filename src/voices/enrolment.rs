//! Whether a clip is fit for enrolment: it must hold enough speech of one speaker. Pure.

use crate::speakers::Diarization;

/// The longest clip, in seconds: it may be longer than it need be, but is no recording.
pub const CLIP_SECONDS_MAX: f64 = 120.0;
/// Speech of the speaker that a clip must hold, in seconds.
const CLIP_SECONDS_MIN: f64 = 3.0;
/// Speech that others may have, in seconds and as a part of all: diarization is not always right.
const OTHERS_SECONDS: f64 = 0.75;
const OTHERS_PART: f64 = 0.1;

/// Why a clip cannot be enrolled.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Unfit {
    #[error("The clip holds no speech.")]
    NoSpeech,
    #[error("The clip holds {seconds:.1} s of speech, and {CLIP_SECONDS_MIN} s are needed.")]
    TooShort { seconds: f64 },
    #[error("The clip holds the speech of several speakers, and one is needed.")]
    SeveralSpeakers,
}

/// The embedding of the clip's speaker.
///
/// # Errors
/// [`Unfit`].
pub fn enrolled(clip: &Diarization) -> Result<Vec<f32>, Unfit> {
    let mut seconds = vec![0.0; clip.voices.len()];
    for turn in &clip.turns {
        if let Some(sum) = seconds.get_mut(turn.speaker) {
            *sum += turn.end - turn.start;
        }
    }
    let longest = seconds.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
    let (speaker, own) = longest.filter(|&(_, own)| own > 0.0).ok_or(Unfit::NoSpeech)?;
    let all: f64 = seconds.iter().sum();
    match () {
        () if all - own > OTHERS_SECONDS.max(OTHERS_PART * all) => Err(Unfit::SeveralSpeakers),
        () if own < CLIP_SECONDS_MIN => Err(Unfit::TooShort { seconds: own }),
        () => Ok(clip.voices[speaker].clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speakers::Turn;

    fn clip(turns: &[(usize, f64, f64)]) -> Diarization {
        let speakers = turns.iter().map(|turn| turn.0 + 1).max().unwrap_or(0);
        Diarization {
            turns: turns
                .iter()
                .map(|&(speaker, start, end)| Turn { speaker, start, end, confidence: 0.9 })
                .collect(),
            voices: (0..speakers).map(|speaker| vec![speaker as f32]).collect(),
        }
    }

    #[test]
    fn a_clip_of_one_speaker_is_enrolled() {
        assert_eq!(enrolled(&clip(&[(0, 0.5, 2.5), (0, 3.0, 4.0)])), Ok(vec![0.0]));
        // Others may be a mistake.
        assert_eq!(enrolled(&clip(&[(0, 0.0, 0.5), (1, 0.5, 6.0)])), Ok(vec![1.0]));
        assert_eq!(enrolled(&clip(&[(0, 0.0, 30.0), (1, 30.0, 32.0)])), Ok(vec![0.0]));
    }

    #[test]
    fn any_other_clip_is_refused() {
        assert_eq!(enrolled(&clip(&[])), Err(Unfit::NoSpeech));
        assert_eq!(enrolled(&clip(&[(0, 1.0, 3.5)])), Err(Unfit::TooShort { seconds: 2.5 }));
        assert_eq!(enrolled(&clip(&[(0, 0.0, 5.0), (1, 5.0, 9.0)])), Err(Unfit::SeveralSpeakers));
        assert_eq!(enrolled(&clip(&[(0, 0.0, 2.0), (1, 2.0, 3.9)])), Err(Unfit::SeveralSpeakers));
    }
}
