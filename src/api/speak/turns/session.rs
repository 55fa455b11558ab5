//! The turns of a session: which text is being spoken, how much of it was, and what a listener has heard. Pure.

use std::collections::VecDeque;

use uuid::Uuid;

use super::wire::Turn as Figures;
use crate::speech::VOICE_RATE;

/// Turns that are over and remembered: the client may still be playing one.
const REMEMBERED: usize = 32;

/// The text between two flushes.
struct Turn {
    speech_id: String,
    text: String,
    /// The spoken pieces, with their samples.
    pieces: Vec<(String, u64)>,
    /// Where its audio begins in that of the session, in milliseconds.
    begins_ms: u64,
    is_flushed: bool,
}

#[derive(Default)]
pub struct Session {
    /// The first one is being spoken, the others wait.
    turns: VecDeque<Turn>,
    over: VecDeque<Turn>,
    /// Audio of the session, in milliseconds: what was made, or since an interruption, what was played of it.
    pub audio_ms: u64,
    pub characters: u64,
    pub billable: u64,
    /// Up to where the last interruption was.
    interrupted_ms: u64,
}

/// The outcome of an interruption.
#[derive(Debug, PartialEq)]
pub struct Interrupted {
    pub played_ms: u64,
    /// Spoken and not spoken, if the client says what it has played.
    pub text: Option<(String, String)>,
    pub figures: Figures,
}

/// Why an interruption is ignored: a code of the wire format.
#[derive(Debug, PartialEq, Eq)]
pub struct Ignored(pub &'static str, pub &'static str);

impl Turn {
    fn new(begins_ms: u64) -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self {
            speech_id: format!("dg_sp_{}", &id[..12]),
            text: String::new(),
            pieces: Vec::new(),
            begins_ms,
            is_flushed: false,
        }
    }

    fn audio_ms(&self) -> u64 {
        self.pieces.iter().map(|(_, samples)| samples).sum::<u64>() * 1000 / u64::from(VOICE_RATE)
    }

    fn figures(&self) -> Figures {
        Figures {
            speech_id: self.speech_id.clone(),
            audio_duration_ms: self.audio_ms(),
            input_character_count: self.text.chars().count() as u64,
            billable_character_count: billable(&self.text),
            ..Figures::default()
        }
    }

    /// Its text as heard by a listener up to `played_ms` of the session, and the rest.
    fn split_at(&self, played_ms: u64) -> (String, String) {
        let mut left = played_ms.saturating_sub(self.begins_ms) * u64::from(VOICE_RATE) / 1000;
        // Characters that are heard. Pieces are parts of the text without some of its spaces.
        let mut heard = 0;
        for (piece, samples) in &self.pieces {
            let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).count();
            if *samples <= left {
                left -= samples;
                heard += letters(piece);
                continue;
            }
            // A word counts when it is begun.
            let part = left as f64 / *samples as f64 * piece.chars().count() as f64;
            let mut end = part as usize;
            if left > 0 {
                end += piece.chars().skip(end).take_while(|letter| !letter.is_whitespace()).count();
            }
            heard += letters(&piece.chars().take(end).collect::<String>());
            break;
        }
        let mut letters = self.text.char_indices().filter(|(_, letter)| !letter.is_whitespace());
        let at = letters.nth(heard).map_or(self.text.len(), |(at, _)| at);
        let (spoken, rest) = self.text.split_at(at);
        (spoken.trim().to_owned(), rest.trim().to_owned())
    }
}

impl Session {
    /// Adds text to the turn that is not flushed, or to a new one; returns the id of a turn that begins to be spoken.
    pub fn push(&mut self, text: &str) -> Option<String> {
        let is_open = self.turns.back().is_some_and(|turn| !turn.is_flushed);
        if !is_open {
            self.turns.push_back(Turn::new(self.audio_ms));
        }
        let begins = !is_open && self.turns.len() == 1;
        self.characters += text.chars().count() as u64;
        self.billable += billable(text);
        let turn = self.turns.back_mut()?;
        turn.text.push_str(text);
        begins.then(|| turn.speech_id.clone())
    }

    /// Ends the open turn; whether there was one.
    pub fn flush(&mut self) -> bool {
        match self.turns.back_mut().filter(|turn| !turn.is_flushed) {
            Some(turn) => {
                turn.is_flushed = true;
                true
            }
            None => false,
        }
    }

    /// Samples of `piece` were made.
    pub fn spoken(&mut self, piece: &str, samples: usize) {
        let Some(turn) = self.turns.front_mut().filter(|_| samples > 0) else { return };
        let before = turn.audio_ms();
        match turn.pieces.last_mut().filter(|(last, _)| last == piece) {
            Some((_, sum)) => *sum += samples as u64,
            None => turn.pieces.push((piece.to_owned(), samples as u64)),
        }
        self.audio_ms += turn.audio_ms() - before;
    }

