//! Handlers of routes from functions of the services.

use std::sync::Arc;

use super::services::Services;
use crate::http::{Failure, Request, Response};

/// `function`, bound to the services.
pub(super) fn endpoint<F, R>(
    services: &Arc<Services>,
    function: F,
) -> impl Fn(Request) -> R + Clone + Send + Sync + 'static
where
    F: Fn(Arc<Services>, Request) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    let services = services.clone();
    move |request| function(services.clone(), request)
}
