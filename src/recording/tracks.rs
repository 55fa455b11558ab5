//! Two tracks on one clock: the callers' audio where it arrived, the agent's where it is heard. Pure: the time is an
//! argument.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::audio::{self, RateConverter, SAMPLE_RATE};
use crate::speech::VOICE_RATE;

/// Audio that is older no longer changes: the agent's is sent a quarter of a second ahead, and may be taken back.
const SETTLED: Duration = Duration::from_secs(1);
/// Packets of one caller may come so much later than the one before without a gap.
const JITTER: u64 = SAMPLE_RATE as u64 * 3 / 10;
/// Audio that comes faster than it can be spoken is kept so far ahead, and then dropped.
const AHEAD_MAX: u64 = 10 * SAMPLE_RATE as u64;

pub struct Tracks {
    begun: Instant,
    /// Samples that were taken. The tracks begin there.
    taken: u64,
    callers: Vec<f32>,
    agent: Vec<f32>,
    /// Where the next sample of each seat goes.
    seats: HashMap<u64, u64>,
    /// Where the agent's next sample goes.
    said: u64,
    voice: RateConverter,
}

impl Tracks {
    /// # Errors
    /// The voice's rate cannot be converted.
    pub fn new(begun: Instant) -> Result<Self, audio::Error> {
        let voice = RateConverter::new(VOICE_RATE, SAMPLE_RATE)?;
        let (callers, agent, seats) = (Vec::new(), Vec::new(), HashMap::new());
        Ok(Self { begun, taken: 0, callers, agent, seats, said: 0, voice })
    }

    fn at(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.begun);
        (elapsed.as_secs_f64() * f64::from(SAMPLE_RATE)) as u64
    }

    /// Audio of a caller that has just arrived, at [`SAMPLE_RATE`].
    pub fn hear(&mut self, seat: u64, samples: &[f32], now: Instant) {
        let here = self.at(now);
        let begin = here.saturating_sub(samples.len() as u64);
        let next = self.seats.entry(seat).or_insert(begin);
        if begin > *next + JITTER {
            *next = begin;
        }
        if *next > here + AHEAD_MAX {
            return;
        }
        mix(&mut self.callers, self.taken, *next, samples);
        *next += samples.len() as u64;
    }

    /// Audio of the agent that goes out now, at [`VOICE_RATE`].
    pub fn say(&mut self, samples: &[f32], now: Instant) {
        let here = self.at(now);
        self.said = self.said.max(here);
        if self.said > here + AHEAD_MAX {
            return;
        }
        let samples = self.voice.push(samples);
        mix(&mut self.agent, self.taken, self.said, &samples);
        self.said += samples.len() as u64;
    }

    /// The agent was interrupted: what it has sent ahead is not heard.
    pub fn cut(&mut self, now: Instant) {
        let here = self.at(now);
        self.said = self.said.min(here);
        self.agent.truncate(usize::try_from(here.saturating_sub(self.taken)).unwrap_or(usize::MAX));
    }

    /// The samples that no longer change, both channels in turn, 16 bits each.
    pub fn take(&mut self, now: Instant) -> Vec<u8> {
        let settled = self.at(now).saturating_sub((SETTLED.as_secs_f64() * f64::from(SAMPLE_RATE)) as u64);
        self.take_until(settled)
    }

    /// The rest.
    pub fn finish(&mut self, now: Instant) -> Vec<u8> {
        let longest = self.callers.len().max(self.agent.len()) as u64;
        self.take_until(self.at(now).max(self.taken + longest))
    }

    fn take_until(&mut self, end: u64) -> Vec<u8> {
        let Ok(count) = usize::try_from(end.saturating_sub(self.taken)) else { return Vec::new() };
        let mut bytes = Vec::with_capacity(count * 4);
        let sample = |track: &[f32], at: usize| {
            let sample = track.get(at).copied().unwrap_or_default();
            ((sample * 32_767.0).clamp(-32_768.0, 32_767.0) as i16).to_le_bytes()
        };
        for at in 0..count {
            bytes.extend(sample(&self.callers, at));
            bytes.extend(sample(&self.agent, at));
        }
        for track in [&mut self.callers, &mut self.agent] {
            track.drain(..count.min(track.len()));
        }
        self.taken += count as u64;
        bytes
    }
}

