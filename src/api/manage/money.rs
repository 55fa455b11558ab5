//! Balances, purchases and bills, of which there are none: the server costs its clients nothing.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;
use serde::Serialize;
use uuid::Uuid;

use super::period::Period;
use super::project::manager;
use crate::api::error;
use crate::api::services::Services;
use crate::http::{Failure, Request, Response, json};
use crate::keys::{Permission, public_id};

#[derive(Serialize)]
struct Balances {
    balances: [(); 0],
}

#[derive(Serialize)]
struct Purchases {
    orders: [(); 0],
}

#[derive(Serialize)]
struct Breakdown {
    start: String,
    end: String,
    resolution: Resolution,
    results: [(); 0],
}

/// The length of each part of a breakdown.
#[derive(Serialize)]
pub(super) struct Resolution {
    pub units: &'static str,
    pub amount: u32,
}

/// Values that a breakdown of bills can be filtered by.
#[derive(Serialize)]
struct Fields {
    accessors: Vec<Uuid>,
    deployments: [&'static str; 1],
    tags: [(); 0],
    line_items: NoItems,
}

#[derive(Serialize)]
struct NoItems {}

pub(super) async fn balances(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::BillingRead).await?;
    Ok(json(StatusCode::OK, &Balances { balances: [] }))
}

pub(super) async fn balance(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::BillingRead).await?;
    Err(error::nothing_such("Balance"))
}

pub(super) async fn purchases(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::BillingRead).await?;
    Ok(json(StatusCode::OK, &Purchases { orders: [] }))
}

pub(super) async fn breakdown(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    manager(&services, &request, Permission::BillingRead).await?;
    let period = Period::of_query(request.uri.query().unwrap_or_default(), SystemTime::now())?;
    let (start, end) = (period.first_day(), period.last_day());
    let resolution = Resolution { units: "day", amount: 1 };
    Ok(json(StatusCode::OK, &Breakdown { start, end, resolution, results: [] }))
}

pub(super) async fn fields(services: Arc<Services>, request: Request) -> Result<Response, Failure> {
    let caller = manager(&services, &request, Permission::BillingRead).await?;
    let keys = services.authenticator.keys();
    let keys = keys.with_store(move |store| store.of_organisation(caller.tenant)).await?;
    let accessors = keys.iter().map(|key| public_id::of_key(&key.id)).collect();
    let fields = Fields { accessors, deployments: ["self-hosted"], tags: [], line_items: NoItems {} };
    Ok(json(StatusCode::OK, &fields))
}
