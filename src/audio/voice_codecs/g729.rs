//! G.729 with or without annexes A and B (ITU-T): frames of 10 bytes for 10 ms.

use std::io::Read;

use oxideav_core::{Decoder as _, Frame, Packet, TimeBase};
use oxideav_g729::decoder::G729Decoder;

use super::Decoded;
use crate::audio::error::Error;
use crate::audio::gather::{Ending, Gather};

const SAMPLE_RATE_HZ: u32 = 8_000;
const FRAME_BYTES: usize = 10;
const FRAME_SAMPLES: usize = 80;
/// A frame of annex B, which describes the noise of a silence.
const SILENCE_BYTES: usize = 2;
/// The longest packet of a telephone: a longer piece is part of a file, whose cuts mean nothing.
const PACKET_BYTES_MAX: usize = 25 * FRAME_BYTES;
const PIECE_BYTES: usize = 4096;

/// Decodes frames. A piece of the size of a packet may end in a frame of comfort noise, which is
/// silence here.
///
/// # Errors
/// As [`Gather::push`].
pub fn read(mut bytes: impl Read, gather: &mut Gather, decoded: Decoded<'_>) -> Result<Ending, Error> {
    let mut decoder = G729Decoder::new();
    gather.begin(1, SAMPLE_RATE_HZ)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut pending: Vec<u8> = Vec::new();
    let mut samples = Vec::new();
    loop {
        let count = match bytes.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let ends_in_silence =
            pending.is_empty() && count <= PACKET_BYTES_MAX && count % FRAME_BYTES == SILENCE_BYTES;
        let speech = if ends_in_silence { count - SILENCE_BYTES } else { count };
        pending.extend_from_slice(&piece[..speech]);
        let whole = pending.len() - pending.len() % FRAME_BYTES;
        for frame in pending[..whole].chunks_exact(FRAME_BYTES) {
            samples.clear();
            if !decode(&mut decoder, frame, &mut samples) {
                gather.mark_damaged();
                samples.resize(FRAME_SAMPLES, 0.0);
            }
            gather.push(&mut samples)?;
        }
        pending.drain(..whole);
        if ends_in_silence {
            samples.clear();
            samples.resize(FRAME_SAMPLES, 0.0);
            gather.push(&mut samples)?;
        }
        decoded(gather)?;
    }
    if !pending.is_empty() {
        gather.mark_damaged();
    }
    Ok(Ending::Whole)
}

fn decode(decoder: &mut G729Decoder, frame: &[u8], samples: &mut Vec<f32>) -> bool {
    let packet = Packet::new(0, TimeBase::new(1, i64::from(SAMPLE_RATE_HZ)), frame.to_vec());
    if decoder.send_packet(&packet).is_err() {
        return false;
    }
    let Ok(Frame::Audio(frame)) = decoder.receive_frame() else { return false };
    let Some(pcm) = frame.data.first() else { return false };
    let sample = |bytes: &[u8; 2]| f32::from(i16::from_le_bytes(*bytes)) / super::FULL_SCALE;
    samples.extend(pcm.as_chunks().0.iter().map(sample));
    samples.len() == FRAME_SAMPLES
}
