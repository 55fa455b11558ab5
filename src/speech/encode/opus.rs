//! Opus in Ogg (RFC 7845), at 48 kHz.

use ::opus::{Application, Bitrate, Channels, Encoder, Signal};
use ogg::writing::{PacketWriteEndInfo, PacketWriter};

use super::code::{Code, Error};

pub const SAMPLE_RATE_HZ: u32 = 48_000;
/// Samples of a packet, 20 ms.
const FRAME: usize = SAMPLE_RATE_HZ as usize / 50;
/// More than any packet takes up (RFC 6716, section 3.4).
const PACKET_BYTES_MAX: usize = 4000;
/// Packets on a page: a reader gets a page at once.
const PAGE_PACKETS: u64 = 10;

pub struct OggOpus {
    encoder: Encoder,
    pages: PacketWriter<'static, Vec<u8>>,
    serial: u32,
    /// The encoder's delay, in samples.
    delay: u64,
    /// Less than a packet, and one packet more while it may be the last.
    pending: Vec<f32>,
    samples: u64,
    packets: u64,
}

impl OggOpus {
    /// # Errors
    /// The library refuses the bit rate.
    pub fn new(bits_per_second: u32, serial: u32) -> Result<Self, Error> {
        let mut encoder = Encoder::new(SAMPLE_RATE_HZ, Channels::Mono, Application::Voip).map_err(failed)?;
        let bits = i32::try_from(bits_per_second).unwrap_or(i32::MAX);
        encoder.set_bitrate(Bitrate::Bits(bits)).map_err(failed)?;
        encoder.set_signal(Signal::Voice).map_err(failed)?;
        let delay = u64::try_from(encoder.get_lookahead().map_err(failed)?).unwrap_or(0);
        let pages = PacketWriter::new(Vec::new());
        Ok(Self { encoder, pages, serial, delay, pending: Vec::new(), samples: 0, packets: 0 })
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.pages.inner_mut())
    }

    /// Writes a packet of `samples`; `end`: the position at which the stream ends, with its last packet.
    fn packet(&mut self, samples: &[f32], end: Option<u64>) -> Result<(), Error> {
        let packet = self.encoder.encode_vec_float(samples, PACKET_BYTES_MAX).map_err(failed)?;
        self.packets += 1;
        let info = match end {
            Some(_) => PacketWriteEndInfo::EndStream,
            None if self.packets.is_multiple_of(PAGE_PACKETS) => PacketWriteEndInfo::EndPage,
            None => PacketWriteEndInfo::NormalPacket,
        };
        let position = end.unwrap_or(self.packets * FRAME as u64);
        self.pages.write_packet(packet, self.serial, info, position).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Codec("opus", error.to_string())
}

impl Code for OggOpus {
    fn head(&mut self, _samples: Option<u64>) -> Result<Vec<u8>, Error> {
        let skip = u16::try_from(self.delay).unwrap_or(0);
        let mut head = b"OpusHead\x01\x01".to_vec();
        head.extend(skip.to_le_bytes());
        head.extend(SAMPLE_RATE_HZ.to_le_bytes());
        // No gain; one stream of one channel.
        head.extend([0, 0, 0]);
        let vendor = b"Verbatim";
        let mut tags = b"OpusTags".to_vec();
        tags.extend((vendor.len() as u32).to_le_bytes());
        tags.extend_from_slice(vendor);
        tags.extend(0_u32.to_le_bytes());
        for packet in [head, tags] {
            self.pages.write_packet(packet, self.serial, PacketWriteEndInfo::EndPage, 0).map_err(failed)?;
        }
        Ok(self.take())
    }

    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        self.samples += samples.len() as u64;
        self.pending.extend_from_slice(samples);
        // The last packet is marked as such, so one is kept back.
        let whole = self.pending.len().saturating_sub(1) / FRAME * FRAME;
        let rest = self.pending.split_off(whole);
        for samples in std::mem::replace(&mut self.pending, rest).chunks(FRAME) {
            self.packet(samples, None)?;
        }
        Ok(self.take())
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<u8>, Error> {
        let end = self.samples + self.delay;
        let left = end.saturating_sub(self.packets * FRAME as u64).max(1);
        let mut rest = std::mem::take(&mut self.pending);
        rest.resize(usize::try_from(left).unwrap_or(0).next_multiple_of(FRAME), 0.0);
        let packets = rest.len() / FRAME;
        for (number, samples) in rest.chunks(FRAME).enumerate() {
            self.packet(samples, (number + 1 == packets).then_some(end))?;
        }
        Ok(self.take())
    }
}
