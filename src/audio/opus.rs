//! Opus that the containers' decoder does not support: packets without a container (RFC 6716), one to a message,
//! and more than two channels.

use symphonia::core::audio::layouts::{CHANNEL_LAYOUT_MONO, CHANNEL_LAYOUT_STEREO};
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::RegisterableAudioDecoder as _;
use symphonia::core::packet::{Packet, PacketRef};
use symphonia::core::units::{Duration, Timestamp};
use symphonia_adapter_libopus::OpusDecoder;

use super::error::Error;
use super::gather::Gather;
use super::pcm::SAMPLE_RATE;

/// The head of a stream as in Ogg. MP4 has a version of it with the opposite byte order
/// (Encapsulation of Opus in ISO Base Media File Format, section 4.3.2).
pub fn head(mut head: Box<[u8]>) -> Box<[u8]> {
    const MP4_VERSION: u8 = 0;
    if let [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', version @ MP4_VERSION, _, skip @ ..] = &mut *head
        && let Some(skip) = skip.get_mut(..2)
    {
        *version = 1;
        skip.reverse();
    }
    head
}

/// Opus of more than two channels in a container: several streams of one or two (RFC 7845, section 5.1.1).
pub struct Surround {
    decoder: ::opus::MSDecoder,
    channels: usize,
    /// Frames at the start that are the encoder's delay.
    skip: usize,
}

impl Surround {
    pub const SAMPLE_RATE_HZ: u32 = 48_000;
    /// 120 ms, the longest packet.
    const FRAMES_MAX: usize = Self::SAMPLE_RATE_HZ as usize * 120 / 1000;

    /// `head` is the stream's first packet, or the container's version of it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a head that makes no sense.
    pub fn new(head: &[u8]) -> Result<Self, Error> {
        let nonsense = || Error::Corrupt("its channels make no sense".into());
        let head = head.strip_prefix(b"OpusHead").unwrap_or(head);
        let &[_, channels, s0, s1, _, _, _, _, _, _, _, streams, coupled, ref mapping @ ..] = head else {
            return Err(nonsense());
        };
        let mapping = mapping.get(..usize::from(channels)).ok_or_else(nonsense)?;
        let decoder = ::opus::MSDecoder::new(Self::SAMPLE_RATE_HZ, streams, coupled, mapping)
            .map_err(|_| nonsense())?;
        Ok(Self { decoder, channels: mapping.len(), skip: usize::from(u16::from_le_bytes([s0, s1])) })
    }

    /// Decodes one packet to interleaved `samples` of so many channels.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for bytes that are not a packet.
    pub fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Result<usize, Error> {
        samples.resize(Self::FRAMES_MAX * self.channels, 0.0);
        let frames = self
            .decoder
            .decode_float(&packet.data, samples, false)
            .map_err(|_| Error::Corrupt("this is no packet of Opus".into()))?;
        let end = frames.saturating_sub(packet.trim_end.get() as usize);
        let start = (self.skip + packet.trim_start.get() as usize).min(end);
        self.skip = self.skip.saturating_sub(frames);
        samples.truncate(end * self.channels);
        samples.drain(..start * self.channels);
        Ok(self.channels)
    }
}

/// Invalid packets in a row after which the bytes are taken for another format.
const BROKEN_MAX: usize = 25;

/// Decodes one stream of packets. Opus can be decoded at any of its rates, whatever its encoder was fed:
/// it is decoded at [`SAMPLE_RATE`].
pub struct Packets {
    decoder: Box<dyn AudioDecoder>,
    samples: Vec<f32>,
    broken: usize,
}

impl Packets {
    /// # Errors
    /// [`Error::Unsupported`] for more than two channels: those need a container that says how they are
    /// coupled (RFC 7845).
    pub fn new(channels: u16) -> Result<Self, Error> {
        let layout = match channels {
            1 => CHANNEL_LAYOUT_MONO,
            2 => CHANNEL_LAYOUT_STEREO,
            _ => return Err(Error::Unsupported(format!("Opus of {channels} channels without a container"))),
        };
        let mut parameters = AudioCodecParameters::new();
        parameters.for_codec(CODEC_ID_OPUS).with_sample_rate(SAMPLE_RATE).with_channels(layout);
        let decoder = OpusDecoder::try_registry_new(&parameters, &AudioDecoderOptions::default())
            .map_err(|error| Error::Unsupported(error.to_string()))?;
        Ok(Self { decoder, samples: Vec::new(), broken: 0 })
    }

    /// Decodes one packet. A few broken ones are skipped.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if none of many is a packet.
    pub fn push(&mut self, packet: &[u8], gather: &mut Gather) -> Result<(), Error> {
        let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet);
        let Ok(buffer) = self.decoder.decode_ref(&packet) else {
            self.broken += 1;
            return match self.broken {
                BROKEN_MAX.. => Err(Error::Corrupt("these are no Opus packets".into())),
                _ => Ok(()),
            };
        };
        self.broken = 0;
        gather.begin(buffer.spec().channels().count(), SAMPLE_RATE)?;
        self.samples.resize(buffer.samples_interleaved(), 0.0);
        buffer.copy_to_slice_interleaved(&mut self.samples);
        gather.push(&mut self.samples)
    }
}
