//! Members and invitations, of which there are none: an organisation has keys alone.

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;

use super::project::manager;
use crate::api::error;
use crate::api::services::Services;
use crate::http::{Failure, Request, Response, json};
use crate::keys::Permission;

#[derive(Serialize)]
struct Members {
    members: [(); 0],
}

#[derive(Serialize)]
struct Invites {
    invites: [(); 0],
}

pub(super) async fn list(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersRead).await?;
    Ok(json(StatusCode::OK, &Members { members: [] }))
}

pub(super) async fn remove(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersWrite).await?;
    Err(error::nothing_such("Member"))
}

pub(super) async fn scopes(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersRead).await?;
    Err(error::nothing_such("Member"))
}

pub(super) async fn set_scopes(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersWrite).await?;
    Err(error::nothing_such("Member"))
}

pub(super) async fn invites(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersRead).await?;
    Ok(json(StatusCode::OK, &Invites { invites: [] }))
}

pub(super) async fn invite(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersWrite).await?;
    Err(error::not_implemented("There are no members to invite: make a key for each person or program."))
}

pub(super) async fn withdraw(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::MembersWrite).await?;
    Err(error::nothing_such("Invite"))
}
