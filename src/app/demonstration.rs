//! The demo backend, alone or with the voice-agent service in the same process.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::{Around, Error, listen, serve_on};
use crate::config::Config;
use crate::demo::{self, Demo};
use crate::http::{self, Shutdown};
use crate::share::Tenants;
use crate::sts;

/// The addresses of a running demonstration, to be printed.
pub struct Demonstration {
    /// The voice-agent service.
    pub sts: String,
    pub demo: String,
    /// The pages, if they are served.
    pub site: Option<String>,
    /// Commands for a shell: [`demo::story`].
    pub story: String,
}

/// Its sockets, bound before anything is served on them.
struct Sockets {
    backend: TcpListener,
    site: Option<TcpListener>,
}

impl Sockets {
    /// Binds them, and writes the ports that the system chose for port 0 into `config`.
    fn bind(config: &mut demo::Config) -> Result<Self, Error> {
        let backend = listen(config.listen)?;
        config.listen = address(&backend, config.listen);
        let site = match config.site_address() {
            None => None,
            Some(wanted) => match listen(wanted) {
                // The user has pages of their own there, and did not ask for the built-in ones.
                Err(error) if config.site_listen.is_none() => {
                    tracing::warn!(address = %wanted, error = &error as &dyn std::error::Error, "pages are not served");
                    None
                }
                site => {
                    let site = site?;
                    if config.site_listen.is_none() {
                        config.frontend_base_url = format!("http://{}", address(&site, wanted));
                    }
                    Some(site)
                }
            },
        };
        Ok(Self { backend, site })
    }
}

fn address(listener: &TcpListener, wanted: SocketAddr) -> SocketAddr {
    listener.local_addr().unwrap_or(wanted)
}

/// Serves the demo backend and its pages until `stop`. They need no model and no state.
///
/// # Errors
/// The reason why it can't start.
pub async fn demo(config: &Config, stop: Shutdown) -> Result<(), Error> {
    let mut config = config.clone();
    config.demo.key()?;
    config.demo.check()?;
    let sockets = Sockets::bind(&mut config.demo)?;
    serve_demo(sockets, &config, stop).await
}

/// Serves the voice-agent service and the demo backend, each configured with the other's address, until `stop`. Calls
/// `is_ready` with their addresses once both accept requests.
///
/// # Errors
/// As [`super::serve`] and [`demo`].
pub async fn demo_with_sts(
    mut config: Config,
    stop: Shutdown,
    is_ready: impl FnOnce(&Demonstration),
) -> Result<(), Error> {
    let key = config.demo.key()?;
    config.demo.check()?;
    // Without a key to send, the backend calls as the contract's clients do.
    if config.demo.sts_api_key.is_none() && config.sts.auth != sts::Auth::Off {
        if !config.listen.ip().is_loopback() {
            return Err(demo::Error::NoServiceKey(config.listen).into());
        }
        config.sts.auth = sts::Auth::Loopback;
    }
    config.sts.enabled = true;
    super::refuse_open(&config)?;
    let sockets = Sockets::bind(&mut config.demo)?;
    let listener = listen(config.listen)?;
    config.listen = address(&listener, config.listen);
    let scheme = if config.http.tls.is_some() { "https" } else { "http" };
    let local = |address: SocketAddr| format!("{scheme}://{}", reachable(address));
    config.demo.sts_base_url = local(config.listen);
    let demo = local(config.demo.listen);
    let verification = &mut config.sts.verification;
    if verification.hook_url.is_none() {
        verification.hook_url = Some(format!("{demo}/api/hooks/voice-verify"));
        verification.hook_api_key = Some(key);
    }
    let shown = Demonstration {
        sts: config.demo.sts_base_url.clone(),
        story: demo::story(&config.demo, &demo),
        demo,
        site: sockets.site.as_ref().map(|_| config.demo.frontend_base_url.clone()),
    };
    // If one of them fails, the other stops in order.
    let ended = stop.child();
    let service = async {
        let around = Around::default();
        let served = serve_on(listener, &config, around, ended.clone(), |_| is_ready(&shown)).await;
        ended.close();
        served
    };
    let backend = async {
        let served = serve_demo(sockets, &config, ended.clone()).await;
        ended.close();
        served
    };
    let (service, backend) = tokio::join!(service, backend);
    backend.and(service)
}

/// An address by which this machine reaches a listener on all of its addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

async fn serve_demo(sockets: Sockets, config: &Config, stop: Shutdown) -> Result<(), Error> {
    let demo = Demo::new(&config.demo)?;
    let site = sockets.site.as_ref().and_then(|site| site.local_addr().ok());
    let address = config.demo.listen;
    tracing::info!(%address, site = ?site, sts = config.demo.sts_base_url, "demo listening");
    let router = demo::router(&demo);
    let backend = http::run(sockets.backend, router, &config.http, Tenants::default(), stop.clone());
    let pages = async {
        let Some(site) = sockets.site else { return Ok(()) };
        // An operator who serves them to other machines does so behind a proxy with its own certificates.
        let http = http::Config { tls: None, ..config.http.clone() };
        let http = http::Config { cors_origins: page_origins(config), ..http };
        http::run(site, demo::site(&demo), &http, Tenants::default(), stop).await
    };
    tokio::try_join!(backend, pages)?;
    Ok(())
}

/// The allowed origins with the site's own: a proxy in front of it may forward another host than browsers see.
fn page_origins(config: &Config) -> Vec<String> {
    let own = url::Url::parse(&config.demo.frontend_base_url).map(|url| url.origin().ascii_serialization());
    let own = own.ok().filter(|origin| http::is_origin(origin));
    config.http.cors_origins.iter().cloned().chain(own).collect()
}
