//! Servers of relays, as a LiveKit server names them (URIs of RFC 7065).

use std::fmt;

use super::protocol::IceServer;

#[derive(Clone, PartialEq, Eq)]
pub struct RelayServer {
    pub host: String,
    pub port: u16,
    pub transport: Transport,
    pub username: String,
    pub credential: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Udp,
    Tcp,
    Tls,
}

/// For logs: without the account.
impl fmt::Display for RelayServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {:?}", self.host, self.port, self.transport)
    }
}

impl RelayServer {
    /// Those of `servers`. Servers that only tell addresses (`stun:`) are left out, and DTLS is.
    pub fn read(servers: &[IceServer]) -> Vec<Self> {
        let all = servers.iter().flat_map(|server| server.urls.iter().map(move |url| (server, url)));
        all.filter_map(|(server, url)| Self::of(server, url)).collect()
    }

    fn of(server: &IceServer, url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let transport = match (scheme, query.strip_prefix("transport=")) {
            ("turn", None | Some("udp")) => Transport::Udp,
            ("turn", Some("tcp")) => Transport::Tcp,
            ("turns", None | Some("tcp")) => Transport::Tls,
            _ => return None,
        };
        let usual = if transport == Transport::Tls { 5349 } else { 3478 };
        let (host, port) = match address.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, port.strip_prefix(':'))
            }
            None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Some(usual), |port| port.parse().ok())?;
        if host.is_empty() {
            return None;
        }
        let (username, credential) = (server.username.clone(), server.credential.clone());
        Some(Self { host: host.to_owned(), port, transport, username, credential })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_told_from_other_servers() {
        let read = |url: &str| {
            let server = IceServer { urls: vec![url.into()], username: "me".into(), credential: "x".into() };
            let found = RelayServer::read(&[server]);
            found.first().map(|server| {
                assert_eq!((server.username.as_str(), server.credential.as_str()), ("me", "x"));
                server.to_string()
            })
        };
        for (url, expected) in [
            ("turn:127.0.0.1:3478?transport=udp", "127.0.0.1:3478 Udp"),
            ("turn:relay.example", "relay.example:3478 Udp"),
            ("turn:relay.example:80?transport=tcp", "relay.example:80 Tcp"),
            ("turns:relay.example:443?transport=tcp", "relay.example:443 Tls"),
            ("turns:relay.example", "relay.example:5349 Tls"),
            ("turn:[::1]:3478", "::1:3478 Udp"),
        ] {
            assert_eq!(read(url).as_deref(), Some(expected), "{url}");
        }
        for url in ["", "stun:relay.example:3478", "turn:", "turn:x:y", "turns:x?transport=udp", "turn:[::1"]
        {
            assert_eq!(read(url), None, "{url}");
        }
    }
}
