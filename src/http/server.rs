//! The accept loop and the drain.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::connection::Connections;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::service::Service;
use super::tls::Tls;
use super::{Config, Error, Router, Shutdown};
use crate::patience::within;
use crate::share::Tenants;

/// How long to wait when the system has no file descriptor or memory for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// More than any system allows: each uses its own maximum instead, as Linux does with `net.core.somaxconn`.
const BACKLOG: u32 = i32::MAX as u32;

/// Listens at `address`, with the longest backlog that the system allows: the usual 128 fills up in a burst,
/// and a client that meets a full backlog retries after a second.
///
/// # Errors
/// The address is taken, or does not belong to this machine.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Lets a restarted server take the port while connections of its predecessor linger there.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves `router` on `listener` until `stop` closes it, then drains: it accepts nothing new, idle
/// connections close, and requests in progress finish within `drain_timeout_ms`. Once `stop` leaves, new
/// requests get 503, except on routes that answer [to the end](Router::route_to_the_end). The memory for
/// bodies is shared between `tenants`.
///
/// # Errors
/// Before anything is served: unusable TLS files, invalid origins.
pub async fn run(
    listener: TcpListener,
    router: Router,
    config: &Config,
    tenants: Tenants,
    stop: Shutdown,
) -> Result<(), Error> {
    let tls = config.tls.as_ref().map(Tls::open).transpose()?;
    // Ends with this function.
    let _keeper =
        tls.clone().map(|tls| AbortOnDropHandle::new(tokio::spawn(async move { tls.keep_up().await })));
    let shared = Arc::new(Connections::new(Service::new(router, config, tenants)?, config));
    let limit = ConnectionLimit::new(config.connections_max, config.connections_per_address_max);
    let mut connections = JoinSet::new();
    let mut closed = pin!(async {
        stop.leaving().cancelled().await;
        shared.leave();
        stop.closing().cancelled().await;
    });
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closed => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &limit) => accepted,
        };
        let Some((stream, peer, room)) = accepted else { continue };
        // This address is at its limit: dropping the stream closes it.
        let Some(permit) = limit.enter(room, peer.ip()) else { continue };
        let tls = tls.as_ref().map(Tls::acceptor);
        connections.spawn(serve(shared.clone(), tls, stream, peer, permit, stop.closing().clone()));
    }
    drop(listener);
    let finish = async {
        while connections.join_next().await.is_some() {}
        shared.settled().await;
    };
    if tokio::time::timeout(Duration::from_millis(config.drain_timeout_ms), finish).await.is_err() {
        let cut = connections.len();
        connections.shutdown().await;
        let websockets = shared.cut().await;
        tracing::warn!(connections = cut, websockets, "connections cut at the end of the drain");
    }
    Ok(())
}

/// Accepts one connection, once a permit is free. Cancel-safe.
async fn accept(
    listener: &TcpListener,
    limit: &ConnectionLimit,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let room = limit.room().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, room)),
        Err(error) => {
            // A peer that left before it was accepted is no fault of the server; the other errors are
            // shortages.
            if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
            None
        }
    }
}

async fn serve(
    shared: Arc<Connections>,
    tls: Option<TlsAcceptor>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    stop: CancellationToken,
) {
    // Answers are small and urgent. If this fails, the peer has gone.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return shared.serve(stream, peer, permit, stop).await };
    match within(shared.header_timeout(), tls.accept(stream)).await {
        Some(Ok(stream)) => shared.serve(stream, peer, permit, stop).await,
        Some(Err(error)) => tracing::debug!(%error, "no TLS"),
        None => tracing::debug!("no TLS in time"),
    }
}
