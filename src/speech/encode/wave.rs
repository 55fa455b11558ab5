//! The head of a WAVE file (Microsoft, "Multiple channel audio data and WAVE files").

use super::format::Coding;

const PCM: u16 = 0x0001;
const ALAW: u16 = 0x0006;
const MULAW: u16 = 0x0007;
/// The length of what is written while it is made: readers go on to the end of the file.
const OPEN: u32 = u32::MAX;

/// The head of a mono file. `frames`: how many samples follow, if that is known.
pub fn head(coding: Coding, sample_rate_hz: u32, frames: Option<u32>) -> Vec<u8> {
    let (tag, width): (u16, u16) = match coding {
        Coding::Mulaw => (MULAW, 1),
        Coding::Alaw => (ALAW, 1),
        _ => (PCM, 2),
    };
    // All but PCM have the size of further fields, here none, and the number of samples in a chunk of its own.
    let is_pcm = tag == PCM;
    let mut fields = Vec::new();
    fields.extend_from_slice(b"WAVEfmt ");
    fields.extend(if is_pcm { 16_u32 } else { 18 }.to_le_bytes());
    fields.extend(tag.to_le_bytes());
    fields.extend(1_u16.to_le_bytes());
    fields.extend(sample_rate_hz.to_le_bytes());
    fields.extend((sample_rate_hz * u32::from(width)).to_le_bytes());
    fields.extend(width.to_le_bytes());
    fields.extend((width * 8).to_le_bytes());
    if !is_pcm {
        fields.extend(0_u16.to_le_bytes());
        fields.extend_from_slice(b"fact");
        fields.extend(4_u32.to_le_bytes());
        fields.extend(frames.unwrap_or(OPEN).to_le_bytes());
    }
    fields.extend_from_slice(b"data");
    let data = frames.map(|frames| frames.saturating_mul(u32::from(width)));
    let whole = data.map(|data| data.saturating_add(fields.len() as u32 + 4));
    let mut head = b"RIFF".to_vec();
    head.extend(whole.unwrap_or(OPEN).to_le_bytes());
    head.extend(fields);
    head.extend(data.unwrap_or(OPEN).to_le_bytes());
    head
}
