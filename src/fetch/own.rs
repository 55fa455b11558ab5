//! The addresses of this machine's own interfaces. Even if they are public, a connection to them may reach
//! services that trust this machine or are meant for its neighbours only.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interfaces come and go, so the addresses are read again this often.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The addresses of this machine, refreshed regularly.
#[derive(Debug)]
pub struct Own {
    read: fn() -> io::Result<HashSet<IpAddr>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    addresses: HashSet<IpAddr>,
    read_at: Option<Instant>,
}

impl Own {
    /// The current addresses.
    pub fn of_interfaces() -> Self {
        Self::read_by(interfaces)
    }

    pub(super) fn read_by(read: fn() -> io::Result<HashSet<IpAddr>>) -> Self {
        Self { read, known: Mutex::default() }
    }

    pub fn has(&self, address: IpAddr) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read_at.is_none_or(|at| at.elapsed() >= READ_EVERY) {
            known.read_at = Some(Instant::now());
            match (self.read)() {
                Ok(addresses) => known.addresses = addresses,
                // The previous addresses are the best that is known.
                Err(error) => tracing::warn!(%error, "the addresses of this machine cannot be read"),
            }
        }
        known.addresses.contains(&address)
    }
}

/// The list from `getifaddrs`, freed on drop.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list comes from `getifaddrs`, and nothing of it is used after this.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

fn interfaces() -> io::Result<HashSet<IpAddr>> {
    let mut list = List(std::ptr::null_mut());
    // SAFETY: `list.0` is a place for the list's beginning. Where the call fails it stays null, which may be freed.
    if unsafe { libc::getifaddrs(&raw mut list.0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = HashSet::new();
    let mut next = list.0;
    // SAFETY: each entry leads to the next one, the last to none, and all live as long as `list`.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an entry's address is null, or of the family that it names.
        addresses.extend(unsafe { address(entry.ifa_addr) });
        next = entry.ifa_next;
    }
    Ok(addresses)
}

/// # Safety
/// `socket_address` is null, or points to a whole address of the family that it begins with.
unsafe fn address(socket_address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as the caller says.
    let family = unsafe { socket_address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as the caller says, and an address of this family is one of this kind.
            let v4 = unsafe { socket_address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { socket_address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn the_interfaces_of_this_machine_are_its_own() {
        let own = Own::of_interfaces();
        assert!(own.has(Ipv4Addr::LOCALHOST.into()));
        assert!(!own.has(Ipv4Addr::new(192, 0, 2, 1).into()));
        // The address that packets leave by belongs to an interface too. Nothing is sent.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let way_out = socket.local_addr().unwrap().ip();
            assert!(own.has(way_out), "{way_out}");
        }
    }

    #[test]
    fn they_are_not_read_for_each_question() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        let own = Own::read_by(|| {
            READ.fetch_add(1, Relaxed);
            Err(io::ErrorKind::Other.into())
        });
        assert!(!own.has(Ipv4Addr::LOCALHOST.into()));
        assert!(!own.has(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(READ.load(Relaxed), 1);
    }
}
