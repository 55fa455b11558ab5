//! Containers, read by symphonia, with libopus for Opus and further crates for telephones' codecs.
//!
//! Only readers of the supported formats are registered: every further one is more code that reads untrusted
//! bytes.

use std::io::{Cursor, ErrorKind};
use std::sync::LazyLock;

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known as codec;
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::codecs::registry::CodecRegistry;
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::{Hint, Probe};
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;
use symphonia::default::{codecs, formats, meta};
use symphonia_adapter_libopus::OpusDecoder;

use super::error::Error;
use super::gather::{Ending, Gather};
use super::limits::{MAX_CHAINED, SAMPLE_RATES};
use super::opus::{self, Surround};
use super::sniff::{Band, Container, foreign};
use super::voice_codecs::{amr, g729, speex};
use super::{aac, mp4};

/// Packets in a row that may yield nothing before the file is given up.
const MAX_BARREN_PACKETS: usize = 4_096;
/// And so many more for each second that was decoded: packets without output cost time too, and could come
/// endlessly between packets with little.
const BARREN_PER_SECOND: f64 = 50.0;
/// A longer packet is not decoded, because all of its samples would be in memory at once. A second of twenty
/// channels of 24 bits at 48 kHz is shorter.
const MAX_PACKET_BYTES: usize = 4 << 20;

static CODECS: LazyLock<CodecRegistry> = LazyLock::new(|| {
    let mut registry = CodecRegistry::new();
    registry.register_audio_decoder::<codecs::FlacDecoder>();
    registry.register_audio_decoder::<codecs::MpaDecoder>();
    registry.register_audio_decoder::<codecs::AacDecoder>();
    registry.register_audio_decoder::<codecs::AdpcmDecoder>();
    registry.register_audio_decoder::<codecs::AlacDecoder>();
    registry.register_audio_decoder::<codecs::PcmDecoder>();
    registry.register_audio_decoder::<codecs::VorbisDecoder>();
    registry.register_audio_decoder::<OpusDecoder>();
    registry
});

/// A probe with the reader of `container` alone: other readers would find something to read in any bytes. `None`
/// for containers that are read without symphonia.
pub fn probe(container: Container) -> Option<Probe> {
    let mut probe = Probe::new();
    match container {
        Container::Amr(_) | Container::G729 | Container::Speex => return None,
        Container::Aiff => probe.register_format::<formats::AiffReader<'_>>(),
        Container::Caf => probe.register_format::<formats::CafReader<'_>>(),
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
    Some(probe)
}

/// The bytes to read, and how to read them.
pub struct Source {
    pub bytes: Box<dyn MediaSource>,
    pub container: Container,
    /// Remove the padding that the encoder added at the ends, if the container gives its length.
    pub trims: bool,
    /// The codings of an MP4 file, as by [`mp4::codings`].
    pub codings: Vec<[u8; 4]>,
}

impl Source {
    /// A complete file.
    pub fn whole(bytes: Bytes, container: Container, trims: bool) -> Self {
        let codings = if container == Container::Mp4 { mp4::codings(&bytes) } else { Vec::new() };
        Self { bytes: Box::new(Cursor::new(bytes)), container, trims, codings }
    }
}

/// Seconds at the ends that an encoder may have added, and that are left out.
const TRIMMED_SECONDS: f64 = 0.5;

/// Decodes the first audio track into `gather`, and those that are chained to it; calls `decoded` after
/// each packet, even if it yields nothing.
pub fn read(
    source: Source,
    gather: &mut Gather,
    decoded: &mut dyn FnMut(&mut Gather) -> Result<(), Error>,
) -> Result<Ending, Error> {
    let Source { bytes, container, trims, codings } = source;
    let probe = match container {
        Container::Amr(band) => return amr::read(bytes, band, gather, decoded),
        Container::G729 => return g729::read(bytes, gather, decoded),
        Container::Speex => return speex::read(bytes, gather, decoded),
        container => probe(container).ok_or_else(|| Error::Unsupported("a container".into()))?,
    };
    let stream = MediaSourceStream::new(bytes, Default::default());
    let mut format = probe
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    // Without a length of its own, that of an MP3 file is an estimate.
    let tells = container == Container::Flac || (container == Container::Mpeg && trims);
    let promised = if tells { promised_seconds(&*format) } else { None };
    let mut barren = 0;
    let mut chained = 0.0;
    while chained < MAX_CHAINED + gather.seconds() {
        chained += 1.0;
        let (track_id, decoder) = decoder(&*format, container, trims, &codings)?;
        let mut track = Track { id: track_id, decoder, trims, barren: &mut barren };
        match packets(&mut *format, &mut track, gather, decoded)? {
            Ending::Next => decoded(gather)?,
            ending => {
                if promised.is_some_and(|seconds| gather.seconds() + TRIMMED_SECONDS < seconds) {
                    gather.mark_damaged();
                }
                return Ok(ending);
            }
        }
    }
    gather.mark_damaged();
    Ok(Ending::Broken)
}

/// The length of the first audio track in the file's head; `None` where the writer did not know it.
fn promised_seconds(format: &dyn FormatReader) -> Option<f64> {
    let track = format.default_track(TrackType::Audio)?;
    let rate = track.codec_params.as_ref()?.audio()?.sample_rate?;
    Some(track.num_frames? as f64 / f64::from(rate.max(1)))
}

/// A track that is being read.
struct Track<'a> {
    id: u32,
    decoder: Decoder,
    /// As in [`Source`].
    trims: bool,
    /// Packets of the whole file that yielded nothing, or less than was decoded.
    barren: &'a mut usize,
}

