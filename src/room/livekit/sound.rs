//! Audio of LiveKit rooms: callers' packets to samples, and the agent's speech to Opus (RFC 6716, RFC 7587).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opus::{Application, Bitrate, Channels, Decoder, Encoder};

use crate::audio::{self, SAMPLE_RATE};
use crate::room::media::{Format, Incoming};
use crate::speech::VOICE_RATE;

#[derive(Debug, thiserror::Error)]
pub enum SoundError {
    #[error("Opus failed")]
    Opus(#[from] opus::Error),
    #[error("a rate that no audio has")]
    Rate(#[from] audio::Error),
}

/// An outgoing frame: 20 ms.
pub const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = VOICE_RATE as usize / 50;
/// Clock rate of Opus over RTP, independent of its audio, in hertz.
pub const FRAME_TICKS: u64 = 48_000 / 50;
const PACKET_BYTES_MAX: usize = 1275;
/// Bitrate at which speech of this bandwidth has no audible loss (RFC 7587, 3.1.1: 28 to 40 kbit/s).
const BITS_PER_SECOND: i32 = 40_000;
/// Frames of silence after speech, so that decoders do not invent its end.
const TAIL: usize = 10;
/// Tolerated delay of incoming audio: packets arrive unevenly.
const LAG: Duration = Duration::from_millis(100);
/// The longest possible packet, 120 ms, in samples.
const DECODED_MAX: usize = SAMPLE_RATE as usize * 120 / 1000;
/// Loss that is concealed, in ticks: 60 ms. Longer gaps become silence.
const CONCEALED_MAX: u64 = 48_000 * 60 / 1000;

/// The agent's outgoing speech: one frame every 20 ms.
pub struct Speaking {
    encoder: Encoder,
    queue: VecDeque<Piece>,
    silent: usize,
}

enum Piece {
    Samples(Arc<[f32]>, Range<usize>),
    Mark(u64),
}

/// The frame that is due.
#[derive(Default)]
pub struct Frame {
    /// A packet; none in silence.
    pub packet: Option<Vec<u8>>,
    /// Whether it is the first after silence.
    pub is_first: bool,
    /// Marks reached before its end.
    pub marks: Vec<u64>,
}

impl Speaking {
    /// # Errors
    /// [`SoundError::Opus`].
    pub fn new() -> Result<Self, SoundError> {
        let mut encoder = Encoder::new(VOICE_RATE, Channels::Mono, Application::Voip)?;
        encoder.set_bitrate(Bitrate::Bits(BITS_PER_SECOND))?;
        Ok(Self { encoder, queue: VecDeque::new(), silent: TAIL })
    }

    /// At [`VOICE_RATE`].
    pub fn push(&mut self, samples: Arc<[f32]>, range: Range<usize>) {
        self.queue.push_back(Piece::Samples(samples, range));
    }

    pub fn mark(&mut self, mark: u64) {
        self.queue.push_back(Piece::Mark(mark));
    }

    /// Drops unsent speech. Its marks count as reached, as on a telephone line.
    pub fn clear(&mut self) -> Vec<u64> {
        let mark = |piece| if let Piece::Mark(mark) = piece { Some(mark) } else { None };
        self.queue.drain(..).filter_map(mark).collect()
    }

    /// # Errors
    /// [`SoundError::Opus`].
    pub fn frame(&mut self) -> Result<Frame, SoundError> {
        let mut frame = Frame::default();
        let mut samples = Vec::with_capacity(FRAME_SAMPLES);
        while let Some(piece) = self.queue.front_mut() {
            match piece {
                Piece::Mark(mark) => frame.marks.push(*mark),
                Piece::Samples(all, range) => {
                    let end = range.end.min(range.start + FRAME_SAMPLES - samples.len());
                    samples.extend_from_slice(all.get(range.start..end).unwrap_or_default());
                    range.start = end;
                    if range.start < range.end {
                        break;
                    }
                }
            }
            self.queue.pop_front();
            if samples.len() == FRAME_SAMPLES && !matches!(self.queue.front(), Some(Piece::Mark(_))) {
                break;
            }
        }
        frame.is_first = self.silent >= TAIL;
        self.silent = if samples.is_empty() { self.silent.saturating_add(1) } else { 0 };
        if self.silent <= TAIL && !(frame.is_first && samples.is_empty()) {
            samples.resize(FRAME_SAMPLES, 0.0);
            frame.packet = Some(self.encoder.encode_vec_float(&samples, PACKET_BYTES_MAX)?);
        }
        Ok(frame)
    }
}

/// The encoding of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Opus,
    Mulaw,
}

/// One caller's audio as samples at [`SAMPLE_RATE`]. It keeps pace with the clock, because a silent caller may send
/// nothing at all.
pub struct Hearing {
    opus: Decoder,
    mulaw: Incoming,
    since: Instant,
    /// Samples so far.
    heard: u64,
    /// The tick after the last packet's end.
    next: Option<u64>,
}

impl Hearing {
    /// # Errors
    /// [`SoundError`].
    pub fn new(now: Instant) -> Result<Self, SoundError> {
        Ok(Self {
            opus: Decoder::new(SAMPLE_RATE, Channels::Mono)?,
            mulaw: Incoming::new(Format { is_mulaw: true, sample_rate_hz: 8_000 })?,
            since: now,
            heard: 0,
            next: None,
        })
    }

