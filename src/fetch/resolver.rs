//! Look-ups whose answers are checked before the connector sees them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::Error;
use super::policy::{self, Reach, Reachable};

/// Resolves all addresses of a host. The system's resolver, except in tests.
pub(super) type LookUp =
    Arc<dyn Fn(String) -> BoxFuture<'static, std::io::Result<Vec<IpAddr>>> + Send + Sync>;

pub(super) fn system() -> LookUp {
    Arc::new(|host| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// Gives the connector the addresses that passed the check: it connects to no others.
pub(super) struct Resolver {
    pub look_up: LookUp,
    pub reach: Reach,
    pub reachable: Arc<Reachable>,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let answer = (self.look_up)(name.as_str().to_owned());
        let (reach, reachable) = (self.reach, self.reachable.clone());
        Box::pin(async move {
            let addresses = answer.await.map_err(|_| Error::Unresolvable)?;
            policy::may_connect(&addresses, reach, &reachable)?;
            // Port 0 stands for the URL's.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
