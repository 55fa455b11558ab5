//! The speaker's own voice in a turn, apart from the agent's out of a loudspeaker: counts frames. Pure.

use crate::turn::echo::Verdict;

/// Frames of the agent's voice, less those of other speech since, that are surely its echo: 0.2 s. One frame may be taken for
/// an echo by chance.
const SURE_FRAMES: usize = 6;
const SURE_FRAMES_MAX: usize = 8;
/// A frame of the speaker's own voice outweighs so many of an echo: a voice over an echo is fainter than it at times.
const OWN_WEIGHT: usize = 6;

#[derive(Debug, Default)]
pub(super) struct OwnVoice {
    /// Frames of the speaker's voice, less those of an echo since, in units of 1 / [`OWN_WEIGHT`].
    level: usize,
    /// The highest since it was 0.
    peak: usize,
    /// The last height of [`Self::reaches`].
    reached: usize,
    /// Where the speaker's voice begins, in samples, once the agent's was before it.
    begins: Option<usize>,
    /// The agent's voice was surely in the turn.
    has_echo: bool,
    /// Frames that could be compared with the agent's voice, and those like it.
    compared: usize,
    echoes: usize,
    /// Counts towards [`SURE_FRAMES`].
    sureness: usize,
}

impl OwnVoice {
    /// A turn that begins with so many frames of the speaker's voice.
    pub fn begun(frames: usize) -> Self {
        Self { level: frames * OWN_WEIGHT, ..Self::default() }
    }

    /// Takes a frame of speech that begins at the sample `begin`. `verdict`: none where nothing is to be compared.
    pub fn take(&mut self, verdict: Option<Verdict>, begin: usize) {
        self.note(verdict);
        match verdict {
            None | Some(Verdict::Own) => {
                self.level += OWN_WEIGHT;
                if self.has_echo && self.begins.is_none() {
                    self.begins = Some(begin);
                }
            }
            Some(Verdict::Echo) => self.level = self.level.saturating_sub(1),
            Some(Verdict::EchoSoFar) => self.level = 0,
            Some(Verdict::Unclear) => {}
        }
        self.peak = self.peak.max(self.level);
        if self.level == 0 {
            (self.begins, self.reached, self.peak) = (None, 0, 0);
        }
    }

    /// Counts a verdict towards whether the turn is an echo.
    pub fn note(&mut self, verdict: Option<Verdict>) {
        let is_echo = matches!(verdict, Some(Verdict::Echo | Verdict::EchoSoFar));
        self.compared += usize::from(is_echo || verdict == Some(Verdict::Own));
        self.echoes += usize::from(is_echo);
        self.sureness = match is_echo {
            true => (self.sureness + 1).min(SURE_FRAMES_MAX),
            false => self.sureness.saturating_sub(1),
        };
        self.has_echo |= self.sureness >= SURE_FRAMES;
    }

    /// Whether the speaker's voice has now lasted for `frames`: true once, until an echo alone was heard.
    pub fn reaches(&mut self, frames: usize) -> bool {
        let is_new = self.level >= frames * OWN_WEIGHT && self.reached < frames;
        if is_new {
            self.reached = frames;
        }
        is_new
    }

    /// Where the speaker's voice begins, in samples, after the agent's.
    pub fn begins(&self) -> Option<usize> {
        self.begins
    }

    pub fn is_compared(&self) -> bool {
        self.compared > 0
    }

    /// Whether the turn so far is the agent's voice, with fewer than `least` frames of another since.
    pub fn is_echo(&self, least: usize) -> bool {
        self.peak < least * OWN_WEIGHT && self.echoes * 2 > self.compared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(verdicts: &[(Verdict, usize)]) -> (OwnVoice, Vec<usize>) {
        let (mut own, mut reached) = (OwnVoice::default(), Vec::new());
        let frames = verdicts.iter().flat_map(|(verdict, count)| vec![*verdict; *count]);
        for (index, verdict) in frames.enumerate() {
            own.take(Some(verdict), index * 512);
            if own.reaches(12) {
                reached.push(index);
            }
        }
        (own, reached)
    }

    #[test]
    fn an_echo_with_mistaken_frames_in_it_is_nobodys_voice() {
        let pattern: Vec<_> = (0..20).flat_map(|_| [(Verdict::Echo, 13), (Verdict::Own, 2)]).collect();
        let (own, reached) = voice(&pattern);
        assert!(own.is_echo(6) && reached.is_empty(), "{own:?}");
    }

    #[test]
    fn a_voice_over_an_echo_begins_where_the_echo_was_alone_and_insists_once() {
        let over: Vec<_> = (0..20).flat_map(|_| [(Verdict::Own, 3), (Verdict::Echo, 1)]).collect();
        let (own, reached) = voice(&[vec![(Verdict::Echo, 30)], over].concat());
        assert_eq!((own.begins(), reached.len()), (Some(30 * 512), 1), "{own:?}");
        assert!(reached[0] < 30 + 24 && !own.is_echo(6));
    }

    #[test]
    fn a_short_word_over_an_echo_is_no_echo() {
        let (own, _) = voice(&[(Verdict::Echo, 30), (Verdict::Own, 8), (Verdict::Echo, 10)]);
        assert!(!own.is_echo(6));
    }
}
