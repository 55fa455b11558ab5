//! Relays (TURN, RFC 8656) for networks without a direct way to the media server: over UDP, TCP or TLS.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use turn_client_proto::api::{
    BindChannelError, Transmit, TurnClientApi, TurnConfig, TurnEvent, TurnPollRet, TurnRecvRet,
};
use turn_client_proto::stun::Instant as Moment;
use turn_client_proto::tcp::TurnClientTcp;
use turn_client_proto::types::{TransportType, TurnCredentials};
use turn_client_proto::udp::TurnClientUdp;

use super::relay_server::{RelayServer, Transport};

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Time for the server to hear that a relay is no longer needed.
const GOODBYE: Duration = Duration::from_secs(1);
/// Relays per peer.
const RELAYS_MAX: usize = 6;
/// Datagrams by which either side may lag behind.
const QUEUE: usize = 256;
const READ_BYTES: usize = 4096;

/// An event of a relay, which its `address` identifies.
pub enum Arrival {
    Open { address: SocketAddr, local: SocketAddr, outgoing: mpsc::Sender<Outgoing> },
    Datagram { address: SocketAddr, from: SocketAddr, bytes: Vec<u8> },
}

/// A datagram, and where the relay sends it.
pub type Outgoing = (SocketAddr, Vec<u8>);

/// The relays of one peer. Dropping it gives them back.
pub struct Relays {
    dialled: Vec<RelayServer>,
    open: HashMap<SocketAddr, mpsc::Sender<Outgoing>>,
    arrived: mpsc::Sender<Arrival>,
    arrivals: mpsc::Receiver<Arrival>,
}

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("the relay cannot be reached")]
    Unreachable(#[from] io::Error),
    #[error("the relay did not answer in time")]
    Silent,
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the relay's name is none for TLS")]
    Name,
    #[error("the relay lends no address")]
    Refused,
    #[error("the relay closed the connection")]
    Closed,
}

impl Relays {
    pub fn new() -> Self {
        let (arrived, arrivals) = mpsc::channel(QUEUE);
        Self { dialled: Vec::new(), open: HashMap::new(), arrived, arrivals }
    }

    /// Asks a server for a relay, once.
    pub fn dial(&mut self, server: &RelayServer) {
        if self.dialled.len() >= RELAYS_MAX || self.dialled.contains(server) {
            return;
        }
        self.dialled.push(server.clone());
        let (server, arrived) = (server.clone(), self.arrived.clone());
        // It ends by itself when this is dropped.
        tokio::spawn(async move {
            if let Err(error) = serve(&server, arrived).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(server = %server, error, "a relay is not to be had");
            }
        });
    }

    pub fn has(&self, address: SocketAddr) -> bool {
        self.open.contains_key(&address)
    }

    /// Sends a datagram from the relay's `address`. It is lost if the relay is not ready, as with UDP.
    pub fn send(&self, address: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        if let Some(outgoing) = self.open.get(&address) {
            let _ = outgoing.try_send((to, datagram));
        }
    }

    /// The next event. Cancel-safe. It is never none, since `self` holds a sender.
    pub async fn next(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.recv().await;
        if let Some(Arrival::Open { address, outgoing, .. }) = &arrival {
            self.open.insert(*address, outgoing.clone());
        }
        arrival
    }
}

/// The way to a relay.
enum Wire {
    Datagrams(UdpSocket),
    Stream(Box<dyn Duplex>),
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Wire {
    /// The wire, and its local address.
    async fn connect(server: &RelayServer, remote: SocketAddr) -> Result<(Self, SocketAddr), RelayError> {
        if server.transport == Transport::Udp {
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
            let socket = UdpSocket::bind(any).await?;
            socket.connect(remote).await?;
            let local = socket.local_addr()?;
            return Ok((Self::Datagrams(socket), local));
        }
        let stream = TcpStream::connect(remote).await?;
        // Speech is not to wait until there is more of it.
        stream.set_nodelay(true)?;
        let local = stream.local_addr()?;
        if server.transport == Transport::Tcp {
            return Ok((Self::Stream(Box::new(stream)), local));
        }
        let name = ServerName::try_from(server.host.clone()).map_err(|_| RelayError::Name)?;
        let config = ClientConfig::with_platform_verifier()?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        Ok((Self::Stream(Box::new(stream)), local))
    }

    /// Cancel-safe.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Datagrams(socket) => socket.recv(buffer).await,
            Self::Stream(stream) => stream.read(buffer).await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Datagrams(socket) => {
                // One that the network does not take now is one that it lost.
                let _ = socket.try_send(bytes);
                Ok(())
            }
            Self::Stream(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }
}

/// Runs one relay. If it ends, ICE notices.
async fn serve(server: &RelayServer, arrived: mpsc::Sender<Arrival>) -> Result<(), RelayError> {
    let connecting = async {
        let addresses = tokio::net::lookup_host((server.host.as_str(), server.port)).await?;
        // Media servers have IPv4 addresses at least.
        let remote = addresses.into_iter().find(SocketAddr::is_ipv4).ok_or(RelayError::Closed)?;
        let (wire, local) = Wire::connect(server, remote).await?;
        Ok::<_, RelayError>((wire, local, remote))
    };
    let (wire, local, remote) = timeout(CONNECT_WAIT, connecting).await.map_err(|_| RelayError::Silent)??;
    let config = TurnConfig::new(TurnCredentials::new(&server.username, &server.credential));
    match wire {
        Wire::Datagrams(_) => {
            let client = TurnClientUdp::allocate(local, remote, config);
            Relay { wire, client, local, remote, begun: Instant::now() }.run(arrived).await
        }
        Wire::Stream(_) => {
            let client = TurnClientTcp::allocate(local, remote, config);
            Relay { wire, client, local, remote, begun: Instant::now() }.run(arrived).await
        }
    }
}

struct Relay<C> {
    wire: Wire,
    client: C,
    local: SocketAddr,
    remote: SocketAddr,
    begun: Instant,
}

impl<C: TurnClientApi> Relay<C> {
    fn now(&self) -> Moment {
        Moment::ZERO + self.begun.elapsed()
    }

