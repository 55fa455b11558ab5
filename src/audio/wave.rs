//! The header of a WAVE file (Microsoft, "Multiple channel audio data and WAVE files"), for streams: what
//! its samples are and where they begin. How many there will be is told there too, by clients that cannot
//! know it or mean something else by it: nothing is made of that.

use super::decode::Error;
use super::raw::{RawEncoding, RawFormat};

/// What stands before the samples may be so long: some programs put pictures there.
pub const HEADER_BYTES_MAX: usize = 1 << 20;

const PCM: u16 = 1;
const FLOAT: u16 = 3;
const ALAW: u16 = 6;
const MULAW: u16 = 7;
/// The format's number is the first two bytes of its GUID.
const EXTENSIBLE: u16 = 0xFFFE;

/// What the samples are and where the first of them is; `None` where more must come to know it. `bytes`
/// begin with `RIFF`.
///
/// # Errors
/// [`Error::Unsupported`] for a coding that is not read, [`Error::Corrupt`] for a header that makes no
/// sense.
pub fn header(bytes: &[u8]) -> Result<Option<(RawFormat, usize)>, Error> {
    let mut format = None;
    let mut at = 12_usize;
    while let Some(&[a, b, c, d, s0, s1, s2, s3]) = bytes.get(at..at.saturating_add(8)) {
        let (size, body) = (u32::from_le_bytes([s0, s1, s2, s3]) as usize, at + 8);
        match &[a, b, c, d] {
            b"data" => {
                let format = format.ok_or_else(|| Error::Corrupt("it has no format chunk".into()))?;
                return Ok(Some((format, body)));
            }
            b"fmt " => match bytes.get(body..body.saturating_add(size)) {
                Some(chunk) => format = Some(described(chunk)?),
                None if size > 4096 => return Err(Error::Corrupt("its header makes no sense".into())),
                None => return Ok(None),
            },
            _ => {}
        }
        // Chunks are padded to whole 16-bit words.
        at = body.saturating_add(size).saturating_add(size & 1);
    }
    if at > HEADER_BYTES_MAX { Err(Error::Corrupt("its header has no end".into())) } else { Ok(None) }
}

fn described(chunk: &[u8]) -> Result<RawFormat, Error> {
    let nonsense = || Error::Corrupt("its header makes no sense".into());
    let &[t0, t1, c0, c1, r0, r1, r2, r3, _, _, _, _, a0, a1, _, _, ref more @ ..] = chunk else {
        return Err(nonsense());
    };
    let mut tag = u16::from_le_bytes([t0, t1]);
    if tag == EXTENSIBLE {
        let &[_, _, _, _, _, _, _, _, low, high, ..] = more else { return Err(nonsense()) };
        tag = u16::from_le_bytes([low, high]);
    }
    let (channels, frame_bytes) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([a0, a1]));
    // Samples stand at the upper end of as many bytes as a frame has for each.
    if channels == 0 || frame_bytes == 0 || frame_bytes % channels != 0 {
        return Err(nonsense());
    }
    let encoding = match (tag, frame_bytes / channels) {
        (PCM, 1) => RawEncoding::Unsigned8,
        (PCM, 2) => RawEncoding::Linear16,
        (PCM, 3) => RawEncoding::Linear24,
        (PCM, 4) => RawEncoding::Integer32,
        (FLOAT, 4) => RawEncoding::Linear32,
        (FLOAT, 8) => RawEncoding::Float64,
        (ALAW, 1) => RawEncoding::Alaw,
        (MULAW, 1) => RawEncoding::Mulaw,
        (PCM | FLOAT | ALAW | MULAW, _) => return Err(nonsense()),
        _ => return Err(Error::Unsupported),
    };
    Ok(RawFormat { encoding, sample_rate_hz: u32::from_le_bytes([r0, r1, r2, r3]), channels })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(tag: u16, channels: u16, bytes: u16, extra: &[u8]) -> Vec<u8> {
        let mut chunk = Vec::new();
        chunk.extend(tag.to_le_bytes());
        chunk.extend(channels.to_le_bytes());
        chunk.extend(8_000_u32.to_le_bytes());
        chunk.extend((8_000 * u32::from(channels * bytes)).to_le_bytes());
        chunk.extend((channels * bytes).to_le_bytes());
        chunk.extend((bytes * 8).to_le_bytes());
        chunk.extend(extra);
        let size = (chunk.len() as u32).to_le_bytes();
        // A chunk of an odd length stands before.
        [b"RIFF\0\0\0\0WAVELIST\x03\0\0\0abc\0fmt ", &size[..], &chunk, b"data\x04\0\0\0"].concat()
    }

    #[test]
    fn every_coding_is_known_by_its_numbers() {
        let extensible = [&[22, 0, 24, 0, 4, 0, 0, 0, 1, 0][..], &[0; 14]].concat();
        for (tag, channels, bytes, extra, expected) in [
            (1, 1, 1, &[][..], RawEncoding::Unsigned8),
            (1, 2, 2, &[], RawEncoding::Linear16),
            (1, 1, 3, &[0, 0], RawEncoding::Linear24),
            (1, 1, 4, &[], RawEncoding::Integer32),
            (3, 2, 4, &[], RawEncoding::Linear32),
            (3, 1, 8, &[], RawEncoding::Float64),
            (6, 1, 1, &[], RawEncoding::Alaw),
            (7, 2, 1, &[], RawEncoding::Mulaw),
            (0xFFFE, 1, 3, &extensible, RawEncoding::Linear24),
        ] {
            let file = file(tag, channels, bytes, extra);
            let format = RawFormat { encoding: expected, sample_rate_hz: 8_000, channels };
            assert_eq!(header(&file), Ok(Some((format, file.len()))), "{tag} {bytes}");
            for short in 12..file.len() - 1 {
                assert_eq!(header(&file[..short]), Ok(None), "{short} bytes of {tag}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(header(&file(2, 1, 1, &[])), Err(Error::Unsupported));
        for wrong in [file(1, 0, 2, &[]), file(1, 1, 0, &[]), file(1, 1, 5, &[]), file(0xFFFE, 1, 2, &[])] {
            assert!(matches!(header(&wrong), Err(Error::Corrupt(_))));
        }
        assert!(header(b"RIFF\0\0\0\0WAVEdata\0\0\0\0").is_err());
        assert!(header(b"RIFF\0\0\0\0WAVELIST\xFF\xFF\xFF\xFF").is_err());
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 12_usize..60) {
            let mut file = file(1, 2, 2, &[]);
            file.truncate(cut);
            file.extend(bytes);
            let _ = header(&file);
        }
    }
}
