//! Answers: JSON, text, a stream, or none.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use serde::Serialize;

/// The body of an answer, whole or streamed.
pub type ReplyBody = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Response = hyper::Response<ReplyBody>;

/// A JSON answer.
pub fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            (StatusCode::INTERNAL_SERVER_ERROR, b"{}".to_vec())
        }
    };
    let mut response =
        Response::new(Full::from(body).map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A text answer.
pub fn text(content_type: &'static str, body: String) -> Response {
    let body = Full::from(body).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer of bytes that are there already.
pub fn whole(content_type: &'static str, body: Bytes) -> Response {
    let body = Full::from(body).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer whose body comes piece by piece. The stream is dropped when the client disconnects.
pub fn streamed(content_type: &'static str, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Another server's answer, whose body comes piece by piece; an error breaks it off.
pub fn relayed(
    status: StatusCode,
    headers: HeaderMap,
    pieces: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
) -> Response {
    let frames = pieces.map(|piece| piece.map(Frame::data));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Empty::new().map_err(|never: Infallible| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}