    async fn run(mut self, arrived: mpsc::Sender<Arrival>) -> Result<(), RelayError> {
        let (outgoing, mut to_send) = mpsc::channel(QUEUE);
        let mut outgoing = Some(outgoing);
        let mut address = None;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let wake = self.flush().await?;
            while let Some(event) = self.client.poll_event() {
                match event {
                    TurnEvent::AllocationCreated(TransportType::Udp, relayed) => {
                        address = Some(relayed);
                        // The peer alone holds the sender: the relay is given back when it is dropped.
                        let Some(outgoing) = outgoing.take() else { continue };
                        let open = Arrival::Open { address: relayed, local: self.local, outgoing };
                        if arrived.send(open).await.is_err() {
                            return self.give_back().await;
                        }
                    }
                    TurnEvent::AllocationCreateFailed(_) => return Err(RelayError::Refused),
                    _ => {}
                }
            }
            tokio::select! {
                read = self.wire.read(&mut buffer) => {
                    let bytes = match read {
                        Ok(length) => buffer.get(..length).unwrap_or_default().to_vec(),
                        // The error belongs to an earlier datagram.
                        Err(_) if matches!(self.wire, Wire::Datagrams(_)) => continue,
                        Err(error) => return Err(error.into()),
                    };
                    if bytes.is_empty() && matches!(self.wire, Wire::Stream(_)) {
                        return Err(RelayError::Closed);
                    }
                    let Some(address) = address else {
                        self.take(bytes);
                        continue;
                    };
                    for (from, bytes) in self.take(bytes) {
                        if arrived.send(Arrival::Datagram { address, from, bytes }).await.is_err() {
                            return self.give_back().await;
                        }
                    }
                }
                datagram = to_send.recv() => match datagram {
                    Some((to, bytes)) => self.send(to, bytes).await?,
                    None => return self.give_back().await,
                },
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Sends what is due. Returns when something is due again.
    async fn flush(&mut self) -> Result<Instant, RelayError> {
        loop {
            let wake = match self.client.poll(self.now()) {
                TurnPollRet::WaitUntil(moment) => moment,
                TurnPollRet::Closed => return Err(RelayError::Refused),
                // Of relays for TCP, which are not asked for.
                TurnPollRet::AllocateTcpSocket { .. } | TurnPollRet::TcpClose { .. } => self.now(),
            };
            let mut is_idle = true;
            while let Some(transmit) = self.client.poll_transmit(self.now()) {
                is_idle = false;
                self.wire.write(&transmit.data).await?;
            }
            if is_idle {
                return Ok(Instant::now() + wake.saturating_duration_since(self.now()));
            }
        }
    }

    /// Takes bytes of the server. Returns the datagrams in them, and whence they are.
    fn take(&mut self, bytes: Vec<u8>) -> Vec<(SocketAddr, Vec<u8>)> {
        let now = self.now();
        let transmit = Transmit::new(bytes, self.client.transport(), self.remote, self.local);
        let mut datagrams = Vec::new();
        if let TurnRecvRet::PeerData(data) = self.client.recv(transmit, now) {
            datagrams.push((data.peer, data.data().to_vec()));
        }
        while let Some(data) = self.client.poll_recv(now) {
            datagrams.push((data.peer, data.data().to_vec()));
        }
        datagrams
    }

    /// Sends a datagram through the relay. The first to each peer are lost, as the relay must let it in before.
    async fn send(&mut self, to: SocketAddr, bytes: Vec<u8>) -> Result<(), RelayError> {
        let now = self.now();
        if !self.client.have_permission(TransportType::Udp, to.ip()) {
            // On a stream, a channel's data is padded (RFC 8656, 12.5), which the library leaves out; indications are
            // padded as they are. A channel that has expired cannot be bound for a while.
            let has_channel = matches!(self.wire, Wire::Datagrams(_))
                && matches!(
                    self.client.bind_channel(TransportType::Udp, to, now),
                    Ok(()) | Err(BindChannelError::AlreadyExists)
                );
            if !has_channel {
                // There may be one already that has no answer yet.
                let _ = self.client.create_permission(TransportType::Udp, to.ip(), now);
            }
            return Ok(());
        }
        if let Ok(Some(transmit)) = self.client.send_to(TransportType::Udp, to, bytes, now) {
            self.wire.write(&transmit.build().data).await?;
        }
        Ok(())
    }

    async fn give_back(mut self) -> Result<(), RelayError> {
        let now = self.now();
        if self.client.delete(now).is_ok() {
            let _ = timeout(GOODBYE, self.flush()).await;
        }
        Ok(())
    }
}
