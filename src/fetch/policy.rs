//! Which URLs and addresses may be reached. Looks no name up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use url::{Host, Url};

use super::own::Own;
use super::{Error, SetupError};

/// Longer URLs are refused.
pub const URL_BYTES_MAX: usize = 2048;

/// Ports that may be reached on public hosts; hosts of the allow-list may use any.
pub const PUBLIC_PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// IPv4 networks outside the public internet: IANA's special-purpose registry (RFC 6890 and its updates),
/// multicast (RFC 5771) and the former class E.
const SPECIAL_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Special parts of 2000::/3, the only public IPv6 space: protocol assignments with Teredo, ORCHID and
/// benchmarking (2001::/23), documentation (2001:db8::/32, 3fff::/20), AS112 (2620:4f:8000::/48).
const SPECIAL_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether `address` belongs to the public internet.
///
/// IPv6 addresses that embed an IPv4 address (mapped, NAT64's 64:ff9b::/96, 6to4) are judged by it; NAT64 and
/// 6to4 forms of public addresses pass, as they reach exactly those.
pub fn is_globally_routable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !SPECIAL_V4.iter().any(|(network, prefix)| in_v4(v4, *network, *prefix)),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(v4) => is_globally_routable(IpAddr::V4(v4)),
            None => {
                in_v6(v6, Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3)
                    && !SPECIAL_V6.iter().any(|(network, prefix)| in_v6(v6, *network, *prefix))
            }
        },
    }
}

/// The IPv4 address that packets to `v6` end up at, if there is one.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = v6.to_bits();
    // Truncation is intended: the address is 32 of the 128 bits.
    let at = |shift: u32| Some(Ipv4Addr::from_bits((bits >> shift) as u32));
    match v6.segments() {
        // ::ffff:a.b.c.d (RFC 4291) and NAT64's 64:ff9b::a.b.c.d (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => at(0),
        // 2002:a.b.c.d::/48 (RFC 3056).
        [0x2002, ..] => at(80),
        _ => None,
    }
}

fn in_v4(address: Ipv4Addr, network: Ipv4Addr, prefix: u8) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= u32::from(prefix)
}

fn in_v6(address: Ipv6Addr, network: Ipv6Addr, prefix: u8) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= u32::from(prefix)
}

/// Destinations allowed besides the public internet. Empty by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    hosts: Vec<(String, Option<u16>)>,
    networks: Vec<IpNet>,
}

impl AllowList {
    /// Reads entries of the form `host`, `host:port`, `address`, `address:port` or `network/prefix`.
    ///
    /// # Errors
    /// [`SetupError::Allow`] with the invalid entry.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, SetupError> {
        let mut list = Self::default();
        for entry in entries.iter().map(|entry| entry.as_ref().trim()).filter(|entry| !entry.is_empty()) {
            if let Ok(network) = entry.parse::<IpNet>() {
                list.networks.push(network);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                list.networks.push(address.into());
            } else {
                list.hosts.push(parse_host(entry).ok_or_else(|| SetupError::Allow(entry.to_owned()))?);
            }
        }
        Ok(list)
    }

    fn allows_host(&self, host: &str, port: u16) -> bool {
        self.hosts.iter().any(|(name, at)| name == host && at.is_none_or(|at| at == port))
    }

    fn allows_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// The addresses that may be reached: public ones except those of this machine's interfaces, and those of the
/// allow-list.
#[derive(Debug)]
pub struct Reachable {
    allow: AllowList,
    own: Own,
}

impl Reachable {
    pub fn new(allow: AllowList, own: Own) -> Self {
        Self { allow, own }
    }

    fn is_public(&self, address: IpAddr) -> bool {
        let within = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => embedded_v4(v6).map(IpAddr::V4),
        };
        is_globally_routable(address)
            && !self.own.has(address)
            && within.is_none_or(|within| !self.own.has(within))
    }
}