/// A decoder of packets.
enum Decoder {
    Registered(Box<dyn AudioDecoder>),
    Surround(Box<Surround>),
    Amr(amr::Frames),
}

/// The outcome of one packet.
enum Outcome {
    /// Frames in this format; there may be none.
    Frames { channels: usize, sample_rate_hz: u32 },
    /// This packet cannot be decoded; the next one may be.
    Damaged,
    /// Neither this packet nor those that follow can be decoded.
    Lost,
}

impl Decoder {
    fn decode(&mut self, packet: &Packet, samples: &mut Vec<f32>) -> Outcome {
        samples.clear();
        match self {
            Self::Registered(decoder) => match decoder.decode(packet) {
                Ok(buffer) => {
                    samples.resize(buffer.samples_interleaved(), 0.0);
                    buffer.copy_to_slice_interleaved(samples);
                    let (channels, sample_rate_hz) = (buffer.spec().channels().count(), buffer.spec().rate());
                    Outcome::Frames { channels, sample_rate_hz }
                }
                Err(SymphoniaError::DecodeError(_)) => Outcome::Damaged,
                Err(_) => Outcome::Lost,
            },
            Self::Surround(decoder) => match decoder.decode(packet, samples) {
                Ok(channels) => Outcome::Frames { channels, sample_rate_hz: Surround::SAMPLE_RATE_HZ },
                Err(_) => Outcome::Damaged,
            },
            Self::Amr(frames) => match frames.decode_packet(&packet.data, samples) {
                false if samples.is_empty() => Outcome::Damaged,
                _ => Outcome::Frames { channels: 1, sample_rate_hz: frames.sample_rate_hz() },
            },
        }
    }
}

/// The first audio track, and its decoder.
fn decoder(
    format: &dyn FormatReader,
    container: Container,
    trims: bool,
    codings: &[[u8; 4]],
) -> Result<(u32, Decoder), Error> {
    let Some(track) = format.default_track(TrackType::Audio) else {
        return unknown_to_reader(format, codings);
    };
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
    let mut parameters = parameters.clone();
    if parameters.codec == codec::CODEC_ID_OPUS {
        parameters.extra_data = parameters.extra_data.map(opus::head);
    }
    let channels = parameters.channels.as_ref().map_or(0, |channels| channels.count());
    if parameters.codec == codec::CODEC_ID_OPUS && channels > 2 {
        let head = parameters.extra_data.as_deref().unwrap_or(&[]);
        return Ok((track.id, Decoder::Surround(Box::new(Surround::new(head)?))));
    }
    if parameters.codec == codec::CODEC_ID_AAC
        && let Some(core) = parameters.extra_data.as_deref().and_then(aac::core)
    {
        parameters.extra_data = Some(core.into());
    }
    let options = AudioDecoderOptions::default().gapless(trims);
    let decoder = CODECS.make_audio_decoder(&parameters, &options).map_err(|error| match error {
        SymphoniaError::Unsupported(_) => Error::Unsupported(name(&parameters, container)),
        error => Error::Corrupt(error.to_string()),
    })?;
    Ok((track.id, Decoder::Registered(decoder)))
}

