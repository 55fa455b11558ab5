//! Patience with a model: how long the agent waits for it, and what it says meanwhile.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::agent::config::ChatConfig;
use crate::agent::responder::Say;

/// Said while a model is slow to begin.
pub const ONE_MOMENT: &str = "One moment.";

/// Waits for one answer of a model, and passes on its words.
pub struct Patient<'a> {
    says: &'a mpsc::Sender<Say>,
    /// Between any two signs of life.
    silence_max: Duration,
    /// The time left for the whole answer. Time that its words take to be spoken does not count.
    left: Duration,
    /// When to say that it takes a moment; none once anything was said.
    filler_at: Option<Instant>,
    has_spoken: bool,
}

impl<'a> Patient<'a> {
    pub fn new(config: &ChatConfig, says: &'a mpsc::Sender<Say>) -> Self {
        let filler = Duration::from_millis(config.filler_ms);
        Self {
            says,
            silence_max: Duration::from_millis(config.timeout_ms),
            left: Duration::from_millis(config.answer_timeout_ms),
            filler_at: (config.filler_ms > 0).then(|| Instant::now() + filler),
            has_spoken: false,
        }
    }

    /// For text that no caller waits for.
    pub fn of_writing(limit: Duration, says: &'a mpsc::Sender<Say>) -> Self {
        Self { says, silence_max: limit, left: limit, filler_at: None, has_spoken: false }
    }

    /// Whether the model has said or done anything.
    pub fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Passes on words or an effect of the model. If the reply was dropped, so is the future that calls this.
    pub async fn say(&mut self, say: Say) {
        self.filler_at = None;
        self.has_spoken = true;
        let _ = self.says.send(say).await;
    }

    /// None if `work` takes too long.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let begun = Instant::now();
        let deadline = begun + self.silence_max.min(self.left);
        let done = loop {
            let filler = self.filler_at.filter(|at| *at < deadline);
            tokio::select! {
                biased;
                done = &mut work => break Some(done),
                () = sleep_until(filler.unwrap_or(deadline)) => match filler {
                    None => break None,
                    Some(_) => {
                        self.filler_at = None;
                        let _ = self.says.send(Say::Sentence(ONE_MOMENT.into())).await;
                    }
                }
            }
        };
        self.left = self.left.saturating_sub(begun.elapsed());
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ChatConfig {
        ChatConfig { filler_ms: 2000, timeout_ms: 5000, answer_timeout_ms: 8000, ..ChatConfig::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_model_is_covered_once_and_then_given_up() {
        let (says, mut said) = mpsc::channel(8);
        let mut patient = Patient::new(&config(), &says);
        let begun = Instant::now();
        let quick = async { tokio::time::sleep(Duration::from_secs(3)).await };
        assert!(patient.wait(quick).await.is_some());
        assert_eq!(said.try_recv().ok(), Some(Say::Sentence(ONE_MOMENT.into())));
        // Five of the eight seconds are left.
        assert!(patient.wait(std::future::pending::<()>()).await.is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(8));
        assert!(said.try_recv().is_err() && !patient.has_spoken());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_in_an_answer_gets_no_filler() {
        let (says, mut said) = mpsc::channel(8);
        let mut patient = Patient::new(&config(), &says);
        patient.say(Say::Sentence("We are open.".into())).await;
        assert!(patient.wait(std::future::pending::<()>()).await.is_none());
        assert_eq!(said.try_recv().ok(), Some(Say::Sentence("We are open.".into())));
        assert!(said.try_recv().is_err());
    }
}
