//! Projects: the organisation of the key.

use std::sync::Arc;

use hyper::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::api::error;
use crate::api::json_body::read;
use crate::api::services::Services;
use crate::http::{Caller, Failure, Request, Response, json};
use crate::keys::{Permission, public_id};

#[derive(Serialize)]
struct Projects {
    projects: Vec<Project>,
}

#[derive(Serialize)]
struct Project {
    project_id: Uuid,
    name: String,
    /// Nothing that is sent is used to improve models.
    mip_opt_out: bool,
}

#[derive(Deserialize)]
struct Change {
    name: Option<String>,
}

/// The outcome, for people.
#[derive(Serialize)]
pub(super) struct Message {
    pub message: &'static str,
}

/// The caller, if the project that the path names is its own and its key allows `permission`.
///
/// # Errors
/// 401, 403; 404 for any other project.
pub(super) async fn manager(
    services: &Services,
    request: &Request,
    permission: Permission,
) -> Result<Caller, Failure> {
    let caller = services.authenticator.manager(&request.headers, permission).await?;
    let named = request.capture("project_id").and_then(|id| Uuid::parse_str(id).ok());
    if named != Some(public_id::of_organisation(caller.tenant)) {
        return Err(error::no_such_project());
    }
    Ok(caller)
}

pub(super) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = services.authenticator.manager(&request.headers, Permission::ProjectRead).await?;
    let projects = vec![project(&services, caller.tenant).await?];
    Ok(json(StatusCode::OK, &Projects { projects }))
}

pub(super) async fn one(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::ProjectRead).await?;
    Ok(json(StatusCode::OK, &project(&services, caller.tenant).await?))
}

async fn project(services: &Services, tenant: u64) -> Result<Project, Failure> {
    let keys = services.authenticator.keys();
    let name = keys.with_store(move |store| store.organisation_name(tenant)).await?;
    Ok(Project { project_id: public_id::of_organisation(tenant), name, mip_opt_out: true })
}

pub(super) async fn rename(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::ProjectWrite).await?;
    let change: Option<Change> = read(request.body, caller.tenant).await?;
    // As in the wire format, an empty change succeeds.
    if let Some(name) = change.and_then(|change| change.name) {
        let rename = move |store: &crate::keys::Store| store.rename_organisation(caller.tenant, &name);
        services.authenticator.keys().with_store(rename).await?;
    }
    Ok(json(StatusCode::OK, &Message { message: "Successfully updated project info." }))
}

pub(super) async fn delete(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::ProjectWrite).await?;
    Err(error::not_implemented(
        "An organisation is not deleted here: the operator ends it by `verbatim keys revoke` of its keys.",
    ))
}

pub(super) async fn leave(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::ProjectRead).await?;
    Err(error::not_implemented("There are no members who could leave: an organisation has keys alone."))
}
