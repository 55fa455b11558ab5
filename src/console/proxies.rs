//! The address of a client behind proxies that the operator trusts.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HeaderName;
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The networks of trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies(Vec<IpNet>);

impl Proxies {
    /// Reads addresses (`10.0.0.1`) and networks (`10.0.0.0/8`); `None` if one is neither.
    pub fn parse<T: AsRef<str>>(entries: &[T]) -> Option<Self> {
        let network = |entry: &T| {
            let entry = entry.as_ref().trim();
            entry.parse().ok().or_else(|| entry.parse::<IpAddr>().ok().map(IpNet::from))
        };
        entries.iter().map(network).collect::<Option<_>>().map(Self)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The client of a request that comes from `peer`: the last address in `X-Forwarded-For` that is not a trusted
    /// proxy. Each proxy adds the address that it hears from at the end, so whatever stands before an address that is
    /// not trusted may be invented.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let fields = headers.get_all(X_FORWARDED_FOR).iter().map(|field| field.to_str().unwrap_or_default());
        let entries: Vec<&str> = fields.flat_map(|field| field.split(',')).collect();
        let mut client = peer.to_canonical();
        for entry in entries.iter().rev() {
            if !self.trusts(client) {
                break;
            }
            let Some(address) = address(entry.trim()) else { break };
            client = address;
        }
        client
    }
}

/// Some proxies add the port.
fn address(entry: &str) -> Option<IpAddr> {
    let with_port = || entry.parse::<SocketAddr>().ok().map(|address| address.ip());
    entry.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trusted_proxies_say_who_the_client_is() {
        let proxies = Proxies::parse(&["127.0.0.0/8", "::1", "10.0.0.0/8"]).unwrap();
        let client = |peer: &str, fields: &[&str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(X_FORWARDED_FOR, field.parse().unwrap());
            }
            proxies.client(peer.parse().unwrap(), &headers).to_string()
        };
        for (peer, fields, expected) in [
            ("192.0.2.1", &[][..], "192.0.2.1"),
            ("192.0.2.1", &["198.51.100.1"], "192.0.2.1"),
            ("127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:127.0.0.1", &["198.51.100.1:5000"], "198.51.100.1"),
            ("::1", &["[2001:db8::1]:5000"], "2001:db8::1"),
            ("127.0.0.1", &["203.0.113.9, 198.51.100.1", "10.0.0.7"], "198.51.100.1"),
            ("127.0.0.1", &["10.0.0.7"], "10.0.0.7"),
            ("127.0.0.1", &["unknown"], "127.0.0.1"),
            ("127.0.0.1", &["198.51.100.1, unknown"], "127.0.0.1"),
            ("127.0.0.1", &[""], "127.0.0.1"),
        ] {
            assert_eq!(client(peer, fields), expected, "{peer} {fields:?}");
        }
        assert_eq!(Proxies::parse(&["proxy.internal"]), None);
        assert_eq!(Proxies::parse(&["10.0.0.0/33"]), None);
    }
}