/// Adds `samples` to a track that begins at `origin`, from `at` on. What lies before the origin is too late.
fn mix(track: &mut Vec<f32>, origin: u64, at: u64, samples: &[f32]) {
    let late = usize::try_from(origin.saturating_sub(at)).unwrap_or(usize::MAX);
    let samples = samples.get(late..).unwrap_or_default();
    let Ok(begin) = usize::try_from(at.saturating_sub(origin)) else { return };
    let end = begin + samples.len();
    if track.len() < end {
        track.resize(end, 0.0);
    }
    for (mixed, sample) in track.iter_mut().skip(begin).zip(samples) {
        *mixed += sample;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of sound in each channel: where it begins and how long it is.
    fn sounds(bytes: &[u8], channel: usize) -> Vec<(f64, f64)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (at, frame) in bytes.chunks_exact(4).enumerate() {
            let sample = i16::from_le_bytes([frame[channel * 2], frame[channel * 2 + 1]]);
            if sample.unsigned_abs() < 1000 {
                continue;
            }
            match found.last_mut() {
                Some((begin, length)) if at <= *begin + *length + 200 => *length = at - *begin + 1,
                _ => found.push((at, 1)),
            }
        }
        let seconds = |samples: usize| samples as f64 / f64::from(SAMPLE_RATE);
        found.into_iter().map(|(begin, length)| (seconds(begin), seconds(length))).collect()
    }

    fn are_about(found: &[(f64, f64)], expected: &[(f64, f64)]) {
        let is_near = |a: f64, b: f64| (a - b).abs() < 0.03;
        let agree = found.len() == expected.len()
            && found.iter().zip(expected).all(|(a, b)| is_near(a.0, b.0) && is_near(a.1, b.1));
        assert!(agree, "{found:?} instead of {expected:?}");
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn both_sides_lie_where_they_were_heard() {
        let start = Instant::now();
        let mut tracks = Tracks::new(start).expect("usual rates");
        let mut bytes = Vec::new();
        let (packet, clip) = (vec![0.5; 320], vec![0.5; 480]);
        for step in 1..=300_u64 {
            // Packets come late by up to 60 ms, which is no gap.
            let now = start + ms(step * 20) + ms(if step % 7 == 0 { 60 } else { 0 });
            // A caller speaks for a second, another one from 4 s on.
            match step {
                51..=100 => tracks.hear(1, &packet, now),
                201..=250 => tracks.hear(2, &packet, now),
                _ => {}
            }
            // The agent says a second, in packets that come in bursts ahead of time.
            if (126..=175).contains(&step) {
                tracks.say(&clip, now - ms(100));
            }
            bytes.extend(tracks.take(now));
        }
        bytes.extend(tracks.finish(start + ms(6000)));
        assert_eq!(bytes.len() / 4, 96_000);
        are_about(&sounds(&bytes, 0), &[(1.0, 1.0), (4.0, 1.0)]);
        are_about(&sounds(&bytes, 1), &[(2.48, 1.0)]);
    }

    #[test]
    fn what_is_taken_back_was_never_heard() {
        let start = Instant::now();
        let mut tracks = Tracks::new(start).expect("usual rates");
        tracks.say(&vec![0.5; 12_000], start);
        tracks.cut(start + ms(200));
        tracks.say(&vec![0.5; 4_800], start + ms(1000));
        let bytes = tracks.finish(start + ms(2000));
        are_about(&sounds(&bytes, 1), &[(0.0, 0.2), (1.0, 0.2)]);
    }

    #[test]
    fn audio_faster_than_time_is_bounded() {
        let start = Instant::now();
        let mut tracks = Tracks::new(start).expect("usual rates");
        for _ in 0..1000 {
            tracks.hear(1, &vec![0.1; SAMPLE_RATE as usize], start);
        }
        assert!(tracks.callers.len() as u64 <= AHEAD_MAX + 2 * u64::from(SAMPLE_RATE));
    }
}
