//! AMR narrowband and wideband (3GPP TS 26.071, 26.171) in the frames of files (RFC 4867, section 5): a
//! byte that says what the frame is, and its bits.

use std::io::{BufRead, BufReader, ErrorKind, Read};

use codec_core::codecs::amr::AmrCodec;
use codec_core::codecs::amr::mode::{AmrFrameType, AmrVariant};
use codec_core::{CodecConfig, CodecType, CodedFrame, FrameKind, VariableRateCodec as _};

use super::{Decoded, extend};
use crate::audio::error::Error;
use crate::audio::gather::{Ending, Gather};
use crate::audio::sniff::Band;

/// Bytes outside frames after which their proportion is checked.
const STRAY_BYTES_MAX: usize = 64;
/// The least frames of a stream for each byte outside frames: other bytes look like a frame now and then.
const FRAMES_TO_STRAY_BYTE: usize = 4;
/// Bits of a frame's first byte that are zero in all frames.
const PADDING: u8 = 0b1000_0011;

impl Band {
    fn variant(self) -> AmrVariant {
        match self {
            Self::Narrow => AmrVariant::NarrowBand,
            Self::Wide => AmrVariant::WideBand,
        }
    }

    fn magic(self) -> &'static [u8] {
        match self {
            Self::Narrow => b"#!AMR\n",
            Self::Wide => b"#!AMR-WB\n",
        }
    }

    pub fn sample_rate_hz(self) -> u32 {
        match self {
            Self::Narrow => 8_000,
            Self::Wide => 16_000,
        }
    }

    fn frame_samples(self) -> usize {
        self.sample_rate_hz() as usize / 50
    }
}

/// Decodes frames of one stream.
pub struct Frames {
    band: Band,
    codec: Box<AmrCodec>,
    /// The mode of the last frame with one.
    mode: u8,
}

impl Frames {
    /// # Errors
    /// [`Error::Unsupported`] if there is no such decoder.
    pub fn new(band: Band) -> Result<Self, Error> {
        let kind = match band {
            Band::Narrow => CodecType::AmrNb,
            Band::Wide => CodecType::AmrWb,
        };
        let codec =
            AmrCodec::new(&CodecConfig::new(kind)).map_err(|error| Error::Unsupported(error.to_string()))?;
        Ok(Self { band, codec: Box::new(codec), mode: 0 })
    }

    pub fn sample_rate_hz(&self) -> u32 {
        self.band.sample_rate_hz()
    }

    /// The type of the frame that begins with `header`; `None` if none does.
    fn frame_type(&self, header: u8) -> Option<AmrFrameType> {
        let index = (header >> 3) & 0x0F;
        (header & PADDING == 0).then(|| AmrFrameType::from_index(self.band.variant(), index).ok()).flatten()
    }

    /// Appends a frame's audio to `samples`; `false` if that is a guess.
    fn decode(&mut self, header: u8, kind: AmrFrameType, bits: &[u8], samples: &mut Vec<f32>) -> bool {
        let (kind, mode) = match kind {
            AmrFrameType::Speech(mode) => (FrameKind::Speech, mode.index()),
            AmrFrameType::Sid(_) => (FrameKind::ComfortNoise, self.mode),
            AmrFrameType::NoData => (FrameKind::NoData, self.mode),
            AmrFrameType::SpeechLost => (FrameKind::Lost, self.mode),
        };
        self.mode = mode;
        let quality_ok = header & 0b100 != 0;
        let frame = CodedFrame { kind, mode, quality_ok, data: bits.to_vec() };
        match self.codec.decode_frame(&frame) {
            Ok(pcm) => {
                extend(samples, &pcm);
                true
            }
            // Silence, so that times stay right.
            Err(_) => {
                samples.resize(samples.len() + self.band.frame_samples(), 0.0);
                false
            }
        }
    }

    /// Decodes a packet of whole frames, as in MP4; `false` if some of its bytes are not a frame.
    pub fn decode_packet(&mut self, packet: &[u8], samples: &mut Vec<f32>) -> bool {
        let mut rest = packet;
        while let Some((&header, after)) = rest.split_first() {
            let Some(kind) = self.frame_type(header) else { return false };
            let Some((bits, next)) = after.split_at_checked(kind.octet_aligned_bytes()) else { return false };
            if !self.decode(header, kind, bits, samples) {
                return false;
            }
            rest = next;
        }
        true
    }
}

/// Decodes a file, or frames without its first line.
///
/// # Errors
/// [`Error::Corrupt`] for bytes that are not AMR.
pub fn read(
    bytes: impl Read,
    band: Band,
    gather: &mut Gather,
    decoded: Decoded<'_>,
) -> Result<Ending, Error> {
    let mut bytes = BufReader::new(bytes);
    let mut frames = Frames::new(band)?;
    gather.begin(1, band.sample_rate_hz())?;
    let mut samples = Vec::new();
    let none = || Error::Corrupt("these are no frames of AMR".into());
    let (mut stray, mut good) = (0, 0);
    let mut header = [0];
    while bytes.read_exact(&mut header).is_ok() {
        let [header] = header;
        // No frame begins like this, and files may be concatenated.
        if Some(&header) == band.magic().first() {
            if !skip(&mut bytes, &band.magic()[1..]) {
                gather.mark_damaged();
                stray += 1;
            }
            continue;
        }
        let Some(kind) = frames.frame_type(header) else {
            gather.mark_damaged();
            stray += 1;
            if stray > STRAY_BYTES_MAX.max(good / FRAMES_TO_STRAY_BYTE) {
                return Err(none());
            }
            continue;
        };
        let mut bits = [0; 64];
        let Some(bits) = bits.get_mut(..kind.octet_aligned_bytes()) else { break };
        if let Err(error) = bytes.read_exact(bits) {
            if error.kind() == ErrorKind::UnexpectedEof {
                gather.mark_damaged();
            }
            break;
        }
        samples.clear();
        if frames.decode(header, kind, bits, &mut samples) {
            good += 1;
        } else {
            gather.mark_damaged();
        }
        gather.push(&mut samples)?;
        decoded(gather)?;
    }
    if stray * FRAMES_TO_STRAY_BYTE > good { Err(none()) } else { Ok(Ending::Whole) }
}

/// Skips `expected`; `false` if other bytes come instead.
fn skip(bytes: &mut impl BufRead, expected: &[u8]) -> bool {
    for expected in expected {
        match bytes.fill_buf().ok().and_then(|buffer| buffer.first()) {
            Some(byte) if byte == expected => bytes.consume(1),
            _ => return false,
        }
    }
    true
}
