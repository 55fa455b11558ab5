//! Raw samples, as the `encoding`, `sample_rate` and `channels` parameters describe them.

use super::error::Error;
use super::gather::Gather;
use super::limits::SAMPLE_RATES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawEncoding {
    /// Signed 16-bit, little-endian.
    Linear16,
    /// 32-bit float, little-endian.
    Linear32,
    /// G.711 μ-law.
    Mulaw,
    /// G.711 A-law.
    Alaw,
    /// Unsigned 8-bit, as in old WAVE files.
    Unsigned8,
    /// Signed 24-bit, little-endian.
    Linear24,
    /// Signed 32-bit, little-endian.
    Integer32,
    /// 64-bit float, little-endian.
    Float64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawFormat {
    pub encoding: RawEncoding,
    pub sample_rate_hz: u32,
    pub channels: u16,
}

/// Frames converted at a time.
const CHUNK_FRAMES: usize = 4096;

impl RawFormat {
    /// Bytes of one sample of every channel.
    pub(super) fn frame_bytes(&self) -> usize {
        self.encoding.width() * usize::from(self.channels.max(1))
    }
}

impl RawEncoding {
    /// Bytes of a sample.
    fn width(self) -> usize {
        match self {
            Self::Linear16 => 2,
            Self::Linear24 => 3,
            Self::Linear32 | Self::Integer32 => 4,
            Self::Float64 => 8,
            Self::Mulaw | Self::Alaw | Self::Unsigned8 => 1,
        }
    }
}

/// Reads whole frames, without an incomplete last one.
pub fn read(bytes: &[u8], format: RawFormat, gather: &mut Gather) -> Result<(), Error> {
    let channels = usize::from(format.channels.max(1));
    if !SAMPLE_RATES.contains(&format.sample_rate_hz) {
        return Err(Error::Corrupt(format!("a sample rate of {} Hz", format.sample_rate_hz)));
    }
    gather.begin(channels, format.sample_rate_hz)?;
    let convert: fn(&[u8]) -> f32 = match format.encoding {
        RawEncoding::Linear16 => |bytes| match *bytes {
            [a, b] => f32::from(i16::from_le_bytes([a, b])) / 32_768.0,
            _ => 0.0,
        },
        RawEncoding::Linear32 => |bytes| match *bytes {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => 0.0,
        },
        RawEncoding::Mulaw => |bytes| f32::from(mulaw(bytes[0])) / 32_768.0,
        RawEncoding::Alaw => |bytes| f32::from(alaw(bytes[0])) / 32_768.0,
        RawEncoding::Unsigned8 => |bytes| (f32::from(bytes[0]) - 128.0) / 128.0,
        RawEncoding::Linear24 => |bytes| match *bytes {
            [a, b, c] => (i32::from_le_bytes([0, a, b, c]) >> 8) as f32 / 8_388_608.0,
            _ => 0.0,
        },
        RawEncoding::Integer32 => |bytes| match *bytes {
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]) as f32 / 2_147_483_648.0,
            _ => 0.0,
        },
        RawEncoding::Float64 => |bytes| match *bytes {
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            _ => 0.0,
        },
    };
    let width = format.encoding.width();
    let whole = bytes.len() - bytes.len() % format.frame_bytes();
    let mut samples = Vec::with_capacity((whole / width).min(CHUNK_FRAMES * channels));
    for chunk in bytes[..whole].chunks(CHUNK_FRAMES * channels * width) {
        samples.clear();
        samples.extend(chunk.chunks_exact(width).map(convert));
        gather.push(&mut samples)?;
    }
    Ok(())
}

/// ITU-T G.711, table 2a, expanded to 16 bits.
pub fn mulaw(code: u8) -> i16 {
    const BIAS: i16 = 0x84;
    let code = !code;
    let magnitude = ((i16::from(code & 0x0F) << 3) + BIAS) << ((code >> 4) & 7);
    if code & 0x80 == 0 { magnitude - BIAS } else { BIAS - magnitude }
}

/// ITU-T G.711, table 1a, expanded to 16 bits.
pub fn alaw(code: u8) -> i16 {
    let code = code ^ 0x55;
    let mantissa = i16::from(code & 0x0F) << 4;
    let magnitude = match (code >> 4) & 7 {
        0 => mantissa + 8,
        exponent => (mantissa + 0x108) << (exponent - 1),
    };
    if code & 0x80 == 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g711_codes_have_their_values() {
        // Ends, zeros and a step of each segment, from the recommendation's tables.
        for (code, value) in [(0x00, -32_124), (0x80, 32_124), (0xFF, 0), (0x7F, 0), (0xF0, 120), (0xE0, 372)]
        {
            assert_eq!(mulaw(code), value, "mu-law {code:#x}");
        }
        for (code, value) in [(0xD5, 8), (0x55, -8), (0xAA, 32_256), (0x2A, -32_256), (0xC5, 264)] {
            assert_eq!(alaw(code), value, "A-law {code:#x}");
        }
    }
}