    /// Takes a packet that begins at `tick`, at 48 kHz. An invalid packet counts as lost.
    pub fn packet(&mut self, coding: Coding, tick: u64, packet: &[u8]) -> Vec<f32> {
        let samples = match coding {
            Coding::Mulaw => self.mulaw.read(packet),
            Coding::Opus => {
                let lost = self.next.map_or(0, |next| tick.saturating_sub(next));
                let mut samples = Vec::new();
                if (1..=CONCEALED_MAX).contains(&lost) {
                    let count = lost as usize * SAMPLE_RATE as usize / 48_000;
                    self.decode(&[], count, &mut samples);
                }
                let before = samples.len();
                self.decode(packet, DECODED_MAX, &mut samples);
                let length = (samples.len() - before) as u64 * 48_000 / u64::from(SAMPLE_RATE);
                self.next = Some(tick + length);
                samples
            }
        };
        self.heard += samples.len() as u64;
        samples
    }

    fn decode(&mut self, packet: &[u8], room: usize, samples: &mut Vec<f32>) {
        let mut decoded = [0.0; DECODED_MAX];
        let room = decoded.get_mut(..room.min(DECODED_MAX)).unwrap_or_default();
        if let Ok(count) = self.opus.decode_float(packet, room, false) {
            samples.extend_from_slice(room.get(..count).unwrap_or_default());
        }
    }

    /// Fills the time in which nothing arrived with silence.
    pub fn silence(&mut self, now: Instant) -> Vec<f32> {
        let due = now.saturating_duration_since(self.since + LAG).as_secs_f64() * f64::from(SAMPLE_RATE);
        let missing = (due as u64).saturating_sub(self.heard);
        self.heard += missing;
        vec![0.0; (missing as usize).min(SAMPLE_RATE as usize)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, seconds: f64) -> Arc<[f32]> {
        let count = (f64::from(rate) * seconds) as usize;
        (0..count).map(|i| (i as f32 * 440.0 * std::f32::consts::TAU / rate as f32).sin() * 0.5).collect()
    }

    fn energy(samples: &[f32]) -> f32 {
        samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32
    }

    #[test]
    fn what_is_said_is_heard_at_its_length_and_then_there_is_nothing() {
        let mut speaking = Speaking::new().unwrap();
        let start = Instant::now();
        let mut hearing = Hearing::new(start).unwrap();
        assert!(speaking.frame().unwrap().packet.is_none());
        let tone = tone(VOICE_RATE, 1.0);
        speaking.push(tone.clone(), 0..tone.len());
        speaking.mark(7);
        let (mut heard, mut marks, mut packets) = (Vec::new(), Vec::new(), 0);
        for tick in 0..100 {
            let frame = speaking.frame().unwrap();
            assert_eq!(frame.packet.is_some() && frame.is_first, tick == 0, "{tick}");
            marks.extend(frame.marks.iter().map(|mark| (tick, *mark)));
            let Some(packet) = frame.packet else { continue };
            packets += 1;
            heard.extend(hearing.packet(Coding::Opus, tick * FRAME_TICKS, &packet));
        }
        assert_eq!((packets, marks), (50 + TAIL, vec![(49, 7)]));
        assert_eq!(heard.len(), (50 + TAIL) * SAMPLE_RATE as usize / 50);
        let loud = energy(&heard[3200..14_400]);
        assert!((0.08..0.17).contains(&loud), "{loud}");
        assert!(energy(&heard[17_600..]) < 0.001);
    }

    #[test]
    fn what_is_cleared_is_not_said() {
        let mut speaking = Speaking::new().unwrap();
        let tone = tone(VOICE_RATE, 0.5);
        speaking.push(tone.clone(), 0..tone.len());
        speaking.mark(1);
        speaking.frame().unwrap();
        assert_eq!(speaking.clear(), [1]);
        let mut hearing = Hearing::new(Instant::now()).unwrap();
        let mut last = Vec::new();
        while let Some(packet) = speaking.frame().unwrap().packet {
            last = hearing.packet(Coding::Opus, 0, &packet);
        }
        assert!(energy(&last) < 1e-4, "{}", energy(&last));
    }

    #[test]
    fn time_goes_by_where_nothing_is_sent_and_little_loss_is_concealed() {
        let start = Instant::now();
        let mut hearing = Hearing::new(start).unwrap();
        assert!(hearing.silence(start + LAG).is_empty());
        assert_eq!(hearing.silence(start + LAG + Duration::from_millis(500)).len(), 8000);
        assert!(hearing.silence(start + LAG + Duration::from_millis(500)).is_empty());
        let mut speaking = Speaking::new().unwrap();
        let tone = tone(VOICE_RATE, 0.2);
        speaking.push(tone.clone(), 0..tone.len());
        let packets: Vec<_> = std::iter::from_fn(|| speaking.frame().unwrap().packet).collect();
        assert_eq!(hearing.packet(Coding::Opus, 0, &packets[0]).len(), 320);
        assert_eq!(hearing.packet(Coding::Opus, 3 * FRAME_TICKS, &packets[3]).len(), 3 * 320);
        assert_eq!(hearing.packet(Coding::Opus, 100 * FRAME_TICKS, &packets[4]).len(), 320);
        assert_eq!(hearing.packet(Coding::Opus, 101 * FRAME_TICKS, &[0xff; 3]).len(), 0);
        assert!(hearing.packet(Coding::Mulaw, 0, &[0xff; 800]).iter().all(|sample| sample.abs() < 0.01));
    }
}
