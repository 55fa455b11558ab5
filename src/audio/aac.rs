//! HE-AAC decoded as its AAC-LC core (ISO/IEC 14496-3, 1.6.2.1). The upper half of the spectrum, which is
//! synthesised from the lower one, and parametric stereo are left out: voices are in the core.

const LOW_COMPLEXITY: u32 = 2;
const SPECTRAL_BAND_REPLICATION: u32 = 5;
const PARAMETRIC_STEREO: u32 = 29;

/// The description of a stream's core, given that of the stream; `None` if the core is not AAC-LC.
pub fn core(config: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { bytes: config, at: 0 };
    let mut object_type = bits.object_type()?;
    let rate = bits.rate()?;
    let channels = bits.take(4)?;
    if matches!(object_type, SPECTRAL_BAND_REPLICATION | PARAMETRIC_STEREO) {
        bits.rate()?;
        object_type = bits.object_type()?;
    }
    if object_type != LOW_COMPLEXITY {
        return None;
    }
    let frames = bits.take(3)?;
    let fields = [
        (object_type, 5),
        (rate.0, 4),
        (rate.1, if rate.0 == 15 { 24 } else { 0 }),
        (channels, 4),
        (frames, 3),
    ];
    let (length, value) = fields.iter().fold((0, 0_u64), |(length, value), (field, width)| {
        (length + width, value << width | u64::from(*field))
    });
    // Both lengths are whole bytes: 2 or 5.
    value.to_be_bytes().get(8 - length / 8..).map(<[u8]>::to_vec)
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    fn object_type(&mut self) -> Option<u32> {
        match self.take(5)? {
            31 => Some(32 + self.take(6)?),
            other => Some(other),
        }
    }

    /// The index of a rate, and the rate itself if it has none.
    fn rate(&mut self) -> Option<(u32, u32)> {
        match self.take(4)? {
            15 => Some((15, self.take(24)?)),
            other => Some((other, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_described_alone() {
        // AAC-LC, 44.1 kHz, stereo; with and without a note that there is no more to it.
        assert_eq!(core(&[0x12, 0x10]), Some(vec![0x12, 0x10]));
        assert_eq!(core(&[0x13, 0x08, 0x56, 0xE5, 0x00]), Some(vec![0x13, 0x08]));
        // HE-AAC: 5, 24 kHz, mono, 48 kHz, 2.
        assert_eq!(core(&[0x2B, 0x09, 0x88, 0x00]), Some(vec![0x13, 0x08]));
        // HE-AAC v2 of the same.
        assert_eq!(core(&[0xEB, 0x09, 0x88, 0x00]), Some(vec![0x13, 0x08]));
        // A rate of its own: 24 bits of it.
        assert_eq!(core(&[0x17, 0x80, 0x2B, 0x11, 0x08]), Some(vec![0x17, 0x80, 0x2B, 0x11, 0x08]));
        // Main profile, low delay, and what breaks off.
        for other in [&[0x0A, 0x10][..], &[0xB9, 0x88], &[0x12], &[]] {
            assert_eq!(core(other), None, "{other:?}");
        }
    }
}
