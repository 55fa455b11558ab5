//! A stream whose peer must keep reading.
//!
//! Hyper bounds the time in which a client sends. A client that never reads its answer would hold it, and the
//! connection, for ever.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::patience::Lapse;

/// Fails a write that has made no progress for `limit`.
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    timer: Lapse,
    is_waiting: bool,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, timer: Lapse::new(limit), is_waiting: false }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.is_waiting = false;
            return progress;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.reset(self.limit);
        }
        ready!(Pin::new(&mut self.timer).poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, progress)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, advance, sleep};

    use super::*;
    use crate::patience::{LAST_LOOK, STOOD_STILL};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (ours, _theirs) = duplex(4);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(30));
        let start = Instant::now();
        let error = guarded.write_all(b"12345").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed(), Duration::from_secs(30) + LAST_LOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_read_while_the_process_stood_still_is_not() {
        let (ours, mut theirs) = duplex(4);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(30));
        let writer = tokio::spawn(async move { guarded.write_all(b"12345").await });
        tokio::task::yield_now().await;
        advance(Duration::from_secs(30) + STOOD_STILL).await;
        let mut taken = [0; 5];
        theirs.read_exact(&mut taken).await.unwrap();
        assert_eq!(&taken, b"12345");
        writer.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_not() {
        let (ours, mut theirs) = duplex(1);
        let mut guarded = StallGuard::new(ours, Duration::from_secs(30));
        let reader = tokio::spawn(async move {
            let mut taken = Vec::new();
            while taken.len() < 10 {
                sleep(Duration::from_secs(29)).await;
                taken.push(theirs.read_u8().await.unwrap());
            }
            taken
        });
        guarded.write_all(b"0123456789").await.unwrap();
        assert_eq!(reader.await.unwrap(), b"0123456789");
    }
}
