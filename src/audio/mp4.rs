//! Finds an MP4 file's index and the codecs of its tracks (ISO/IEC 14496-12) before a reader starts: a reader cannot
//! go back in a stream, and does not name codecs that it cannot decode.

/// The place of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// Before the audio, and complete: the file can be read as it comes.
    Ahead,
    /// After the audio: nothing can be read before the end.
    Behind,
}

/// Boxes on the way to a track's coding.
const PATH: [&[u8; 4]; 5] = [b"trak", b"mdia", b"minf", b"stbl", b"stsd"];
const TRACKS_MAX: usize = 64;

/// The place of the index in the file that begins with `bytes`; `None` if it takes more bytes to know.
pub fn index(bytes: &[u8]) -> Option<Index> {
    let mut rest = bytes;
    while let Some((name, body, next)) = next_box(rest) {
        match &name {
            b"moov" => return body.is_whole.then_some(Index::Ahead),
            b"mdat" => return Some(Index::Behind),
            _ => rest = next,
        }
    }
    None
}

/// The four characters that name the coding of each track, in the order of the file.
pub fn codings(bytes: &[u8]) -> Vec<[u8; 4]> {
    let Some(index) = boxes(bytes).find(|(name, _)| name == b"moov") else { return Vec::new() };
    boxes(index.1)
        .filter(|(name, _)| name == PATH[0])
        .take(TRACKS_MAX)
        .map(|(_, track)| coding(track))
        .collect()
}

fn coding(track: &[u8]) -> [u8; 4] {
    let mut body = Some(track);
    for folder in &PATH[1..] {
        body = body.and_then(|body| boxes(body).find(|(name, _)| name == *folder)).map(|(_, body)| body);
    }
    // Version and flags, a count, and the first entry with its size.
    body.and_then(|entries| entries.get(12..16)?.try_into().ok()).unwrap_or(*b"none")
}

struct Body<'a> {
    bytes: &'a [u8],
    is_whole: bool,
}

fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (name, body, next) = next_box(rest)?;
        rest = next;
        Some((name, body.bytes))
    })
}

/// The first box: its name, the part of its body that is there, and the bytes after it.
fn next_box(bytes: &[u8]) -> Option<([u8; 4], Body<'_>, &[u8])> {
    let &[s0, s1, s2, s3, a, b, c, d, ref rest @ ..] = bytes else { return None };
    let (length, body) = match u32::from_be_bytes([s0, s1, s2, s3]) {
        // To the end of the file.
        0 => (None, rest),
        // Longer than 4 GiB.
        1 => {
            let (long, body) = rest.split_first_chunk::<8>()?;
            (Some(usize::try_from(u64::from_be_bytes(*long).checked_sub(16)?).unwrap_or(usize::MAX)), body)
        }
        size => (Some((size as usize).checked_sub(8)?), rest),
    };
    let is_whole = length.is_some_and(|length| length <= body.len());
    let (bytes, next) = body.split_at(length.unwrap_or(usize::MAX).min(body.len()));
    Some(([a, b, c, d], Body { bytes, is_whole }, next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_box(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        [&(body.len() as u32 + 8).to_be_bytes()[..], name, body].concat()
    }

    fn movie(coding: &[u8; 4]) -> Vec<u8> {
        let entry = in_box(coding, &[0; 28]);
        let mut folder = in_box(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1][..], &entry].concat());
        for name in PATH[..4].iter().rev() {
            // Each has something else before.
            folder = in_box(name, &[in_box(b"free", b"abc"), folder].concat());
        }
        in_box(b"moov", &folder)
    }

    #[test]
    fn the_index_is_found_before_the_audio_and_behind_it() {
        let (start, audio) = (in_box(b"ftyp", b"isom"), in_box(b"mdat", &[7; 100]));
        let movie = movie(b"samr");
        let ahead = [start.clone(), movie.clone(), audio.clone()].concat();
        for cut in 0..ahead.len() {
            let whole = cut >= start.len() + movie.len();
            assert_eq!(index(&ahead[..cut]), whole.then_some(Index::Ahead), "{cut} bytes");
        }
        assert_eq!(index(&[start.clone(), audio.clone(), movie.clone()].concat()), Some(Index::Behind));
        // One with a length of 64 bits.
        let long = [&[0, 0, 0, 1][..], b"mdat", &116_u64.to_be_bytes(), &[7; 100]].concat();
        let behind = [start, long, movie].concat();
        assert_eq!((index(&behind), codings(&behind)), (Some(Index::Behind), vec![*b"samr"]));
        assert_eq!(codings(&ahead), vec![*b"samr"]);
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(at in 0_usize..200, bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut file = [in_box(b"ftyp", b"isom"), movie(b"mp4a")].concat();
            for (place, byte) in file.iter_mut().skip(at).zip(&bytes) {
                *place = *byte;
            }
            let _ = (index(&file), codings(&file), index(&bytes), codings(&bytes));
        }
    }
}
