//! Names of unsupported formats, for refusals.

/// Names `bytes`, as the object of a sentence; some are no audio at all.
pub fn name(bytes: &[u8]) -> &'static str {
    const BEGINNINGS: &[(&[u8], &str)] = &[
        (b"\x30\x26\xB2\x75\x8E\x66\xCF\x11", "ASF (Windows Media)"),
        (b"FLV\x01", "Flash video"),
        (b"\x00\x00\x01\xBA", "an MPEG program stream"),
        (b"\x0B\x77", "AC-3"),
        (b"\x7F\xFE\x80\x01", "DTS"),
        (b".snd", "Sun AU"),
        (b"RIFX", "WAV in big-endian order (RIFX)"),
        (b"wvpk", "WavPack"),
        (b"MAC ", "Monkey's Audio"),
        (b"TTA1", "True Audio"),
        (b"MPCK", "Musepack"),
        (b"MP+", "Musepack"),
        (b".RMF", "RealMedia"),
        (b".ra\xFD", "RealAudio"),
        (b"MThd", "MIDI"),
        (b"#!AMR_MC", "AMR with several channels"),
        (b"#!AMR-WB_MC", "AMR-WB with several channels"),
        (b"#!AMR-WB+", "AMR-WB+"),
        (b"#!EVS", "EVS"),
        (b"#!iLBC", "iLBC"),
        (b"#!SILK", "SILK"),
        (b"\x02#!SILK", "SILK"),
        (b"\x89PNG", "a PNG image"),
        (b"\xFF\xD8\xFF", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF", "a PDF"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1F\x8B", "gzip"),
    ];
    if let Some((_, name)) = BEGINNINGS.iter().find(|(beginning, _)| bytes.starts_with(beginning)) {
        return name;
    }
    match bytes {
        [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => "AVI",
        // 11 bits of sync (ISO/IEC 14496-3, 1.7).
        [0x56, second, ..] if second & 0xE0 == 0xE0 => "AAC in LATM",
        [0xFF, second, third, ..] if second & 0xE6 == 0xE2 && third & 0xF0 == 0 => "MP3 in free format",
        [0xFF, second, ..] if second & 0xE6 == 0xE6 => "MPEG audio layer I",
        _ if is_transport_stream(bytes) => "an MPEG transport stream",
        _ => text(bytes).unwrap_or("audio of no known format"),
    }
}

/// ISO/IEC 13818-1: packets of 188 bytes, each with a byte of sync.
fn is_transport_stream(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x47)
        && [188, 376].iter().all(|&at| bytes.get(at).is_none_or(|&byte| byte == 0x47))
}

fn text(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes.trim_ascii_start();
    let start = start.get(..64).unwrap_or(start).to_ascii_lowercase();
    match start.as_slice() {
        [b'{' | b'[', ..] if start.is_ascii() => Some("JSON"),
        start if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") => Some("a web page"),
        start if start.starts_with(b"<?xml") => Some("XML"),
        _ => None,
    }
}

/// The name of a coding in an MP4 file by its four characters (MP4 Registration Authority).
pub fn in_mp4(coding: [u8; 4]) -> String {
    let name = match &coding {
        b"ac-3" => "AC-3",
        b"ec-3" => "E-AC-3",
        b"ac-4" => "AC-4",
        b"dtsc" | b"dtsh" | b"dtsl" | b"dtse" => "DTS",
        b"sqcp" => "QCELP",
        b"sevc" => "EVRC",
        b"sevs" => "EVS",
        b"ima4" => "IMA ADPCM",
        b"mhm1" | b"mha1" => "MPEG-H",
        b"enca" => "encrypted audio",
        other if other.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => {
            return format!("`{}` in MP4", String::from_utf8_lossy(other));
        }
        _ => "an unknown codec",
    };
    format!("{name} in MP4")
}

/// The name of a coding in a WAVE file by its number (RFC 2361).
pub fn in_wave(tag: u16) -> String {
    let name = match tag {
        0x0008 => "DTS",
        0x0022 => "TrueSpeech",
        0x0031 => "GSM 6.10",
        0x0028..=0x0029 | 0x0040 | 0x0045 | 0x0064 | 0x0140 => "G.721, G.723 or G.726",
        0x0065 | 0x028F => "G.722",
        0x0083 => "G.729",
        0x0111 => "G.723.1",
        0x0160..=0x0163 => "Windows Media Audio",
        0x2000 => "AC-3",
        0xA109 => "Speex",
        _ => return format!("WAV with coding {tag:#06x}"),
    };
    format!("WAV with {name}")
}
