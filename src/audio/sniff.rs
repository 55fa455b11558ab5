//! Recognition of a file's container by its first bytes. The sender's name for it is ignored.

pub mod foreign;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// RIFF, and RF64 or BW64 for files larger than 4 GiB.
    Wave,
    Aiff,
    Caf,
    Flac,
    Ogg,
    /// Matroska and WebM.
    Matroska,
    /// MP4, M4A and QuickTime.
    Mp4,
    /// MPEG audio: MP3 or MP2, with or without an ID3 tag.
    Mpeg,
    /// AAC in ADTS frames.
    Adts,
    /// Frames of AMR one after another, with or without the line that begins a file (RFC 4867, section 5).
    Amr(Band),
    /// Frames of G.729, one after another.
    G729,
    /// Speex in Ogg.
    Speex,
}

/// Narrowband at 8 kHz, wideband at 16 kHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Band {
    Narrow,
    Wide,
}

/// Bytes of Ogg from which the codec of the first packet can be recognised.
pub const OGG_BYTES: usize = 27 + 255 + 8;

/// Zeros at the start that are skipped: some encoders pad.
const MAX_LEADING_ZEROS: usize = 65_536;

/// A container of Opus packets, recognised by its first four bytes.
pub fn packaged(bytes: &[u8]) -> Option<Container> {
    match bytes {
        [b'O', b'g', b'g', b'S', ..] => Some(Container::Ogg),
        [0x1A, 0x45, 0xDF, 0xA3, ..] => Some(Container::Matroska),
        _ => None,
    }
}

pub fn container(bytes: &[u8]) -> Option<Container> {
    let found = match bytes {
        [b'R', b'I' | b'F', b'F' | b'6', b'F' | b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..]
        | [b'B', b'W', b'6', b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Container::Wave,
        [b'F', b'O', b'R', b'M', _, _, _, _, b'A', b'I', b'F', b'F' | b'C', ..] => Container::Aiff,
        [b'c', b'a', b'f', b'f', 0, ..] => Container::Caf,
        [b'#', b'!', b'A', b'M', b'R', b'\n', ..] => Container::Amr(Band::Narrow),
        [b'#', b'!', b'A', b'M', b'R', b'-', b'W', b'B', b'\n', ..] => Container::Amr(Band::Wide),
        [b'f', b'L', b'a', b'C', ..] => Container::Flac,
        [b'O', b'g', b'g', b'S', ..] if first_packet(bytes).starts_with(b"Speex   ") => Container::Speex,
        [b'O', b'g', b'g', b'S', ..] => Container::Ogg,
        [0x1A, 0x45, 0xDF, 0xA3, ..] => Container::Matroska,
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => Container::Mp4,
        [b'I', b'D', b'3', ..] => after_id3(bytes),
        [0, ..] => {
            let zeros = bytes.iter().take(MAX_LEADING_ZEROS).take_while(|&&byte| byte == 0).count();
            frames(&bytes[zeros..])?
        }
        _ => frames(bytes)?,
    };
    Some(found)
}

/// The start of the first packet of an Ogg file (RFC 3533, section 6).
fn first_packet(bytes: &[u8]) -> &[u8] {
    let segments = usize::from(bytes.get(26).copied().unwrap_or(0));
    bytes.get(27 + segments..).unwrap_or(&[])
}

/// The container after an ID3v2 tag; MP3 if that is out of sight.
fn after_id3(bytes: &[u8]) -> Container {
    // The size is four times seven bits (ID3v2.4, §3.1).
    let size =
        bytes.get(6..10).map_or(0, |size| size.iter().fold(0, |sum, &b| sum << 7 | usize::from(b & 0x7F)));
    let rest = bytes.get(10 + size..).unwrap_or(&[]);
    if rest.starts_with(b"fLaC") {
        return Container::Flac;
    }
    let frame = rest.iter().position(|&byte| byte == 0xFF).and_then(|at| frames(&rest[at..]));
    frame.unwrap_or(Container::Mpeg)
}

/// Two consecutive frames of MPEG audio or ADTS, so that two chance bytes are not taken for music.
fn frames(bytes: &[u8]) -> Option<Container> {
    let (container, length) = frame(bytes)?;
    match bytes.get(length..) {
        Some(rest) if rest.len() >= 4 => (frame(rest)?.0 == container).then_some(container),
        // A file of a single frame, or one that breaks off in it.
        _ => Some(container),
    }
}

fn frame(bytes: &[u8]) -> Option<(Container, usize)> {
    let &[0xFF, second, third, fourth, ..] = bytes else { return None };
    // ADTS: 12 bits of sync, layer 0 (ISO/IEC 13818-7, 6.2).
    if second & 0xF6 == 0xF0 {
        let &[_, _, _, _, fifth, sixth, ..] = bytes else { return None };
        let rate_index = (third >> 2) & 15;
        let length = usize::from(fourth & 3) << 11 | usize::from(fifth) << 3 | usize::from(sixth >> 5);
        return (rate_index < 13 && length > 7).then_some((Container::Adts, length));
    }
    if second & 0xE0 != 0xE0 {
        return None;
    }
    Some((Container::Mpeg, mpeg_frame_length(second, third)?))
}

/// ISO/IEC 11172-3 and 13818-3: layers II and III are decoded here.
fn mpeg_frame_length(second: u8, third: u8) -> Option<usize> {
    const KILOBITS_1: [usize; 15] = [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320];
    const KILOBITS_1_II: [usize; 15] = [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384];
    const KILOBITS_2: [usize; 15] = [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160];
    let (version, layer) = ((second >> 3) & 3, (second >> 1) & 3);
    let bit_rate_index = usize::from(third >> 4);
    let base = *[44_100, 48_000, 32_000].get(usize::from((third >> 2) & 3))?;
    // Versions: 3 is MPEG 1, 2 is MPEG 2, 0 is MPEG 2.5. Layers: 2 is II, 1 is III.
    let (rates, divisor, samples_in_bytes) = match (version, layer) {
        (3, 1) => (&KILOBITS_1, 1, 144),
        (3, 2) => (&KILOBITS_1_II, 1, 144),
        (2, 1) => (&KILOBITS_2, 2, 72),
        (2, 2) => (&KILOBITS_2, 2, 144),
        (0, 1) => (&KILOBITS_2, 4, 72),
        _ => return None,
    };
    let kilobits = *rates.get(bit_rate_index)?;
    if kilobits == 0 {
        return None;
    }
    let padding = usize::from((third >> 1) & 1);
    Some(samples_in_bytes * kilobits * 1000 / (base / divisor) + padding)
}

/// Whether an MPEG file begins with a frame that gives its length and its encoder's padding. Without one the
/// reader guesses the length from the first frames, and would cut a longer file there.
pub fn tells_its_length(bytes: &[u8]) -> bool {
    const SEARCHED: usize = 4096;
    let tag = match bytes.get(6..10) {
        Some(size) if bytes.starts_with(b"ID3") => {
            10 + size.iter().fold(0, |sum, &byte| sum << 7 | usize::from(byte & 0x7F))
        }
        _ => 0,
    };
    let start = bytes.get(tag..).unwrap_or(&[]);
    let start = &start[..start.len().min(SEARCHED)];
    start.windows(4).any(|tag| matches!(tag, b"Xing" | b"Info" | b"VBRI"))
}
