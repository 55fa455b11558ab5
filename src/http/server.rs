//! The accept loop and its end.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, Place};
use super::connection::Connections;
use super::service::Service;
use super::{Config, Error, Router, tls};
use crate::share::Tenants;

/// How long to wait when the system has no descriptor or memory left for another connection.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `shutdown` is done, then drains: nothing new is accepted, idle
/// connections close, requests that are being served finish within `drain_timeout_ms`. The memory for bodies is
/// shared between `tenants`.
///
/// # Errors
/// Before anything is served: files of TLS that cannot be used, origins that are none.
pub async fn run(
    listener: TcpListener,
    router: Router,
    config: &Config,
    tenants: Tenants,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
    let shared = Arc::new(Connections::new(Service::new(router, config, tenants)?, config));
    let admission = Admission::new(config.connections_max, config.connections_per_address_max);
    let stop = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &admission) => accepted,
        };
        let Some((stream, peer, room)) = accepted else { continue };
        // No room for this address: the stream is dropped, which closes it.
        let Some(place) = admission.enter(room, peer.ip()) else { continue };
        connections.spawn(serve(shared.clone(), tls.clone(), stream, peer, place, stop.clone()));
    }
    drop(listener);
    stop.cancel();
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

/// One connection, and the room it takes. Cancel-safe.
async fn accept(
    listener: &TcpListener,
    admission: &Admission,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let room = admission.room().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, room)),
        Err(error) => {
            // A peer that left before it was accepted is no trouble of ours; the rest are shortages.
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
    place: Place,
    stop: CancellationToken,
) {
    // Answers are small and wanted at once; where it fails the peer has gone.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return shared.serve(stream, peer, place, stop).await };
    match tokio::time::timeout(shared.header_timeout(), tls.accept(stream)).await {
        Ok(Ok(stream)) => shared.serve(stream, peer, place, stop).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
        Err(_) => tracing::debug!("no TLS in time"),
    }
}
