//! Multipart forms (RFC 7578), read as they arrive: the file is kept once, outside memory if it is large; other fields are
//! small.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use multer::Multipart;

use super::super::decode::Fetched;
use super::super::source;
use super::error::{invalid, malformed};
use crate::http::{Body, BodyError, Buffered, Failure, Joined, Keeping, Room};

/// Fields of a form, known or not.
const FIELDS_MAX: usize = 1000;
/// Names of unknown fields that are kept, and the characters of each.
const OTHERS_MAX: usize = 20;
const NAME_CHARACTERS_MAX: usize = 64;
/// The length of a text field.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The length of a clip of a speaker, as a data URL: 10 s of uncompressed audio.
const CLIP_BYTES_MAX: usize = 8 << 20;
/// The length of all fields but the file: as many clips as one request may have, and text.
const KEPT_BYTES_MAX: usize = 4 * CLIP_BYTES_MAX + (1 << 20);
/// The length of the head of a field, and of what comes before the first one.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A form with one file.
pub struct Form {
    pub file: Fetched,
    /// The other fields that are known, in the order in which they came.
    pub fields: Vec<Field>,
    /// The names of others: the first [`OTHERS_MAX`].
    pub others: Vec<String>,
}

/// A text field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Without brackets.
    pub name: String,
    /// The text in brackets after the name: `type` of `chunking_strategy[type]`, or nothing.
    pub key: String,
    pub value: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the head of a field is too long")]
struct HeadTooLong;

/// The boundary of a form's parts.
///
/// # Errors
/// 400 for another media type, 415 for an encoded body.
pub fn boundary(headers: &HeaderMap) -> Result<String, Failure> {
    source::check_encoding(headers)?;
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    multer::parse_boundary(media_type).map_err(|_| {
        malformed("Could not parse multipart form: send `multipart/form-data` with a boundary, and the audio as its field `file`.")
    })
}

/// Reads a form of one `file` and the `known` text fields, in any order. Others are dropped as they come.
///
/// # Errors
/// 400 for a form that breaks off or that lacks its file, 408, 413, 429 and 503 as for any body.
pub async fn read(body: Body, boundary: String, known: &[&str]) -> Result<Form, Failure> {
    let mut chunks = body.chunks()?;
    let kept = (chunks.keep(), chunks.room());
    let pieces = stream::unfold(&mut chunks, |chunks| async {
        let piece = chunks.next().await.transpose()?;
        Some((piece, chunks))
    });
    let parts = gather(pieces, boundary, known, kept).await?;
    // What follows the last boundary means nothing, and the connection goes on after it.
    while chunks.next().await?.is_some() {}
    parts.form()
}

/// As [`read`], of pieces that are here already.
///
/// # Errors
/// As [`read`].
pub async fn of_pieces(pieces: Vec<Bytes>, boundary: &str, known: &[&str]) -> Result<Form, Failure> {
    let pieces = stream::iter(pieces.into_iter().map(Ok));
    gather(pieces, boundary.to_owned(), known, Keeping::alone()).await?.form()
}

/// The parts of a form.
struct Parts {
    file: Option<Buffered>,
    fields: Vec<Field>,
    others: Vec<String>,
    room: Room,
}

impl Parts {
    fn form(self) -> Result<Form, Failure> {
        let file = self
            .file
            .ok_or_else(|| invalid("file", "You must provide a file: the field `file` of the form."))?;
        let bytes = file.bytes();
        if bytes.is_empty() {
            return Err(invalid("file", "The file is empty."));
        }
        let file = Fetched { bytes, held: Box::new((file, self.room)) };
        Ok(Form { file, fields: self.fields, others: self.others })
    }
}

async fn gather(
    pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send,
    boundary: String,
    known: &[&str],
    (kept, mut room): (Keeping, Room),
) -> Result<Parts, Failure> {
    let head = AtomicUsize::new(0);
    let pieces = pieces.then(|piece| async {
        // `multer` reads on as long as more is ready, and would hold the form a second time.
        tokio::task::yield_now().await;
        let piece: Result<Bytes, Box<dyn std::error::Error + Send + Sync>> = match piece {
            // It searches all that it holds for the end of a head, again for each piece.
            Ok(piece) if head.fetch_add(piece.len(), Relaxed) > HEAD_BYTES_MAX => Err(HeadTooLong.into()),
            Ok(piece) => Ok(piece),
            Err(error) => Err(error.into()),
        };
        piece
    });
    let form = Multipart::new(pieces, boundary);
    let (file, fields, others) = parts(form, &head, known, (kept, &mut room)).await?;
    Ok(Parts { file, fields, others, room })
}

async fn parts(
    mut form: Multipart<'_>,
    head: &AtomicUsize,
    known: &[&str],
    (kept, room): (Keeping, &mut Room),
) -> Result<(Option<Buffered>, Vec<Field>, Vec<String>), Failure> {
    let (mut unused, mut file, mut fields, mut left) = (Some(kept), None, Vec::new(), KEPT_BYTES_MAX);
    let mut others: Vec<String> = Vec::new();
    for _ in 0..FIELDS_MAX {
        head.store(0, Relaxed);
        let Some(mut part) = form.next_field().await.map_err(refused)? else {
            return Ok((file, fields, others));
        };
        let (name, key) = part.name().map(split).unwrap_or_default();
        let most = match name.as_str() {
            "file" => {
                let twice = || invalid("file", "The form has the field `file` twice.");
                let mut kept = unused.take().ok_or_else(twice)?;
                while let Some(piece) = next(&mut part, head).await? {
                    kept.add(piece).await?;
                }
                file = Some(kept.finish().await?);
                continue;
            }
            "known_speaker_references" => CLIP_BYTES_MAX,
            name if known.contains(&name) => TEXT_BYTES_MAX,
            name => {
                let name: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
                if others.len() < OTHERS_MAX && !name.is_empty() && !others.contains(&name) {
                    others.push(name);
                }
                while next(&mut part, head).await?.is_some() {}
                continue;
            }
        };
        let mut bytes = Joined::default();
        while let Some(piece) = next(&mut part, head).await? {
            room.add(piece.len())?;
            bytes.add(piece);
            if bytes.len() > most {
                return Err(invalid(&name, format!("`{name}` is longer than {most} bytes.")));
            }
            if bytes.len() > left {
                let message = format!("The fields beside the file are longer than {KEPT_BYTES_MAX} bytes.");
                return Err(malformed(message));
            }
        }
        left -= bytes.len();
        let value = String::from_utf8(bytes.finish().into());
        let value = value.map_err(|_| invalid(&name, format!("`{name}` is not text in UTF-8.")))?;
        fields.push(Field { name, key, value });
    }
    Err(malformed(format!("The form has more than {FIELDS_MAX} fields.")))
}

async fn next(part: &mut multer::Field<'_>, head: &AtomicUsize) -> Result<Option<Bytes>, Failure> {
    head.store(0, Relaxed);
    part.chunk().await.map_err(refused)
}

/// `name[key]` or `name`.
fn split(name: &str) -> (String, String) {
    match name.split_once('[') {
        Some((name, rest)) => (name.to_owned(), rest.trim_end_matches(']').to_owned()),
        None => (name.to_owned(), String::new()),
    }
}

fn refused(error: multer::Error) -> Failure {
    match error {
        multer::Error::StreamReadFailed(error) => match error.downcast::<BodyError>() {
            Ok(error) => (*error).into(),
            Err(error) => malformed(format!("Could not parse multipart form: {error}.")),
        },
        _ => malformed("Could not parse multipart form: it breaks off, or its parts are malformed."),
    }
}
