//! The thresholds by which a turn ends. Pure.

use std::time::Duration;

/// When a turn ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// The confidence that ends a turn; from 1 on none does.
    pub end: f64,
    /// The confidence that announces an end; `None`: none is announced.
    pub eager_end: Option<f64>,
    /// The silence that ends a turn, whatever the confidence.
    pub timeout: Duration,
}

impl Thresholds {
    pub fn ends(&self, confidence: f64) -> bool {
        self.end < 1.0 && confidence >= self.end
    }

    pub fn announces_end(&self, confidence: f64) -> bool {
        self.eager_end.is_some_and(|eager| confidence >= eager)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::Judgement;

    /// The silence at which a turn ends by default.
    fn ends_after(judgement: Judgement) -> f64 {
        let thresholds = Thresholds { end: 0.7, eager_end: None, timeout: Duration::from_secs(5) };
        let silences = (0..5000).map(|ms| f64::from(ms) / 1000.0);
        let mut ends = silences.filter(|&silence| thresholds.ends(judgement.confidence(silence)));
        ends.next().expect("it ends")
    }

    #[test]
    fn silence_ends_a_turn_as_late_as_a_voice_agents() {
        assert!((ends_after(Judgement::Unknown) - 0.6).abs() < 0.01);
        let unfinished = Judgement::Complete { probability: 0.0, after: 0.3 };
        assert!((ends_after(unfinished) - 2.3).abs() < 0.01);
        let nearly = Judgement::Complete { probability: 0.65, after: 0.3 };
        assert!((0.5..0.6).contains(&ends_after(nearly)));
        assert!(ends_after(Judgement::Complete { probability: 0.9, after: 0.3 }) <= 0.3);
    }

    #[test]
    fn a_threshold_of_one_is_never_reached() {
        let thresholds = Thresholds { end: 1.0, eager_end: None, timeout: Duration::from_secs(5) };
        assert!(!thresholds.ends(1.0) && !thresholds.announces_end(1.0));
    }
}