/// A track of AMR in MP4, for which the reader yields nothing but packets.
fn unknown_to_reader(format: &dyn FormatReader, codings: &[[u8; 4]]) -> Result<(u32, Decoder), Error> {
    const PICTURES: [&[u8; 4]; 12] = [
        b"none", b"avc1", b"avc3", b"hvc1", b"hev1", b"mp4v", b"vp08", b"vp09", b"av01", b"jpeg", b"tx3g",
        b"s263",
    ];
    let band = |coding: &[u8; 4]| match coding {
        b"samr" => Some(Band::Narrow),
        b"sawb" => Some(Band::Wide),
        _ => None,
    };
    // The reader lists all tracks in the order of the file.
    for (track, coding) in format.tracks().iter().zip(codings) {
        if let Some(band) = band(coding) {
            return Ok((track.id, Decoder::Amr(amr::Frames::new(band)?)));
        }
    }
    match codings.iter().find(|coding| !PICTURES.contains(coding)) {
        Some(coding) => Err(Error::Unsupported(foreign::in_mp4(*coding))),
        None => Err(Error::Empty),
    }
}

/// The name of a codec in a refusal.
fn name(parameters: &AudioCodecParameters, container: Container) -> String {
    let container = match container {
        Container::Mp4 => "MP4",
        Container::Matroska => "Matroska",
        Container::Ogg => "Ogg",
        Container::Wave => "WAV",
        Container::Aiff => "AIFF",
        Container::Caf => "CAF",
        _ => "its container",
    };
    let codec = match parameters.codec {
        codec::CODEC_ID_AC3 => "AC-3",
        codec::CODEC_ID_EAC3 => "E-AC-3",
        codec::CODEC_ID_AC4 => "AC-4",
        codec::CODEC_ID_DCA => "DTS",
        codec::CODEC_ID_TRUEHD => "TrueHD",
        codec::CODEC_ID_WAVPACK => "WavPack",
        codec::CODEC_ID_TTA => "True Audio",
        codec::CODEC_ID_WMA => "Windows Media Audio",
        codec::CODEC_ID_AAC => "AAC of more than two channels, or of another profile than LC and HE,",
        codec::CODEC_ID_OPUS => "Opus of so many channels",
        _ => "an unknown codec",
    };
    format!("{codec} in {container}")
}

fn packets(
    format: &mut dyn FormatReader,
    track: &mut Track<'_>,
    gather: &mut Gather,
    decoded: &mut dyn FnMut(&mut Gather) -> Result<(), Error>,
) -> Result<Ending, Error> {
    let mut samples: Vec<f32> = Vec::new();
    let mut barren_in_a_row = 0;
    while barren_in_a_row < MAX_BARREN_PACKETS
        && (*track.barren as f64) < MAX_BARREN_PACKETS as f64 + BARREN_PER_SECOND * gather.seconds()
    {
        barren_in_a_row += 1;
        let packet = match format.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(Ending::Whole),
            // Some readers report the file's end like this: it is whole only if it ends between packets,
            // which they do not report.
            Err(SymphoniaError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                return Ok(Ending::Whole);
            }
            Err(SymphoniaError::ResetRequired) => return Ok(Ending::Next),
            Err(_) => break,
        };
        if packet.track_id != track.id {
            continue;
        }
        if packet.data.len() > MAX_PACKET_BYTES {
            break;
        }
        let (channels, rate) = match track.decoder.decode(&packet, &mut samples) {
            Outcome::Frames { channels, sample_rate_hz } => (channels, sample_rate_hz),
            Outcome::Damaged => {
                gather.mark_damaged();
                samples.clear();
                (0, 0)
            }
            Outcome::Lost => break,
        };
        let is_trimmed = track.trims && (packet.trim_start.get() > 0 || packet.trim_end.get() > 0);
        *track.barren += usize::from(samples.is_empty() || is_trimmed);
        if !samples.is_empty() {
            if !SAMPLE_RATES.contains(&rate) {
                break;
            }
            // A file is kept up to the place where its format changes once too often, or where channels that
            // are kept apart become more or fewer.
            match gather.begin(channels, rate) {
                Ok(()) => {}
                Err(error) if gather.is_empty() => return Err(error),
                Err(_) => break,
            }
            gather.push(&mut samples)?;
            barren_in_a_row = 0;
        }
        decoded(gather)?;
    }
    gather.mark_damaged();
    Ok(Ending::Broken)
}
