//! Whether and when a failed delivery is retried; the delays are a setting. Pure; chance is an argument.

use std::time::Duration;

use crate::fetch::{Error, Reply, SendError};

/// Attempts after an answer that will hardly change: a redirect, or a client error that has nothing to do
/// with time.
const STUBBORN_ATTEMPTS_MAX: usize = 4;
/// The longest pause that a receiver's `Retry-After` can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    Again { after: Duration, error: String },
    Dead { error: String },
}

/// Judges the attempt after `tried` others. `delays` are the pauses between attempts, in seconds, of which
/// the part `chance` (0 to 1) is taken: full jitter
/// (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>).
pub fn judge(attempt: &Result<Reply, SendError>, tried: u32, delays: &[f64], chance: f64) -> Verdict {
    let tried = usize::try_from(tried).unwrap_or(usize::MAX);
    let (error, stubborn) = match attempt {
        Ok(reply) if (200..300).contains(&reply.status) => return Verdict::Delivered,
        Ok(reply) if reply.status == 410 => return Verdict::Dead { error: "STATUS_410".into() },
        Ok(reply) => {
            let about_time = matches!(reply.status, 408 | 425 | 429) || reply.status >= 500;
            (format!("STATUS_{}", reply.status), !about_time)
        }
        Err(SendError::Timeout) => ("TIMEOUT".into(), false),
        Err(SendError::Refused(Error::InvalidUrl)) => ("INVALID_URL".into(), true),
        // The same error for names that resolve to internal addresses and names that do not resolve: clients
        // see it.
        Err(SendError::Refused(_)) => ("UNREACHABLE".into(), false),
    };
    let delay = delays.get(tried).filter(|_| !stubborn || tried + 1 < STUBBORN_ATTEMPTS_MAX);
    let Some(delay) = delay else { return Verdict::Dead { error } };
    let asked = attempt.as_ref().ok().and_then(|reply| reply.retry_after).unwrap_or_default();
    Verdict::Again { after: part(*delay, chance).max(asked.min(RETRY_AFTER_MAX)), error }
}

/// The pause before a job runs again that has failed `failures` times: up to 10 s, 40 s, 160 s, then 10 min.
pub fn rerun_after(failures: u32, chance: f64) -> Duration {
    part(10.0 * 4f64.powi(failures.min(10).cast_signed()).min(60.0), chance)
}

fn part(seconds: f64, chance: f64) -> Duration {
    // An invalid duration means no pause: the configuration has been checked.
    Duration::try_from_secs_f64(seconds * chance).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: [f64; 7] = [5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0];

    fn status(status: u16) -> Result<Reply, SendError> {
        Ok(Reply { status, retry_after: None })
    }

    fn attempts_until_dead(attempt: &Result<Reply, SendError>) -> u32 {
        (0..100).find(|&tried| matches!(judge(attempt, tried, &DELAYS, 1.0), Verdict::Dead { .. })).unwrap()
            + 1
    }

    #[test]
    fn only_success_is_success() {
        for good in [200, 201, 204, 299] {
            assert_eq!(judge(&status(good), 0, &DELAYS, 0.5), Verdict::Delivered);
        }
        for (bad, attempts) in [
            (Ok(500), 8),
            (Ok(503), 8),
            (Ok(408), 8),
            (Ok(425), 8),
            (Ok(429), 8),
            (Ok(100), 4),
            (Ok(301), 4),
            (Ok(308), 4),
            (Ok(400), 4),
            (Ok(404), 4),
            (Ok(410), 1),
            (Err(SendError::Timeout), 8),
            (Err(SendError::Refused(Error::Failed)), 8),
            (Err(SendError::Refused(Error::Unresolvable)), 8),
            (Err(SendError::Refused(Error::NotRoutable)), 8),
            (Err(SendError::Refused(Error::InvalidUrl)), 4),
        ] {
            let attempt = bad.clone().and_then(status);
            assert_eq!(attempts_until_dead(&attempt), attempts, "{bad:?}");
        }
    }

    #[test]
    fn pauses_are_a_random_part_of_the_schedule() {
        let after = |tried, chance| match judge(&status(500), tried, &DELAYS, chance) {
            Verdict::Again { after, .. } => after.as_secs_f64(),
            other => panic!("{other:?}"),
        };
        assert_eq!((after(0, 0.0), after(0, 0.5), after(0, 1.0)), (0.0, 2.5, 5.0));
        assert_eq!((after(6, 0.25), after(1, 1.0)), (9000.0, 300.0));
    }

    #[test]
    fn the_receiver_may_ask_for_more_time_but_not_for_ever() {
        let after = |seconds, chance| {
            let retry_after = Some(Duration::from_secs(seconds));
            match judge(&Ok(Reply { status: 503, retry_after }), 0, &DELAYS, chance) {
                Verdict::Again { after, .. } => after.as_secs(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((after(120, 1.0), after(1, 1.0), after(u64::MAX, 0.0)), (120, 5, 86_400));
    }

    #[test]
    fn runs_are_spaced_out() {
        let pauses = [0, 1, 2, 3, 4, u32::MAX].map(|failures| rerun_after(failures, 1.0).as_secs());
        assert_eq!(pauses, [10, 40, 160, 600, 600, 600]);
    }
}
