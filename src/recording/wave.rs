//! The head of a WAVE file of two channels of 16 bits (RIFF, Microsoft's `WAVE_FORMAT_PCM`).

use crate::audio::SAMPLE_RATE;

pub const HEAD_BYTES: u64 = 44;
pub const CHANNELS: u16 = 2;
/// A sample of each channel.
pub const FRAME_BYTES: u64 = 2 * CHANNELS as u64;

/// For this many bytes of samples.
pub fn head(bytes: u64) -> [u8; HEAD_BYTES as usize] {
    let samples = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut head = [0; HEAD_BYTES as usize];
    let parts: [&[u8]; 12] = [
        b"RIFF",
        &samples.saturating_add(36).to_le_bytes(),
        b"WAVEfmt ",
        &16_u32.to_le_bytes(),
        &1_u16.to_le_bytes(),
        &CHANNELS.to_le_bytes(),
        &SAMPLE_RATE.to_le_bytes(),
        &(SAMPLE_RATE * FRAME_BYTES as u32).to_le_bytes(),
        &(FRAME_BYTES as u16).to_le_bytes(),
        &16_u16.to_le_bytes(),
        b"data",
        &samples.to_le_bytes(),
    ];
    head.copy_from_slice(&parts.concat());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::{DecodeOptions, Limits, decode};

    #[test]
    fn the_file_is_read_as_two_channels() {
        let frames = u64::from(SAMPLE_RATE);
        let samples: Vec<u8> =
            (0..frames).flat_map(|_| [1000_i16.to_le_bytes(), (-2000_i16).to_le_bytes()].concat()).collect();
        let file = [&head(frames * FRAME_BYTES)[..], &samples].concat();
        let options = DecodeOptions { raw: None, split_channels: true, limits: Limits::default() };
        let decoded = decode(file.into(), &options).expect("a file");
        let means: Vec<f32> = decoded
            .channels
            .iter()
            .map(|sound| sound.pcm(..).samples().iter().sum::<f32>() / frames as f32 * 32_768.0)
            .collect();
        assert!((means[0] - 1000.0).abs() < 2.0 && (means[1] + 2000.0).abs() < 2.0, "{means:?}");
    }
}
