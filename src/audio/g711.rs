//! μ-law and A-law of ITU-T G.711, the codings of telephone lines.

pub use super::raw::{alaw as alaw_to_linear, mulaw as mulaw_to_linear};

/// The μ-law code nearest to a 16-bit sample (ITU-T G.711, table 2a).
pub fn linear_to_mulaw(sample: i16) -> u8 {
    const BIAS: i32 = 0x84;
    /// The largest magnitude that has a code.
    const CLIP: i32 = 32_635;
    let sample = i32::from(sample);
    let sign = if sample < 0 { 0x80 } else { 0 };
    let magnitude = sample.abs().min(CLIP) + BIAS;
    // The biased magnitude has its highest bit at 7 to 14.
    let segment = 24 - magnitude.leading_zeros() as i32;
    let step = (magnitude >> (segment + 3)) & 0x0F;
    // All parts are within one byte.
    !(sign | (segment << 4) | step) as u8
}

/// The A-law code nearest to a 16-bit sample (ITU-T G.711, table 1a).
pub fn linear_to_alaw(sample: i16) -> u8 {
    /// Every other bit of a code is inverted.
    const INVERTED: u8 = 0x55;
    let sample = i32::from(sample);
    // The sign bit is set where the sample is not negative; magnitudes are of 12 bits.
    let (sign, magnitude) = if sample < 0 { (0x00, (-1 - sample) >> 4) } else { (0x80, sample >> 4) };
    // Segments after the first are those whose highest bit is the fourth to the tenth.
    let segment = (28 - magnitude.leading_zeros() as i32).max(0);
    let step = (magnitude >> (segment - 1).max(0)) & 0x0F;
    // All parts are within one byte.
    (sign | (segment << 4) | step) as u8 ^ INVERTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_alaw_comes_back_and_every_sample_is_near() {
        for code in 0..=255_u8 {
            assert_eq!(linear_to_alaw(alaw_to_linear(code)), code, "{code:#x}");
        }
        for sample in (i16::MIN..=i16::MAX).step_by(7) {
            let back = i32::from(alaw_to_linear(linear_to_alaw(sample)));
            let error = (back - i32::from(sample)).abs();
            assert!(error <= i32::from(sample).abs() / 32 + 8, "{sample}: {back}");
        }
    }

    #[test]
    fn every_code_comes_back_and_every_sample_is_near() {
        for code in 0..=255_u8 {
            let sample = mulaw_to_linear(code);
            // There are two zeros.
            let expected = if code == 0x7F { 0xFF } else { code };
            assert_eq!(linear_to_mulaw(sample), expected, "{code:#x}");
        }
        for sample in (i16::MIN..=i16::MAX).step_by(7) {
            let back = i32::from(mulaw_to_linear(linear_to_mulaw(sample)));
            let error = (back - i32::from(sample)).abs();
            // Half a step of the segment; samples beyond the loudest code are clamped.
            assert!(error <= i32::from(sample).abs() / 16 + 4 + 644, "{sample}: {back}");
        }
    }
}
