//! How often somebody may be wrong about who they are. Four digits are ten thousand guesses, which a
//! program makes in a minute.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A wrong guess is forgotten after this.
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// Wrong guesses of one session within the window.
const OF_SESSION_MAX: usize = 5;
/// Of all sessions together: who opens one session after the other guesses no faster.
const OF_ALL_MAX: usize = 100;

/// The wrong guesses of the window, the oldest first.
#[derive(Default)]
pub struct Guesses(Mutex<VecDeque<(Instant, String)>>);

impl Guesses {
    /// Counts a guess as wrong until [`Self::was_right`]: guesses that are made at once are all counted.
    ///
    /// # Errors
    /// How long to wait, where there were too many.
    pub fn begin(&self, session_id: &str, now: Instant) -> Result<(), Duration> {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while guesses.front().is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            guesses.pop_front();
        }
        let of_session: Vec<Instant> =
            guesses.iter().filter(|(_, id)| id == session_id).map(|(at, _)| *at).collect();
        let oldest = match (of_session.len() >= OF_SESSION_MAX, guesses.len() >= OF_ALL_MAX) {
            (false, false) => {
                guesses.push_back((now, session_id.to_owned()));
                return Ok(());
            }
            (true, _) => of_session.first().copied(),
            (false, true) => guesses.front().map(|(at, _)| *at),
        };
        Err(oldest.map_or(WINDOW, |at| WINDOW.saturating_sub(now.duration_since(at))))
    }

    /// The last guess of a session was no wrong one.
    pub fn was_right(&self, session_id: &str) {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = guesses.iter().rposition(|(_, id)| id == session_id) {
            guesses.remove(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_guesses_on_and_on() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for _ in 0..50 {
            guesses.begin("right", start).expect("right ones are not counted");
            guesses.was_right("right");
        }
        for _ in 0..OF_SESSION_MAX {
            guesses.begin("a", start).expect("there are some to make");
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(guesses.begin("a", later), Err(WINDOW - Duration::from_secs(60)));
        guesses.begin("b", later).expect("another one's");
        assert_eq!(guesses.begin("a", start + WINDOW), Ok(()));
    }

    #[test]
    fn many_sessions_guess_no_faster() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        let made = (0..1000).filter(|n| guesses.begin(&format!("session {n}"), now).is_ok()).count();
        assert_eq!(made, OF_ALL_MAX);
    }
}
