//! ICE over TCP (RFC 6544), active side, for networks that block UDP: every datagram is a frame with its length in
//! front (RFC 4571).

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Connections per peer: a server offers one for each of its addresses.
const CONNECTIONS_MAX: usize = 8;
/// Datagrams by which either side may lag behind.
const QUEUE: usize = 256;

/// An event of a connection, which `local` identifies.
pub enum Arrival {
    Open { local: SocketAddr, outgoing: mpsc::Sender<Vec<u8>> },
    Datagram { local: SocketAddr, remote: SocketAddr, bytes: Vec<u8> },
}

/// The connections of one peer. Dropping it closes them.
pub struct Connections {
    dialled: HashSet<SocketAddr>,
    open: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>>,
    arrived: mpsc::Sender<Arrival>,
    arrivals: mpsc::Receiver<Arrival>,
    tasks: JoinSet<()>,
}

impl Connections {
    pub fn new() -> Self {
        let (arrived, arrivals) = mpsc::channel(QUEUE);
        Self { dialled: HashSet::new(), open: HashMap::new(), arrived, arrivals, tasks: JoinSet::new() }
    }

    /// Connects to an address of the server, once.
    pub fn dial(&mut self, remote: SocketAddr) {
        if self.dialled.len() < CONNECTIONS_MAX && self.dialled.insert(remote) {
            self.tasks.spawn(serve(remote, self.arrived.clone()));
        }
    }

    /// Sends a datagram. It is lost if the connection is not ready, as with UDP.
    pub fn send(&self, local: SocketAddr, datagram: Vec<u8>) {
        if let Some(outgoing) = self.open.get(&local) {
            let _ = outgoing.try_send(datagram);
        }
    }

    /// The next event. Cancel-safe. It is never none, since `self` holds a sender.
    pub async fn next(&mut self) -> Option<Arrival> {
        let arrival = self.arrivals.recv().await;
        if let Some(Arrival::Open { local, outgoing }) = &arrival {
            self.open.insert(*local, outgoing.clone());
        }
        arrival
    }
}

/// Runs one connection. If it fails or ends, ICE notices.
async fn serve(remote: SocketAddr, arrived: mpsc::Sender<Arrival>) {
    let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(remote)).await else { return };
    let Ok(local) = stream.local_addr() else { return };
    // Speech is not to wait until there is more of it.
    let _ = stream.set_nodelay(true);
    let (read, write) = stream.into_split();
    let (outgoing, to_send) = mpsc::channel(QUEUE);
    if arrived.send(Arrival::Open { local, outgoing }).await.is_err() {
        return;
    }
    let ended = tokio::select! {
        ended = send(write, to_send) => ended,
        ended = receive(BufReader::new(read), local, remote, &arrived) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the media server ended");
    }
}

async fn send(mut write: OwnedWriteHalf, mut datagrams: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(datagram) = datagrams.recv().await {
        let Ok(length) = u16::try_from(datagram.len()) else { continue };
        let mut frame = Vec::with_capacity(2 + datagram.len());
        frame.extend(length.to_be_bytes());
        frame.extend(datagram);
        write.write_all(&frame).await?;
    }
    Ok(())
}

async fn receive(
    mut read: BufReader<OwnedReadHalf>,
    local: SocketAddr,
    remote: SocketAddr,
    arrived: &mpsc::Sender<Arrival>,
) -> io::Result<()> {
    loop {
        let mut bytes = vec![0; usize::from(read.read_u16().await?)];
        read.read_exact(&mut bytes).await?;
        if arrived.send(Arrival::Datagram { local, remote, bytes }).await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn datagrams_are_frames_both_ways_and_a_server_is_dialled_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = listener.local_addr().unwrap();
        let mut connections = Connections::new();
        connections.dial(remote);
        connections.dial(remote);
        let (mut server, _) = listener.accept().await.unwrap();
        let Some(Arrival::Open { local, .. }) = connections.next().await else { panic!("not open") };
        assert_eq!(server.peer_addr().unwrap(), local);

        connections.send(local, vec![0; 1 << 16]);
        connections.send(remote, b"to no one".to_vec());
        connections.send(local, b"hello".to_vec());
        let mut frame = [0; 7];
        server.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame, b"\0\x05hello");

        for part in [&b"\0"[..], b"\x03ye", b"s\0\0"] {
            server.write_all(part).await.unwrap();
        }
        for expected in [&b"yes"[..], b""] {
            let Some(Arrival::Datagram { local: at, remote: from, bytes }) = connections.next().await else {
                panic!("no datagram")
            };
            assert_eq!((at, from, bytes.as_slice()), (local, remote, expected));
        }
        assert_eq!(connections.dialled.len(), 1);
    }
}
