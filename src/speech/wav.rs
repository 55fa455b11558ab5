//! Speech audio: its sample rate, and samples from the PCM and WAV data that voices produce.

use crate::audio::RateConverter;

/// Sample rate of all speech, in hertz: the default of speech interfaces.
pub const VOICE_RATE: u32 = 24_000;

/// Audio of one sentence, in bytes: one minute as 32-bit samples.
pub const AUDIO_BYTES_MAX: usize = 60 * VOICE_RATE as usize * 4;

/// 16-bit little-endian samples.
pub fn linear16(bytes: &[u8]) -> Vec<f32> {
    let (samples, _) = bytes.as_chunks::<2>();
    samples.iter().map(|sample| f32::from(i16::from_le_bytes(*sample)) / 32_768.0).collect()
}

/// Reads a mono 16-bit WAV and ignores a wrong length in its header: programs that write to a pipe cannot know
/// the length in advance.
pub fn read_wav(bytes: &[u8]) -> Option<Vec<f32>> {
    let rest = bytes.strip_prefix(b"RIFF")?.get(4..)?.strip_prefix(b"WAVE")?;
    let mut rate_hz = None;
    let mut rest = rest;
    loop {
        let (head, body) = rest.split_at_checked(8)?;
        let (name, length) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        if name == b"fmt " {
            let [1, 0, 1, 0, a, b, c, d] = *body.get(..8)? else { return None };
            let [16, 0] = *body.get(14..16)? else { return None };
            rate_hz = Some(u32::from_le_bytes([a, b, c, d]));
        }
        if name == b"data" {
            let samples = linear16(body.get(..length).unwrap_or(body));
            let mut converter = RateConverter::new(rate_hz?, VOICE_RATE).ok()?;
            let mut output = converter.push(&samples);
            output.extend(converter.finish());
            return Some(if rate_hz == Some(VOICE_RATE) { samples } else { output });
        }
        rest = body.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_of_unknown_length_is_read() {
        let mut wav = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        wav.extend(VOICE_RATE.to_le_bytes());
        wav.extend([0, 0, 0, 0, 2, 0, 16, 0]);
        wav.extend(b"data\xff\xff\xff\x7f\0\x40\0\xc0");
        assert_eq!(read_wav(&wav), Some(vec![0.5, -0.5]));
        for at in 0..wav.len() - 4 {
            assert!(read_wav(&wav[..at]).is_none_or(|samples| samples.is_empty()), "{at}");
        }
    }
}
