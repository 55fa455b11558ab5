//! Containers through symphonia, with libopus for Opus.
//!
//! Only the readers of formats that are promised are registered: every further one is more code that
//! reads untrusted bytes.

use std::io::ErrorKind;
use std::sync::LazyLock;

use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::CodecRegistry;
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::{Hint, Probe};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::default::{codecs, formats, meta};
use symphonia_adapter_libopus::OpusDecoder;

use super::decode::{Error, SAMPLE_RATES};
use super::gather::Gather;
use super::sniff::Container;

/// Packets in a row that may yield nothing before the file is given up.
const MAX_BARREN_PACKETS: usize = 4_096;

static CODECS: LazyLock<CodecRegistry> = LazyLock::new(|| {
    let mut registry = CodecRegistry::new();
    registry.register_audio_decoder::<codecs::FlacDecoder>();
    registry.register_audio_decoder::<codecs::MpaDecoder>();
    registry.register_audio_decoder::<codecs::AacDecoder>();
    registry.register_audio_decoder::<codecs::PcmDecoder>();
    registry.register_audio_decoder::<codecs::VorbisDecoder>();
    registry.register_audio_decoder::<OpusDecoder>();
    registry
});

/// Only the reader of `container`: another one's would find something to read in anything.
fn probe(container: Container) -> Probe {
    let mut probe = Probe::new();
    match container {
        Container::Wave => probe.register_format::<formats::WavReader<'_>>(),
        Container::Flac => probe.register_format::<formats::FlacReader<'_>>(),
        Container::Ogg => probe.register_format::<formats::OggReader<'_>>(),
        Container::Matroska => probe.register_format::<formats::MkvReader<'_>>(),
        Container::Mp4 => probe.register_format::<formats::IsoMp4Reader<'_>>(),
        Container::Mpeg => probe.register_format::<formats::MpaReader<'_>>(),
        Container::Adts => probe.register_format::<formats::AdtsReader<'_>>(),
    }
    if matches!(container, Container::Mpeg | Container::Adts | Container::Flac) {
        probe.register_metadata::<meta::Id3v2Reader<'_>>();
    }
    probe
}

/// What is read, and how.
pub struct Source {
    pub bytes: Box<dyn MediaSource>,
    pub container: Container,
    /// Take off what the encoder added at the ends, where the container says how much.
    pub trims: bool,
}

/// Where the reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// At the end of the bytes, or where the container says that it ends.
    Whole,
    /// At what cannot be read.
    Broken,
    /// Another stream begins, as in a radio's.
    Next,
}

/// Decodes the first audio track into `gather`, and those that are chained to it; calls `decoded` after
/// each packet.
pub fn read(
    source: Source,
    gather: &mut Gather,
    decoded: &mut dyn FnMut(&mut Gather) -> Result<(), Error>,
) -> Result<Ending, Error> {
    let Source { bytes, container, trims } = source;
    let stream = MediaSourceStream::new(bytes, Default::default());
    let mut format = probe(container)
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    loop {
        let (track_id, mut decoder) = decoder(&*format, trims)?;
        match packets(&mut *format, &mut *decoder, track_id, gather, decoded)? {
            Ending::Next => {}
            ending => return Ok(ending),
        }
    }
}

/// The first audio track, and what decodes it.
fn decoder(format: &dyn FormatReader, trims: bool) -> Result<(u32, Box<dyn AudioDecoder>), Error> {
    let track = format.default_track(TrackType::Audio).ok_or(Error::Empty)?;
    let parameters = track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio())
        .ok_or_else(|| Error::Corrupt("its audio is not described".into()))?;
    if let Some(rate) = parameters.sample_rate
        && !SAMPLE_RATES.contains(&rate)
    {
        return Err(Error::Corrupt(format!("a sample rate of {rate} Hz")));
    }
    let options = AudioDecoderOptions::default().gapless(trims);
    let decoder = CODECS.make_audio_decoder(parameters, &options).map_err(|error| match error {
        SymphoniaError::Unsupported(_) => Error::Unsupported,
        error => Error::Corrupt(error.to_string()),
    })?;
    Ok((track.id, decoder))
}

fn packets(
    format: &mut dyn FormatReader,
    decoder: &mut dyn AudioDecoder,
    track_id: u32,
    gather: &mut Gather,
    decoded: &mut dyn FnMut(&mut Gather) -> Result<(), Error>,
) -> Result<Ending, Error> {
    let mut samples: Vec<f32> = Vec::new();
    let mut barren = 0;
    while barren < MAX_BARREN_PACKETS {
        barren += 1;
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(Ending::Whole),
            // How some readers say that the file ends: it is whole only if it ends between packets,
            // which they do not say.
            Err(SymphoniaError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(Ending::Whole);
            }
            Err(SymphoniaError::ResetRequired) => return Ok(Ending::Next),
            Err(_) => break,
        };
        if packet.track_id != track_id {
            continue;
        }
        let buffer = match decoder.decode(&packet) {
            Ok(buffer) => buffer,
            Err(SymphoniaError::DecodeError(_)) => {
                gather.mark_damaged();
                continue;
            }
            Err(_) => break,
        };
        let (channels, rate) = (buffer.spec().channels().count(), buffer.spec().rate());
        if buffer.frames() == 0 {
            continue;
        }
        if !SAMPLE_RATES.contains(&rate) {
            break;
        }
        // A file whose format changes on the way is kept up to there.
        match gather.begin(channels, rate) {
            Ok(()) => {}
            Err(error) if gather.is_empty() => return Err(error),
            Err(_) => break,
        }
        samples.resize(buffer.samples_interleaved(), 0.0);
        buffer.copy_to_slice_interleaved(&mut samples);
        gather.push(&mut samples)?;
        decoded(gather)?;
        barren = 0;
    }
    gather.mark_damaged();
    Ok(Ending::Broken)
}
