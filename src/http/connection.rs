//! One connection, from its first byte to its last.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::config::Config;
use super::connection_limit::ConnectionPermit;
use super::refusals::{Course, Refusals};
use super::request::Upgrades;
use super::service::{Around, Service};
use super::stall::StallGuard;
use super::timer::PatientTimer;

const H2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
const H2_CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Hyper accepts heads this many times larger than the limit, and the service refuses those in between: over
/// HTTP/2, hyper's own refusal has no body.
const HEADERS_SEEN: usize = 4;
/// How long a connection closed for idleness may take to close cleanly.
const GOODBYE: Duration = Duration::from_secs(1);

/// Shared by all connections.
pub(super) struct Connections {
    service: Service,
    builder: Builder<TokioExecutor>,
    write_timeout: Duration,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// WebSockets, which outlive the connections that they began as.
    upgraded: TaskTracker,
    /// Ends the rest of them when the drain is over.
    cut: CancellationToken,
}

impl Connections {
    pub(super) fn new(service: Service, config: &Config) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(PatientTimer)
            // Hyper's timer also runs between requests: here it bounds both together.
            .header_read_timeout(config.idle_timeout())
            .max_headers(config.headers_max.saturating_mul(HEADERS_SEEN));
        builder
            .http2()
            .timer(PatientTimer)
            .max_concurrent_streams(config.streams_max)
            .max_header_list_size(
                u32::try_from(config.header_bytes_max.saturating_mul(HEADERS_SEEN)).unwrap_or(u32::MAX),
            )
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(H2_PING_INTERVAL)
            .keep_alive_timeout(H2_PING_INTERVAL);
        Self {
            service,
            builder,
            write_timeout: Duration::from_millis(config.write_timeout_ms),
            header_timeout: config.header_timeout(),
            idle_timeout: config.idle_timeout(),
            upgraded: TaskTracker::new(),
            cut: CancellationToken::new(),
        }
    }

    pub(super) fn header_timeout(&self) -> Duration {
        self.header_timeout
    }

    /// Refuses new requests from here on.
    pub(super) fn leave(&self) {
        self.service.leave();
    }

    /// Waits for the WebSockets, and for the tasks that still drain unwanted bodies.
    pub(super) async fn settled(&self) {
        self.service.lingering.close();
        self.service.lingering.wait().await;
        self.upgraded.close();
        self.upgraded.wait().await;
    }

    /// Drops the remaining WebSockets; returns how many there were.
    pub(super) async fn cut(&self) -> usize {
        let left = self.upgraded.len();
        self.cut.cancel();
        self.upgraded.close();
        self.upgraded.wait().await;
        left
    }

    /// Serves requests until the peer closes, until the last one is answered after `stop`, or until the
    /// connection has been idle for too long.
    pub(super) async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        peer: SocketAddr,
        permit: ConnectionPermit,
        stop: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::default());
        let course = Course::default();
        let refuse = {
            let connections = self.clone();
            Box::new(move |status| connections.service.refuse(status))
        };
        let guarded = StallGuard::new(stream, self.write_timeout);
        let io = TokioIo::new(Refusals::new(guarded, course.clone(), refuse));
        // HTTP/2 answers each stream in a task of its own.
        let (connections, begun) = (self.clone(), activity.clone());
        let upgrades = Upgrades {
            tasks: self.upgraded.clone(),
            permit: Arc::new(permit),
            stop: stop.clone(),
            cut: self.cut.clone(),
        };
        let service = service_fn(move |request| {
            let (connections, in_flight) = (connections.clone(), begun.begin());
            let around = Around { peer, upgrades: upgrades.clone(), course: course.clone() };
            async move { connections.service.answer(request, around, in_flight).await }
        });
        let mut connection = pin!(self.builder.serve_connection_with_upgrades(io, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                Some(connection.await)
            }
            () = activity.ceases(self.header_timeout, self.idle_timeout) => {
                connection.as_mut().graceful_shutdown();
                tokio::time::timeout(GOODBYE, connection).await.ok()
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
}
