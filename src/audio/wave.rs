//! WAVE files (Microsoft, "Multiple channel audio data and WAVE files"; EBU Tech 3306 for RF64): the format
//! and the place of their samples.

use super::error::Error;
use super::raw::{RawEncoding, RawFormat};
use super::sniff::foreign;

/// The most bytes before the samples: some programs put pictures there.
pub const HEADER_BYTES_MAX: usize = 1 << 20;

const PCM: u16 = 0x0001;
const MS_ADPCM: u16 = 0x0002;
const FLOAT: u16 = 0x0003;
const ALAW: u16 = 0x0006;
const MULAW: u16 = 0x0007;
const IMA_ADPCM: u16 = 0x0011;
const MPEG: u16 = 0x0050;
const MP3: u16 = 0x0055;
/// The format's number is the first two bytes of its GUID.
const EXTENSIBLE: u16 = 0xFFFE;

/// A length from here on was unknown to its writer, which could not seek back in a pipe.
const UNKNOWN_LENGTH: u64 = 0x7FFF_0000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub coding: Coding,
    /// The offset of the audio.
    pub start: usize,
    /// The number of its bytes; `None` if the header leaves it open.
    bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Samples(RawFormat),
    /// Frames of MPEG audio.
    Mpeg,
    /// Microsoft's or IMA's, in blocks.
    Adpcm,
}

impl Header {
    /// The audio in `file`, and whether all of it is there.
    pub fn audio<'a>(&self, file: &'a [u8]) -> (&'a [u8], bool) {
        let rest = file.get(self.start..).unwrap_or(&[]);
        match self.bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) {
            // Written before the first sample, and never corrected.
            Some(0) if !begins_a_chunk(rest) => (rest, true),
            Some(bytes) => (rest.get(..bytes).unwrap_or(rest), bytes <= rest.len()),
            None => (rest, true),
        }
    }
}

fn begins_a_chunk(bytes: &[u8]) -> bool {
    let name = bytes.get(..4).unwrap_or(&[]);
    name.len() < 4 || name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b' ')
}

/// The header of the file that begins with `bytes`; `None` if it takes more bytes to know.
///
/// # Errors
/// [`Error::Unsupported`] for an unsupported coding, [`Error::Corrupt`] for a header that makes no
/// sense.
pub fn header(bytes: &[u8]) -> Result<Option<Header>, Error> {
    let mut coding = None;
    let mut large = None;
    let mut at = 12_usize;
    while let Some(&[a, b, c, d, s0, s1, s2, s3]) = bytes.get(at..at.saturating_add(8)) {
        let (size, body) = (u32::from_le_bytes([s0, s1, s2, s3]), at + 8);
        let length = size as usize;
        match &[a, b, c, d] {
            b"data" => {
                let coding = coding.ok_or_else(|| Error::Corrupt("it has no format chunk".into()))?;
                let told = large.filter(|_| size == u32::MAX).or(Some(u64::from(size)));
                let bytes = told.filter(|bytes| large.is_some() || *bytes < UNKNOWN_LENGTH);
                return Ok(Some(Header { coding, start: body, bytes }));
            }
            b"fmt " => match bytes.get(body..body.saturating_add(length)) {
                Some(chunk) => coding = Some(described(chunk)?),
                None if length > 4096 => return Err(Error::Corrupt("its header makes no sense".into())),
                None => return Ok(None),
            },
            // The lengths of a file that is larger than 4 GiB: the second is that of its data.
            b"ds64" => match bytes.get(body + 8..body + 16) {
                Some(bytes) => large = bytes.try_into().ok().map(u64::from_le_bytes),
                None => return Ok(None),
            },
            _ => {}
        }
        // Chunks are padded to whole 16-bit words.
        at = body.saturating_add(length).saturating_add(length & 1);
    }
    if at > bytes.len().max(HEADER_BYTES_MAX) {
        Err(Error::Corrupt("its header has no end".into()))
    } else {
        Ok(None)
    }
}

fn described(chunk: &[u8]) -> Result<Coding, Error> {
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
    match tag {
        PCM | FLOAT | ALAW | MULAW => {}
        MPEG | MP3 => return Ok(Coding::Mpeg),
        MS_ADPCM | IMA_ADPCM => return Ok(Coding::Adpcm),
        tag => return Err(Error::Unsupported(foreign::in_wave(tag))),
    }
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
        _ => return Err(nonsense()),
    };
    let format = RawFormat { encoding, sample_rate_hz: u32::from_le_bytes([r0, r1, r2, r3]), channels };
    Ok(Coding::Samples(format))
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
            let coding = Coding::Samples(RawFormat { encoding: expected, sample_rate_hz: 8_000, channels });
            let expected = Header { coding, start: file.len(), bytes: Some(4) };
            assert_eq!(header(&file), Ok(Some(expected)), "{tag} {bytes}");
            for short in 12..file.len() - 1 {
                assert_eq!(header(&file[..short]), Ok(None), "{short} bytes of {tag}");
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(header(&file(0x31, 1, 1, &[])), Err(Error::Unsupported("WAV with GSM 6.10".into())));
        for wrong in [file(1, 0, 2, &[]), file(1, 1, 0, &[]), file(1, 1, 5, &[]), file(0xFFFE, 1, 2, &[])] {
            assert!(matches!(header(&wrong), Err(Error::Corrupt(_))));
        }
        assert!(header(b"RIFF\0\0\0\0WAVEdata\0\0\0\0").is_err());
        assert!(header(b"RIFF\0\0\0\0WAVELIST\xFF\xFF\xFF\xFF").is_err());
    }

    #[test]
    fn the_length_is_believed_where_it_can_be() {
        let of = |magic: &[u8], size: u32, ds64: Option<u64>| {
            let mut file = [magic, b"\0\0\0\0WAVE"].concat();
            if let Some(data) = ds64 {
                let lengths = [&[0; 8][..], &data.to_le_bytes(), &[0; 12]].concat();
                file.extend([&b"ds64"[..], &28_u32.to_le_bytes(), &lengths].concat());
            }
            file.extend(b"fmt \x10\0\0\0\x01\0\x01\0\x40\x1F\0\0\x80\x3E\0\0\x02\0\x10\0data");
            file.extend(size.to_le_bytes());
            file.extend(b"\x01\x02\x03\x04LIST");
            let header = header(&file).expect("a header").expect("whole");
            let (audio, is_whole) = header.audio(&file);
            (audio.len(), is_whole)
        };
        assert_eq!(of(b"RIFF", 4, None), (4, true));
        assert_eq!(of(b"RIFF", 20, None), (8, false));
        for unknown in [0, u32::MAX, 0x7FFF_FFFF, 0x7FFF_F000] {
            assert_eq!(of(b"RIFF", unknown, None), (8, true), "{unknown:#x}");
        }
        assert_eq!(of(b"RF64", u32::MAX, Some(4)), (4, true));
        assert_eq!(of(b"BW64", u32::MAX, Some(5 << 32)), (8, false));
        // Without a sample, and with a chunk behind.
        let empty = [
            &b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1F\0\0\x80\x3E\0\0\x02\0\x10\0"[..],
            b"data\0\0\0\0LIST\x04\0\0\0abcd",
        ]
        .concat();
        let header = header(&empty).expect("a header").expect("whole");
        assert_eq!(header.audio(&empty), (&[][..], true));
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
