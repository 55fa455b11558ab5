//! A WebSocket that another node serves: its bytes go to and fro unread.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tracing::Instrument as _;

use crate::http::request::{Request, Upgrades};
use crate::http::response::{Response, empty};
use crate::usage;

/// Headers of the other node's answer that make the handshake valid.
const PASSED: [HeaderName; 4] = [
    hyper::header::CONNECTION,
    hyper::header::UPGRADE,
    hyper::header::SEC_WEBSOCKET_ACCEPT,
    hyper::header::SEC_WEBSOCKET_PROTOCOL,
];

/// Answers the handshake in `request` as another node answered it with `headers`, and connects both ends until one of them
/// closes, or the server stops.
pub fn tunnel<S>(request: Request, headers: &HeaderMap, mut there: S) -> Response
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut handshake = hyper::Request::new(());
    *handshake.extensions_mut() = request.extensions;
    let upgrade = hyper::upgrade::on(&mut handshake);
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    for name in PASSED {
        let value: Option<&HeaderValue> = headers.get(&name);
        if let Some(value) = value {
            response.headers_mut().insert(name, value.clone());
        }
    }
    let Upgrades { tasks, permit, stop, cut } = request.upgrades;
    let run = async move {
        let _permit = permit;
        let Ok(here) = upgrade.await else { return };
        let mut here = TokioIo::new(here);
        tokio::select! {
            () = cut.cancelled() => {}
            // Its client comes back by another door.
            () = stop.cancelled() => {}
            // An error is an end that was closed without goodbye.
            _ = copy_bidirectional(&mut here, &mut there) => {}
        }
    };
    let run = usage::within(usage::current(), run);
    tasks.spawn(run.instrument(tracing::info_span!(parent: None, "tunnel", id = %request.id)));
    response
}
