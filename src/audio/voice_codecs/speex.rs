//! Speex (RFC 5574): packets in Ogg, or one to a message.

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use oxideav_speex::{DecodedFrame, SpeexDecoder, SpeexHeader, UltraWidebandDecoder, UwbDecodedFrame};

use super::{Decoded, extend};
use crate::audio::error::Error;
use crate::audio::gather::{Ending, Gather};
use crate::audio::limits::MAX_CHAINED;
use crate::audio::ogg;
use crate::audio::options::SpeechCoding;

/// Invalid packets in a row after which the bytes are taken for another format.
const BROKEN_MAX: usize = 25;
/// The longest packet: 255 frames of the highest bit rate are shorter.
const PACKET_BYTES_MAX: usize = 1 << 15;

/// Decodes packets of one stream.
pub struct Packets {
    decoder: Decoder,
    sample_rate_hz: u32,
    samples: Vec<f32>,
    broken: usize,
}

enum Decoder {
    /// Each frame says whether it is narrowband or wideband.
    Wide(Box<SpeexDecoder>),
    Ultra(Box<UltraWidebandDecoder>),
}

impl Decoder {
    fn new(sample_rate_hz: u32) -> Self {
        match sample_rate_hz {
            32_000 => Self::Ultra(Box::default()),
            _ => Self::Wide(Box::default()),
        }
    }

    /// `None` if `packet` is not one.
    fn decode(&mut self, packet: &[u8], sample_rate_hz: u32, samples: &mut Vec<f32>) -> Option<()> {
        match self {
            Self::Ultra(decoder) => {
                for frame in decoder.decode_packet(packet).ok()? {
                    if let UwbDecodedFrame::Audio(frame) = frame {
                        extend(samples, &frame.uwb_pcm_i16());
                    }
                }
            }
            Self::Wide(decoder) => {
                for frame in decoder.decode_packet(packet).ok()? {
                    let Some(pcm) = frame.pcm_i16() else { continue };
                    // A wideband stream may leave out the upper band of a frame, and a narrowband one has none.
                    match (&frame, sample_rate_hz) {
                        (DecodedFrame::Narrowband(_), 16_000) => {
                            let doubled: Vec<i16> = pcm.iter().flat_map(|&sample| [sample; 2]).collect();
                            extend(samples, &doubled);
                        }
                        (DecodedFrame::Wideband { .. }, 8_000) => {
                            let halved: Vec<i16> = pcm.iter().copied().step_by(2).collect();
                            extend(samples, &halved);
                        }
                        _ => extend(samples, &pcm),
                    }
                }
            }
        }
        Some(())
    }
}

impl Packets {
    /// # Errors
    /// [`Error::Unsupported`] for other rates than 8, 16 and 32 kHz.
    pub fn new(sample_rate_hz: u32) -> Result<Self, Error> {
        SpeechCoding::Speex { sample_rate_hz }.check()?;
        let decoder = Decoder::new(sample_rate_hz);
        Ok(Self { decoder, sample_rate_hz, samples: Vec::new(), broken: 0 })
    }

    /// Decodes one packet. A few broken ones are 20 ms of silence each.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if none of many is a packet.
    pub fn push(&mut self, packet: &[u8], gather: &mut Gather) -> Result<(), Error> {
        self.samples.clear();
        let (decoder, rate, samples) = (&mut self.decoder, self.sample_rate_hz, &mut self.samples);
        let decode = AssertUnwindSafe(|| match packet.len() {
            1..=PACKET_BYTES_MAX => decoder.decode(packet, rate, samples),
            _ => None,
        });
        match catch_unwind(decode) {
            Ok(Some(())) => self.broken = 0,
            broken => {
                // Half a frame may be in it.
                if broken.is_err() {
                    self.decoder = Decoder::new(rate);
                }
                self.broken += 1;
                if self.broken >= BROKEN_MAX {
                    return Err(Error::Corrupt("these are no packets of Speex".into()));
                }
                gather.mark_damaged();
                self.samples.clear();
                self.samples.resize(rate as usize / 50, 0.0);
            }
        }
        gather.begin(1, rate)?;
        gather.push(&mut self.samples)
    }
}

/// Decodes a file, and those that are chained to it.
///
/// # Errors
/// [`Error::Corrupt`] for bytes that are not Speex.
pub fn read(bytes: impl Read, gather: &mut Gather, decoded: Decoded<'_>) -> Result<Ending, Error> {
    let mut reader = ogg::Packets::new(bytes);
    let mut packets: Option<Packets> = None;
    // Comments, and headers of extensions that no encoder writes.
    let mut headers = 0;
    let mut chained = 0.0;
    while let Some(packet) = reader.next() {
        if packet.begins_stream {
            let Ok(header) = SpeexHeader::parse(&packet.bytes) else { continue };
            chained += 1.0;
            if chained > MAX_CHAINED + gather.seconds() {
                gather.mark_damaged();
                return Ok(Ending::Broken);
            }
            reader.keep(packet.serial);
            headers = 1 + header.extra_headers.min(16);
            packets = Some(Packets::new(header.mode_sampling_rate_hz().unwrap_or(header.rate))?);
            decoded(gather)?;
        } else if headers > 0 {
            headers -= 1;
        } else if let Some(packets) = &mut packets {
            match packets.push(&packet.bytes, gather) {
                Ok(()) => decoded(gather)?,
                // A chained stream of another rate: the audio so far is kept.
                Err(Error::Corrupt(_)) if !gather.is_empty() => {
                    gather.mark_damaged();
                    return Ok(Ending::Broken);
                }
                Err(error) => return Err(error),
            }
        }
    }
    if reader.is_damaged() {
        gather.mark_damaged();
    }
    Ok(Ending::Whole)
}
