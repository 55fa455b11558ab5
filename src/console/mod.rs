//! The console: pages in the browser to try the server, hear it and run it.
//!
//! ```text
//! assets ── pages, which hold nothing secret
//! sign_in ─ guard ─ sessions ── who may ask: an admin key, or a one-time link
//! key_list  jobs  operations ── what is shown and changed, through the stores that the command line uses
//! ring ── the figures of the last hour, read from the metrics
//! ```
//!
//! [TLS]: crate::http
//! [API]: crate::api
#![doc = include_str!("README.md")]

mod assets;
mod attempts;
mod audio;
mod body;
mod config;
mod guard;
mod jobs;
mod key_list;
mod links;
mod operations;
mod policy;
mod proxies;
mod ring;
mod services;
mod sessions;
mod sign_in;

pub use config::{Config, Link};
pub use links::VALID as LINK_VALID;
pub use proxies::Proxies;
pub use services::{Parts, Setting};

use std::sync::Arc;

use hyper::Method;

use crate::http::{Failure, Request, Response, Router};
use crate::keys;
use guard::Admin;
use services::Services;

/// Adds the pages, which hold nothing secret: they work before anyone has signed in, and while the model loads.
pub fn pages(router: Router) -> Router {
    router.route_to_the_end(Method::GET, "/", assets::index).route_to_the_end(
        Method::GET,
        "/console/{hash}/{*path}",
        assets::file,
    )
}

/// The console of a running server. Cheap to clone.
#[derive(Clone)]
pub struct Console(Arc<Services>);

impl Console {
    pub fn new(parts: Parts, config: &Config) -> Self {
        Self(Arc::new(Services::new(parts, config)))
    }

    /// Adds the pages and their routes.
    pub fn routes(&self, router: Router) -> Router {
        let services = &self.0;
        pages(router)
            .route(Method::GET, "/console/session", open(services, sign_in::session))
            .route(Method::POST, "/console/session", open(services, sign_in::sign_in))
            .route(Method::DELETE, "/console/session", open(services, sign_in::sign_out))
            .route(Method::POST, "/console/api/token", signed_in(services, sign_in::token))
            .route(Method::POST, "/console/api/audio", signed_in(services, audio::fetched))
            .route(Method::GET, "/console/api/keys", signed_in(services, key_list::list))
            .route(Method::POST, "/console/api/keys", signed_in(services, key_list::create))
            .route(Method::DELETE, "/console/api/keys/{id}", signed_in(services, key_list::revoke))
            .route(Method::PUT, "/console/api/keys/{id}/limits", signed_in(services, key_list::limit))
            .route(Method::GET, "/console/api/jobs", signed_in(services, jobs::list))
            .route(Method::GET, "/console/api/jobs/{id}", signed_in(services, jobs::one))
            .route(Method::GET, "/console/api/jobs/{id}/result", signed_in(services, jobs::result))
            .route(Method::POST, "/console/api/jobs/{id}/retry", signed_in(services, jobs::retry))
            .route(Method::GET, "/console/api/operations", signed_in(services, operations::figures))
            .route(Method::GET, "/console/api/errors", signed_in(services, operations::errors))
            .route(Method::GET, "/console/api/config", signed_in(services, operations::settings))
    }

    /// Records the figures from here on. Never ends.
    pub async fn record(&self) {
        operations::record(&self.0).await;
    }

    /// The end of a new one-time link, after the address of the server.
    ///
    /// # Errors
    /// If the keys cannot be read or changed.
    pub async fn make_link(&self) -> Result<String, keys::Error> {
        Ok(format!("/#sign-in={}", self.0.make_link().await?))
    }
}

/// A route that says itself who may use it.
fn open<F, R>(services: &Arc<Services>, function: F) -> impl Fn(Request) -> R + Send + Sync + 'static
where
    F: Fn(Arc<Services>, Request) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let services = services.clone();
    move |request| function(services.clone(), request)
}

/// A route for admins who are signed in.
fn signed_in<F, R>(
    services: &Arc<Services>,
    function: F,
) -> impl Fn(Request) -> futures_util::future::BoxFuture<'static, Result<Response, Failure>> + Send + Sync + 'static
where
    F: Fn(Arc<Services>, Admin, Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let services = services.clone();
    move |request| {
        let (services, function) = (services.clone(), function.clone());
        Box::pin(async move {
            let admin = guard::admin(&services, &request).await?;
            let mut response = function(services, admin, request).await?;
            policy::mark_data(response.headers_mut());
            Ok(response)
        })
    }
}
