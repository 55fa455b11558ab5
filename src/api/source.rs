//! The source of a request's audio: its body, or the URL in its body.

use bytes::Bytes;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use hyper::{HeaderMap, Version};
use simd_json::prelude::ValueAsScalar as _;

use super::error;
use crate::http::{Body, Buffered, Failure};

/// A JSON body holds one URL; a longer one is no valid request.
const JSON_BYTES_MAX: u64 = 64 << 10;

/// The source, after the body was read.
pub(super) enum Source {
    Audio(Buffered),
    Url(String),
}

/// Reads the body of a request with `headers`.
///
/// The media type decides only whether the body is JSON. Audio comes under any type or none, and is
/// recognised by its bytes.
///
/// # Errors
/// 400, 408, 411, 413, 415, 503.
pub(super) async fn read(version: Version, headers: &HeaderMap, body: Body) -> Result<Source, Failure> {
    check_framing(version, headers, &body)?;
    if !is_json(headers) {
        let audio = body.collect().await?;
        return if is_form(headers, &audio.bytes()) {
            Err(error::form_body())
        } else {
            Ok(Source::Audio(audio))
        };
    }
    let json = body.collect_at_most(JSON_BYTES_MAX).await?;
    url_of(&json.bytes()).map(Source::Url).ok_or_else(error::invalid_json)
}

fn check_framing(version: Version, headers: &HeaderMap, body: &Body) -> Result<(), Failure> {
    let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    if version < Version::HTTP_2 && !is_framed && body.is_empty() {
        return Err(error::length_required());
    }
    check_encoding(headers)
}

/// # Errors
/// 415 for a body that is compressed.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    // Several fields are one list (RFC 9110, section 5.3).
    let mut encodings = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|field| field.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    if encodings.any(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity")) {
        return Err(error::encoded_body());
    }
    Ok(())
}

/// A form instead of the audio itself: `curl -F` sends one.
fn is_form(headers: &HeaderMap, body: &[u8]) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
    let kind = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    kind.eq_ignore_ascii_case(b"multipart/form-data") && body.starts_with(b"--")
}

/// Exactly `application/json`, with or without parameters.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(media_type)) = headers.get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = media_type.split_once(';').map_or(media_type, |(essence, _)| essence);
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// The `url` of a JSON object; other members are ignored, and two of them are refused. The tape is flat:
/// however deep the nesting, it is walked without recursion.
pub fn url_of(json: &Bytes) -> Option<String> {
    let mut json = json.to_vec();
    let tape = simd_json::to_tape(&mut json).ok()?;
    let value = tape.as_value();
    let object = value.as_object()?;
    let mut urls = object.iter().filter(|(name, _)| *name == "url").map(|(_, value)| value);
    let url = urls.next().filter(|_| urls.next().is_none())?;
    url.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_url(json: &str) -> Option<String> {
        url_of(&Bytes::copy_from_slice(json.as_bytes()))
    }

    #[test]
    fn the_url_is_found() {
        for json in [
            r#"{"url":"http://a/b"}"#,
            r#" { "x" : [1, {"url": "no"}], "url" : "http:\/\/a\/\u0062", "y": null } "#,
        ] {
            assert_eq!(read_url(json).as_deref(), Some("http://a/b"), "{json}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        for json in [
            "",
            " ",
            "null",
            "1",
            "\"url\"",
            "[]",
            "{}",
            r#"["url"]"#,
            r#"{"URL":"http://a/"}"#,
            r#"{"url":1}"#,
            r#"{"url":"http://a/","url":"http://b/"}"#,
            r#"{"url":null}"#,
            r#"{"url":["http://a/"]}"#,
            r#"{"url":"http://a/""#,
            r#"{"url":"http://a/"},"#,
            r#"{"url":"\ud800"}"#,
            "{'url':'http://a/'}",
        ] {
            assert_eq!(read_url(json), None, "{json}");
        }
        assert_eq!(url_of(&Bytes::from_static(b"{\"url\":\"\xff\xfe\"}")), None);
    }

    #[test]
    fn deep_nesting_costs_no_stack() {
        let depth = JSON_BYTES_MAX as usize / 2 - 20;
        let deep = format!(r#"{{"x":{}{},"url":"http://a/"}}"#, "[".repeat(depth), "]".repeat(depth));
        let thread =
            std::thread::Builder::new().stack_size(128 << 10).spawn(move || read_url(&deep)).unwrap();
        // Refused or read: the thread survives.
        thread.join().unwrap();
    }

    #[test]
    fn only_the_media_type_of_json_is_json() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            (" application/json ;x=y", true),
            ("application/json5", false),
            ("application/problem+json", false),
            ("text/json", false),
            ("audio/wav", false),
            ("deepgram/audio+video", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]);
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
