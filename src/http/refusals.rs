//! Gives hyper's own refusals the JSON body that every failure has.
//!
//! A request whose head hyper cannot read never reaches the service: hyper answers 400, 414 or 431 without a
//! body and closes, and has no setting for that. So this layer, between hyper and the socket, recognises that
//! answer in the bytes written and replaces it with a complete one. Then it goes on reading for a while
//! before it closes, so that the client can read the answer.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

const HTTP_1: &[u8] = b"HTTP/1.";
/// Longer than any head that hyper writes by itself.
const OWN_HEAD_BYTES_MAX: usize = 256;
/// How long, and how much, is read from the client after the server's half of the connection is closed.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);
const FAREWELL_BYTES_MAX: usize = 64 << 20;
const FAREWELL_READ_BYTES: usize = 16 << 10;

/// Facts about a connection that its requests know and this layer needs.
#[derive(Clone, Default)]
pub(super) struct Course(Arc<Signs>);

#[derive(Default)]
struct Signs {
    is_upgraded: AtomicBool,
    may_go_on: AtomicBool,
}

impl Course {
    /// The connection no longer carries HTTP: its bytes pass unchanged.
    pub(super) fn upgrades(&self) {
        self.0.is_upgraded.store(true, Ordering::Relaxed);
    }

    /// The client may still send after its last answer.
    pub(super) fn may_go_on(&self) {
        self.0.may_go_on.store(true, Ordering::Relaxed);
    }
}

/// Makes a complete answer, head and body, for a status that hyper refused with.
pub(super) type Refuse = Box<dyn Fn(StatusCode) -> Bytes + Send>;

pub(super) struct Refusals<S> {
    stream: S,
    course: Course,
    refuse: Refuse,
    /// The unwritten part of a refusal.
    pending: Bytes,
    farewell: Option<Farewell>,
}

struct Farewell {
    timer: Pin<Box<Sleep>>,
    left: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Refusals<S> {
    pub(super) fn new(stream: S, course: Course, refuse: Refuse) -> Self {
        Self { stream, course, refuse, pending: Bytes::new(), farewell: None }
    }

    /// The offset and the status of hyper's own refusal at the end of `written`, if there is one.
    fn own_refusal(&self, written: &[u8]) -> Option<(usize, StatusCode)> {
        if self.course.0.is_upgraded.load(Ordering::Relaxed) { None } else { own_refusal(written) }
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.pending.has_remaining() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.pending.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and drops what the client still sends: closing with unread bytes makes the kernel reset the
    /// connection, and the client loses the answer.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.course.0.may_go_on.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let begin = || Farewell { timer: Box::pin(sleep(FAREWELL_TIME_MAX)), left: FAREWELL_BYTES_MAX };
        let farewell = self.farewell.get_or_insert_with(begin);
        if farewell.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [0; FAREWELL_READ_BYTES];
        loop {
            let mut into = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut into));
            let count = into.filled().len();
            if read.is_err() || count == 0 || count > farewell.left {
                return Poll::Ready(());
            }
            farewell.left -= count;
        }
    }
}

fn own_refusal(written: &[u8]) -> Option<(usize, StatusCode)> {
    let tail_at = written.len().saturating_sub(OWN_HEAD_BYTES_MAX);
    let tail = written[tail_at..].strip_suffix(b"\r\n\r\n")?;
    let head_at = tail.windows(HTTP_1.len()).rposition(|bytes| bytes == HTTP_1)?;
    let mut lines = std::str::from_utf8(&tail[head_at..]).ok()?.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    // The service's own answers have an id, and a body.
    let is_own = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    ) && lines.clone().any(|line| line == "content-length: 0")
        && lines.all(|line| !line.is_empty() && !line.starts_with("dg-request-id:"));
    is_own.then_some((tail_at + head_at, status))
}

impl<S: AsyncRead + Unpin> AsyncRead for Refusals<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Refusals<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(cx))?;
        match self.own_refusal(buf) {
            None => Pin::new(&mut self.stream).poll_write(cx, buf),
            Some((0, status)) => {
                self.pending = (self.refuse)(status);
                self.course.may_go_on();
                // The next write, flush or shutdown sends it, and one of them always follows.
                Poll::Ready(Ok(buf.len()))
            }
            // The bytes before it go first.
            Some((start, _)) => Pin::new(&mut self.stream).poll_write(cx, &buf[..start]),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
        match (filled.next(), filled.next_back()) {
            (Some(only), None) => self.poll_write(cx, only),
            (Some(first), Some(last)) if self.own_refusal(last).is_some() => self.poll_write(cx, first),
            _ => {
                ready!(self.poll_pending(cx))?;
                Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.farewell.is_none() {
            ready!(self.poll_pending(cx))?;
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        ready!(self.poll_farewell(cx));
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    const OWN: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sun, 22 Nov 2026 03:12:18 GMT\r\n\r\n";
    const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ndg-request-id: 1\r\ncontent-length: 0\r\n\r\n";

    fn layer(stream: tokio::io::DuplexStream) -> Refusals<tokio::io::DuplexStream> {
        let refuse = |status: StatusCode| Bytes::from(format!("refused {}", status.as_u16()));
        Refusals::new(stream, Course::default(), Box::new(refuse))
    }

    #[test]
    fn only_hypers_own_refusals_are_taken_for_such() {
        assert_eq!(own_refusal(OWN.as_bytes()), Some((0, StatusCode::BAD_REQUEST)));
        let after = format!("{ANSWER}{}é{OWN}", "x".repeat(300));
        assert_eq!(own_refusal(after.as_bytes()), Some((after.len() - OWN.len(), StatusCode::BAD_REQUEST)));
        for other in [
            "",
            "\r\n\r\n",
            ANSWER,
            &OWN[1..],
            &OWN[..OWN.len() - 1],
            "HTTP/1.1 100 Continue\r\n\r\n",
            &OWN.replace("400", "404"),
            &OWN.replace(": 0", ": 2"),
            &OWN.replace("date", "dg-request-id"),
        ] {
            assert_eq!(own_refusal(other.as_bytes()), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_is_replaced_after_what_goes_before_it() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut layer = layer(ours);
        layer.write_all(format!("{ANSWER}{OWN}").as_bytes()).await.unwrap();
        layer.flush().await.unwrap();
        drop(layer);
        let mut reply = String::new();
        theirs.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply, format!("{ANSWER}refused 400"));
    }

    #[tokio::test]
    async fn what_is_no_http_any_more_passes() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut layer = layer(ours);
        layer.course.upgrades();
        layer.write_all(OWN.as_bytes()).await.unwrap();
        drop(layer);
        let mut reply = String::new();
        theirs.read_to_string(&mut reply).await.unwrap();
        assert_eq!(reply, OWN);
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_has_time_to_read_it_but_not_for_ever() {
        let (ours, mut theirs) = duplex(64);
        let mut layer = layer(ours);
        layer.write_all(OWN.as_bytes()).await.unwrap();
        let start = Instant::now();
        let sender = tokio::spawn(async move {
            let mut sent = 0;
            while theirs.write_all(&[0; 64]).await.is_ok() {
                sent += 64;
                sleep(Duration::from_millis(100)).await;
            }
            sent
        });
        layer.shutdown().await.unwrap();
        assert_eq!(start.elapsed(), FAREWELL_TIME_MAX);
        drop(layer);
        assert!(sender.await.unwrap() >= 64 * 40);
    }
}
