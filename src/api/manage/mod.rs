//! `/v1/projects/…`: management by the wire format's clients. An organisation is a project, and manages its own
//! keys and sees its own use; endpoints without a counterpart here (members, billing) return well-formed empty answers.
//!
//! All of it needs a key with the scope that each endpoint names; tokens manage nothing. Another
//! organisation's project does not exist for the caller.

mod date;
mod filter;
mod keys;
mod members;
pub(super) mod models;
mod money;
mod period;
mod project;
mod requests;
mod usage;

use std::sync::Arc;

use hyper::Method;

use super::endpoint::endpoint;
use super::services::Services;
use crate::http::Router;

/// Adds the routes of management to `router`.
pub(super) fn routes(router: Router, services: &Arc<Services>) -> Router {
    const PROJECT: &str = "/v1/projects/{project_id}";
    let on = |rest: &str| format!("{PROJECT}{rest}");
    router
        .route(Method::GET, "/v1/projects", endpoint(services, project::list))
        .route(Method::GET, PROJECT, endpoint(services, project::one))
        .route(Method::PATCH, PROJECT, endpoint(services, project::rename))
        .route(Method::DELETE, PROJECT, endpoint(services, project::delete))
        .route(Method::DELETE, &on("/leave"), endpoint(services, project::leave))
        .route(Method::GET, &on("/keys"), endpoint(services, keys::list))
        .route(Method::POST, &on("/keys"), endpoint(services, keys::create))
        .route(Method::GET, &on("/keys/{key_id}"), endpoint(services, keys::one))
        .route(Method::DELETE, &on("/keys/{key_id}"), endpoint(services, keys::delete))
        .route(Method::GET, &on("/members"), endpoint(services, members::list))
        .route(Method::DELETE, &on("/members/{member_id}"), endpoint(services, members::remove))
        .route(Method::GET, &on("/members/{member_id}/scopes"), endpoint(services, members::scopes))
        .route(Method::PUT, &on("/members/{member_id}/scopes"), endpoint(services, members::set_scopes))
        .route(Method::GET, &on("/invites"), endpoint(services, members::invites))
        .route(Method::POST, &on("/invites"), endpoint(services, members::invite))
        .route(Method::DELETE, &on("/invites/{email}"), endpoint(services, members::withdraw))
        .route(Method::GET, &on("/requests"), endpoint(services, requests::list))
        .route(Method::GET, &on("/requests/{request_id}"), endpoint(services, requests::one))
        .route(Method::GET, &on("/usage"), endpoint(services, usage::summary))
        .route(Method::GET, &on("/usage/breakdown"), endpoint(services, usage::breakdown))
        .route(Method::GET, &on("/usage/fields"), endpoint(services, usage::fields))
        .route(Method::GET, &on("/balances"), endpoint(services, money::balances))
        .route(Method::GET, &on("/balances/{balance_id}"), endpoint(services, money::balance))
        .route(Method::GET, &on("/purchases"), endpoint(services, money::purchases))
        .route(Method::GET, &on("/billing/breakdown"), endpoint(services, money::breakdown))
        .route(Method::GET, &on("/billing/fields"), endpoint(services, money::fields))
        .route(Method::GET, &on("/models"), endpoint(services, models::of_project))
        .route(Method::GET, &on("/models/{model_id}"), endpoint(services, models::one_of_project))
}
