//! One peer connection: str0m over a UDP socket, over TCP if the server listens for it, and over relays if neither gets
//! through. The server has a public address, so ICE needs no other candidates of this machine than its own addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use str0m::change::{SdpAnswer, SdpOffer, SdpPendingOffer};
use str0m::error::{IceError, SdpError};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive, TcpType};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcError};
use tokio::net::UdpSocket;
use url::{Host, Url};

use super::crypto;
use super::relay::{self, Relays};
use super::relay_server::RelayServer;
use super::tcp::{Arrival, Connections};
use crate::room::config::Relay;

/// How long to wait for a late packet.
const REORDERING: Duration = Duration::from_millis(100);
/// Time for a direct way, before relays are asked for.
const DIRECT_WAIT: Duration = Duration::from_secs(2);
const DATAGRAM_BYTES_MAX: usize = 2000;
/// The reliable, ordered data channel, in both directions.
pub const RELIABLE: &str = "_reliable";

#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("no UDP socket")]
    Socket(#[from] io::Error),
    #[error("no way to the LiveKit server is known")]
    NoRoute,
    #[error("the connection's media failed")]
    Rtc(#[from] RtcError),
    #[error("the server's session description means nothing")]
    Sdp(#[from] SdpError),
    #[error("no candidate")]
    Candidate(#[from] IceError),
    #[error("an answer that was not asked for")]
    Unasked,
    #[error("media may only go over a relay, and the LiveKit server names none")]
    NoRelay,
}

/// The ways that a peer's media may take.
#[derive(Clone)]
pub struct Ways {
    pub relay: Relay,
    pub relays: Vec<RelayServer>,
}

pub struct Peer {
    pub rtc: Rtc,
    socket: UdpSocket,
    tcp: Connections,
    ways: Ways,
    relays: Relays,
    /// When to ask for relays, unless connected by then.
    relay_at: Option<Instant>,
    is_connected: bool,
    /// The local address, as the server sees it.
    local: SocketAddr,
    buffer: Vec<u8>,
    pending: Option<SdpPendingOffer>,
    /// Candidates that arrived before a session description.
    early: Vec<Candidate>,
    has_remote: bool,
}

/// The local address from which `url` is reached.
pub async fn local_ip(url: &Url) -> Result<IpAddr, PeerError> {
    let port = url.port_or_known_default().unwrap_or_default();
    let remotes: Vec<SocketAddr> = match url.host().ok_or(PeerError::NoRoute)? {
        Host::Ipv4(ip) => vec![(ip, port).into()],
        Host::Ipv6(ip) => vec![(ip, port).into()],
        Host::Domain(name) => tokio::net::lookup_host((name, port)).await?.collect(),
    };
    let remote = remotes.iter().find(|remote| remote.is_ipv4()).or(remotes.first());
    let remote = remote.ok_or(PeerError::NoRoute)?;
    let socket = UdpSocket::bind((any(remote.ip()), 0)).await?;
    // Nothing is sent by this.
    socket.connect(remote).await?;
    Ok(socket.local_addr()?.ip())
}

fn any(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

impl Peer {
    /// # Errors
    /// [`PeerError::Socket`], [`PeerError::NoRelay`].
    pub async fn new(ip: IpAddr, ways: Ways) -> Result<Self, PeerError> {
        if ways.relay == Relay::Only && ways.relays.is_empty() {
            return Err(PeerError::NoRelay);
        }
        // On every address: the server may be reached over another one than its interface.
        let socket = UdpSocket::bind((any(ip), 0)).await?;
        let local = SocketAddr::new(ip, socket.local_addr()?.port());
        let mut rtc = Rtc::builder()
            .set_crypto_provider(crypto::provider())
            .clear_codecs()
            .enable_opus(true, false)
            .enable_pcmu(true, false)
            .set_reordering_timeout_audio(Some(REORDERING))
            .build(Instant::now());
        if ways.relay != Relay::Only {
            rtc.add_local_candidate(Candidate::host(local, "udp")?);
        }
        Ok(Self {
            rtc,
            socket,
            tcp: Connections::new(),
            ways,
            relays: Relays::new(),
            relay_at: None,
            is_connected: false,
            local,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            pending: None,
            early: Vec::new(),
            has_remote: false,
        })
    }

    /// The relays that the server names now.
    pub fn set_relays(&mut self, relays: Vec<RelayServer>) {
        self.ways.relays = relays;
    }

    /// An offer to send one track, and the media section to write it to. The server identifies the track by `cid`.
    ///
    /// # Errors
    /// [`PeerError::Unasked`] if there is an offer already.
    pub fn offer(&mut self, cid: &str) -> Result<(Mid, String), PeerError> {
        let mut changes = self.rtc.sdp_api();
        let stream = Some("agent".to_owned());
        let mid =
            changes.add_media(MediaKind::Audio, Direction::SendOnly, stream, Some(cid.to_owned()), None);
        changes.add_channel(RELIABLE.into());
        let (offer, pending) = changes.apply().ok_or(PeerError::Unasked)?;
        self.pending = Some(pending);
        Ok((mid, offer.to_sdp_string()))
    }

    /// An offer that restarts ICE: the way to the server is looked for again.
    ///
    /// # Errors
    /// [`PeerError::Unasked`] if the first offer has no answer yet.
    pub fn restart(&mut self) -> Result<String, PeerError> {
        if !self.has_remote {
            return Err(PeerError::Unasked);
        }
        let mut changes = self.rtc.sdp_api();
        changes.ice_restart(true);
        let (offer, pending) = changes.apply().ok_or(PeerError::Unasked)?;
        self.pending = Some(pending);
        Ok(offer.to_sdp_string())
    }

    /// Takes the server's answer to the offer.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn answered(&mut self, sdp: &str) -> Result<(), PeerError> {
        let pending = self.pending.take().ok_or(PeerError::Unasked)?;
        self.rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(sdp)?)?;
        self.is_described(sdp);
        Ok(())
    }

    /// The answer to the server's offer.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn answer(&mut self, sdp: &str) -> Result<String, PeerError> {
        let answer = self.rtc.sdp_api().accept_offer(SdpOffer::from_sdp_string(sdp)?)?;
        self.is_described(sdp);
        Ok(answer.to_sdp_string())
    }

    fn is_described(&mut self, sdp: &str) {
        if !std::mem::replace(&mut self.has_remote, true) {
            self.relay_at = match self.ways.relay {
                Relay::Auto => Some(Instant::now() + DIRECT_WAIT),
                Relay::Only => Some(Instant::now()),
                Relay::Off => None,
            };
        }
        let named = sdp.lines().filter_map(|line| line.strip_prefix("a=candidate:"));
        for candidate in
            named.filter_map(|text| Candidate::from_sdp_string(&format!("candidate:{text}")).ok())
        {
            self.dial(&candidate);
        }
        for candidate in std::mem::take(&mut self.early) {
            self.add(candidate);
        }
    }

    fn add(&mut self, candidate: Candidate) {
        self.dial(&candidate);
        self.rtc.add_remote_candidate(candidate);
    }

    fn dial(&mut self, candidate: &Candidate) {
        if self.ways.relay == Relay::Only {
            return;
        }
        if candidate.proto() == Protocol::Tcp && candidate.tcptype() == Some(TcpType::Passive) {
            self.tcp.dial(candidate.addr());
        }
    }

    /// Takes a candidate of the server in the browsers' form. Unknown forms are ignored.
    pub fn candidate(&mut self, init: &str) {
        match serde_json::from_str(init) {
            Ok(candidate) if self.has_remote => self.add(candidate),
            Ok(candidate) if self.early.len() < 32 => self.early.push(candidate),
            _ => {}
        }
    }

    /// The next event. Cancel-safe. Call it again after every change of `rtc`.
    ///
    /// # Errors
    /// [`PeerError::Rtc`].
    pub async fn next(&mut self) -> Result<Event, PeerError> {
        loop {
            let wake = match self.rtc.poll_output()? {
                Output::Event(event) => {
                    if let Event::IceConnectionStateChange(state) = &event {
                        self.is_connected = state.is_connected();
                        if state.is_disconnected() && self.ways.relay != Relay::Off {
                            self.relay_at = Some(Instant::now());
                        }
                    }
                    return Ok(event);
                }
                Output::Transmit(datagram) => {
                    if self.relays.has(datagram.source) {
                        let bytes = datagram.contents.into();
                        self.relays.send(datagram.source, datagram.destination, bytes);
                    } else if datagram.proto == Protocol::Udp {
                        // One that the network does not take now is one that it lost.
                        let _ = self.socket.try_send_to(&datagram.contents, datagram.destination);
                    } else {
                        self.tcp.send(datagram.source, datagram.contents.into());
                    }
                    continue;
                }
                Output::Timeout(wake) => wake,
            };
            tokio::select! {
                biased;
                received = self.socket.recv_from(&mut self.buffer) => {
                    // The error belongs to an earlier datagram: its receiver has stopped listening.
                    let Ok((length, source)) = received else { continue };
                    let bytes = self.buffer.get(..length).unwrap_or_default();
                    if let Ok(receive) = Receive::new(Protocol::Udp, source, self.local, bytes) {
                        self.rtc.handle_input(Input::Receive(Instant::now(), receive))?;
                    }
                }
                Some(arrival) = self.tcp.next() => match arrival {
                    Arrival::Open { local, .. } => {
                        let candidate = Candidate::builder().tcp().host(local).tcptype(TcpType::Active).build()?;
                        self.rtc.add_local_candidate(candidate);
                    }
                    Arrival::Datagram { local, remote, bytes } => {
                        if let Ok(receive) = Receive::new(Protocol::Tcp, remote, local, &bytes) {
                            self.rtc.handle_input(Input::Receive(Instant::now(), receive))?;
                        }
                    }
                },
                Some(arrival) = self.relays.next() => match arrival {
                    relay::Arrival::Open { address, local, .. } => {
                        self.rtc.add_local_candidate(Candidate::relayed(address, local, Protocol::Udp)?);
                    }
                    relay::Arrival::Datagram { address, from, bytes } => {
                        if let Ok(receive) = Receive::new(Protocol::Udp, from, address, &bytes) {
                            self.rtc.handle_input(Input::Receive(Instant::now(), receive))?;
                        }
                    }
                },
                () = tokio::time::sleep_until(self.relay_at.unwrap_or(wake).into()), if self.relay_at.is_some() => {
                    self.relay_at = None;
                    if !self.is_connected {
                        self.ways.relays.iter().for_each(|server| self.relays.dial(server));
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => {
                    self.rtc.handle_input(Input::Timeout(Instant::now()))?;
                }
            }
        }
    }
}

/// The `mid` and the stream of each track in an offer.
pub fn streams(sdp: &str) -> Vec<(String, String)> {
    let media = sdp.split("\nm=").skip(1);
    let attribute = |media: &str, name: &str| {
        media.lines().find_map(|line| line.trim_end().strip_prefix(name).map(str::to_owned))
    };
    media
        .filter_map(|media| {
            let stream = attribute(media, "a=msid:")?;
            let stream = stream.split(' ').next()?.to_owned();
            Some((attribute(media, "a=mid:")?, stream))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct() -> Ways {
        Ways { relay: Relay::Off, relays: Vec::new() }
    }

    #[test]
    fn tracks_are_found_in_an_offer() {
        let sdp = "v=0\r\na=msid-semantic: WMS *\r\nm=application 9 UDP/DTLS/SCTP x\r\na=mid:0\r\n\
                   m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:1\r\na=msid:PA_x|TR_y TR_y\r\n\
                   m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:2\r\na=inactive\r\n";
        assert_eq!(streams(sdp), [("1".to_owned(), "PA_x|TR_y".to_owned())]);
    }

    #[tokio::test]
    async fn an_offer_names_its_track_and_an_answer_nobody_asked_for_is_refused() {
        let mut peer = Peer::new(Ipv4Addr::LOCALHOST.into(), direct()).await.unwrap();
        assert!(matches!(peer.answered("v=0"), Err(PeerError::Unasked)));
        let (mid, offer) = peer.offer("TR_mine").unwrap();
        assert_eq!(streams(&offer), [(mid.to_string(), "agent".to_owned())]);
        assert!(offer.contains("agent TR_mine") && offer.contains("opus/48000"), "{offer}");
        assert!(peer.answered("nonsense").is_err());
    }

    #[tokio::test]
    async fn media_that_may_only_go_over_a_relay_needs_one() {
        let ways = Ways { relay: Relay::Only, relays: Vec::new() };
        assert!(matches!(Peer::new(Ipv4Addr::LOCALHOST.into(), ways).await, Err(PeerError::NoRelay)));
    }

    #[tokio::test]
    async fn we_understand_ourselves() {
        let mut one = Peer::new(Ipv4Addr::LOCALHOST.into(), direct()).await.unwrap();
        let mut other = Peer::new(Ipv4Addr::LOCALHOST.into(), direct()).await.unwrap();
        let answer = other.answer(&one.offer("TR_mine").unwrap().1).unwrap();
        one.answered(&answer).unwrap();
        let connected = async |peer: &mut Peer| {
            while !matches!(peer.next().await.unwrap(), Event::Connected) {}
        };
        let both = async {
            let (mut one_is, mut other_is) = (false, false);
            while !one_is || !other_is {
                tokio::select! {
                    () = connected(&mut one) => one_is = true,
                    () = connected(&mut other) => other_is = true,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), both).await.expect("DTLS and SRTP by our own ciphers");
    }
}
