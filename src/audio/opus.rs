//! Opus packets without a container (RFC 6716), each by itself in the message that brings it.

use symphonia::core::audio::layouts::{CHANNEL_LAYOUT_MONO, CHANNEL_LAYOUT_STEREO};
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::RegisterableAudioDecoder as _;
use symphonia::core::packet::PacketRef;
use symphonia::core::units::{Duration, Timestamp};
use symphonia_adapter_libopus::OpusDecoder;

use super::SAMPLE_RATE;
use super::decode::Error;
use super::gather::Gather;

/// Packets in a row that may be none before what comes is taken for something else.
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
            _ => return Err(Error::Unsupported),
        };
        let mut parameters = AudioCodecParameters::new();
        parameters.for_codec(CODEC_ID_OPUS).with_sample_rate(SAMPLE_RATE).with_channels(layout);
        let decoder = OpusDecoder::try_registry_new(&parameters, &AudioDecoderOptions::default())
            .map_err(|_| Error::Unsupported)?;
        Ok(Self { decoder, samples: Vec::new(), broken: 0 })
    }

    /// Decodes one packet. A few broken ones are passed over.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where none of many is one.
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