    /// The first turn is spoken to its end: its figures, and the id of the next one, which begins.
    pub fn end(&mut self) -> Option<(Figures, Option<String>)> {
        let turn = self.turns.pop_front()?;
        let figures = turn.figures();
        self.remember(turn);
        let next = self.turns.front_mut().map(|next| {
            next.begins_ms = self.audio_ms;
            next.speech_id.clone()
        });
        Some((figures, next))
    }

    fn remember(&mut self, turn: Turn) {
        if self.over.len() == REMEMBERED {
            self.over.pop_front();
        }
        self.over.push_back(turn);
    }

    /// Drops all turns, as the listener has cut in after `played_ms` of the session's audio.
    ///
    /// # Errors
    /// [`Ignored`].
    pub fn interrupt(&mut self, played_ms: Option<u64>) -> Result<Interrupted, Ignored> {
        if self.audio_ms == 0 {
            return Err(Ignored("NO_AUDIO_GENERATED", "No audio was made yet that could be interrupted."));
        }
        if played_ms.is_some_and(|played| played <= self.interrupted_ms && self.interrupted_ms > 0) {
            let about = "`playback_offset` has to be beyond that of the interruption before.";
            return Err(Ignored("INVALID_INTERRUPT_OFFSET", about));
        }
        let played = played_ms.unwrap_or(self.audio_ms).min(self.audio_ms);
        // The turn that is heard then: the client may be behind by some.
        let mut all = self.over.iter().chain(self.turns.front());
        let Some(turn) = all.rfind(|turn| turn.begins_ms <= played) else {
            return Err(Ignored("NO_ACTIVE_SPEECH", "No turn is being spoken."));
        };
        if self.turns.is_empty() && played >= turn.begins_ms + turn.audio_ms() {
            return Err(Ignored("NO_ACTIVE_SPEECH", "No turn is being spoken."));
        }
        let interrupted = Interrupted {
            played_ms: played,
            text: played_ms.map(|_| turn.split_at(played)),
            figures: turn.figures(),
        };
        self.turns.clear();
        self.over.clear();
        (self.audio_ms, self.interrupted_ms) = (played, played);
        Ok(interrupted)
    }

    pub fn is_over(&self) -> bool {
        self.turns.is_empty()
    }
}

fn billable(text: &str) -> u64 {
    text.chars().filter(|letter| !letter.is_control()).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: usize = VOICE_RATE as usize;

    #[test]
    fn turns_follow_each_other_and_have_figures_of_their_own() {
        let mut session = Session::default();
        let first = session.push("One two. ").expect("it begins");
        assert!(first.starts_with("dg_sp_") && first.len() == 18, "{first}");
        assert_eq!(session.push("Three.\n"), None);
        assert!(session.flush() && !session.flush());
        assert_eq!(session.push("Four."), None, "it waits");
        session.spoken("One two.", SECOND);
        session.spoken("One two.", SECOND / 2);
        session.spoken("Three.", SECOND);
        let (figures, next) = session.end().expect("a turn");
        assert_eq!((figures.audio_duration_ms, figures.input_character_count), (2500, 16));
        assert_eq!(figures.billable_character_count, 15, "without the line's end");
        assert!(figures.speech_id == first && next.is_some_and(|next| next != first));
        session.flush();
        session.spoken("Four.", SECOND);
        assert!(
            session.end().is_some_and(|(figures, next)| figures.audio_duration_ms == 1000 && next.is_none())
        );
        assert_eq!((session.audio_ms, session.characters, session.billable), (3500, 21, 20));
        assert!(session.is_over() && session.end().is_none());
    }

    #[test]
    fn what_was_heard_is_told_by_the_word() {
        let mut session = Session::default();
        assert_eq!(
            session.interrupt(None),
            Err(Ignored("NO_AUDIO_GENERATED", "No audio was made yet that could be interrupted."))
        );
        session.push("One two three four.  Five six.");
        session.spoken("One two three four.", 4 * SECOND);
        let interrupted = session.interrupt(Some(2100)).expect("a turn");
        let text = ("One two three".to_owned(), "four.  Five six.".to_owned());
        assert_eq!((interrupted.played_ms, interrupted.text), (2100, Some(text)));
        assert!(session.is_over());
        assert_eq!(session.audio_ms, 2100);
        // The next turn begins there.
        session.push("Seven eight.");
        session.flush();
        session.spoken("Seven eight.", 2 * SECOND);
        session.end();
        assert_eq!(
            session.interrupt(Some(2000)).err().map(|ignored| ignored.0),
            Some("INVALID_INTERRUPT_OFFSET")
        );
        // All was made, and is still being played.
        let late = session.interrupt(Some(2200)).expect("the turn that is heard");
        assert_eq!(late.text, Some(("Seven".into(), "eight.".into())));
        assert_eq!(session.interrupt(Some(9999)).err().map(|ignored| ignored.0), Some("NO_ACTIVE_SPEECH"));
    }

    #[test]
    fn without_an_offset_all_that_was_made_counts_as_played() {
        let mut session = Session::default();
        session.push("One. Two.");
        session.spoken("One.", SECOND);
        let interrupted = session.interrupt(None).expect("a turn");
        assert_eq!((interrupted.played_ms, interrupted.text), (1000, None));
    }
}