/// In the `url` crate's spelling of hosts, so that both compare by bytes.
fn parse_host(entry: &str) -> Option<(String, Option<u16>)> {
    if entry.contains(['/', '@', '?', '#', '\\', '*']) {
        return None;
    }
    let url = Url::parse(&format!("http://{entry}/")).ok()?;
    // `Url` reads a number as an address: `8080` would be 0.0.31.144, and is a port without its host.
    if let Host::Ipv4(address) = url.host()?
        && !entry.starts_with(&address.to_string())
    {
        return None;
    }
    let host = canonical(&url.host()?.to_string());
    // `Url` drops a port that is the scheme's own; it counts here.
    let port = url.port().or_else(|| entry.ends_with(":80").then_some(80));
    Some((host, port))
}

/// Without the trailing root dot: `localhost.` is `localhost`.
fn canonical(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Which addresses an accepted URL may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses, and those of the allow-list.
    Public,
    /// Addresses of the allow-list only: the port is not in [`PUBLIC_PORTS`].
    Listed,
    /// Any address: the host itself is on the allow-list.
    Any,
}

/// Parses a URL from a client.
///
/// # Errors
/// [`Error::InvalidUrl`] if it is too long, no URL, or of another scheme.
pub fn parse(text: &str) -> Result<Url, Error> {
    if text.len() > URL_BYTES_MAX {
        return Err(Error::InvalidUrl);
    }
    let url = Url::parse(text.trim()).map_err(|_| Error::InvalidUrl)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(Error::InvalidUrl);
    }
    Ok(url)
}

/// Checks everything about a URL that needs no look-up.
///
/// # Errors
/// [`Error::InvalidUrl`] for another scheme or a URL with a user, [`Error::NotRoutable`] for a non-public
/// address or port.
pub fn check(url: &Url, reachable: &Reachable) -> Result<Reach, Error> {
    let allow = &reachable.allow;
    if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some() {
        return Err(Error::InvalidUrl);
    }
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
        return Err(Error::InvalidUrl);
    };
    if allow.allows_host(&canonical(&host.to_string()), port) {
        return Ok(Reach::Any);
    }
    let address = match host {
        // Whatever a resolver says (RFC 6761, section 6.3).
        Host::Domain(name) if is_localhost(name) => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Host::Domain(_) => None,
        Host::Ipv4(v4) => Some(IpAddr::V4(v4)),
        Host::Ipv6(v6) => Some(IpAddr::V6(v6)),
    };
    match address {
        Some(address) if allow.allows_address(address) => Ok(Reach::Listed),
        Some(address) if !reachable.is_public(address) => Err(Error::NotRoutable),
        _ if PUBLIC_PORTS.contains(&port) => Ok(Reach::Public),
        // The name may still resolve to an allowed network.
        None if !allow.networks.is_empty() => Ok(Reach::Listed),
        _ => Err(Error::NotRoutable),
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// Checks all addresses of one look-up. A single non-public one refuses them all: otherwise a name with both
/// kinds could be retried until the wrong one is used.
///
/// # Errors
/// [`Error::Unresolvable`] if there are none, [`Error::NotRoutable`].
pub fn may_connect(addresses: &[IpAddr], reach: Reach, reachable: &Reachable) -> Result<(), Error> {
    if addresses.is_empty() {
        return Err(Error::Unresolvable);
    }
    let may = |address: &IpAddr| match reach {
        Reach::Public => reachable.allow.allows_address(*address) || reachable.is_public(*address),
        Reach::Listed => reachable.allow.allows_address(*address),
        Reach::Any => true,
    };
    if addresses.iter().all(may) { Ok(()) } else { Err(Error::NotRoutable) }
}

/// The target of a redirect from `from`.
///
/// # Errors
/// [`Error::InvalidUrl`]; [`Error::NotRoutable`] from https to http.
pub fn redirect(from: &Url, location: &str) -> Result<Url, Error> {
    if location.len() > URL_BYTES_MAX {
        return Err(Error::InvalidUrl);
    }
    let to = from.join(location).map_err(|_| Error::InvalidUrl)?;
    match (from.scheme(), to.scheme()) {
        ("https", "http") => Err(Error::NotRoutable),
        (_, "http" | "https") => Ok(to),
        _ => Err(Error::InvalidUrl),
    }
}

/// `url` without its user and password, for the connection and for checks.
pub fn without_user(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

#[cfg(test)]
mod tests;
