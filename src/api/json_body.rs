//! JSON bodies of requests that are small and are read whole.

use serde::de::DeserializeOwned;

use super::error;
use crate::http::{Body, Failure};

const BYTES_MAX: u64 = 64 << 10;

/// The body as a `T`; `None` if there is none. Charged to `tenant`.
///
/// # Errors
/// 400 for anything else than a `T` in JSON; 408, 413, 429, 503.
pub(super) async fn read<T: DeserializeOwned>(body: Body, tenant: u64) -> Result<Option<T>, Failure> {
    let body = body.charged_to(tenant).collect_at_most(BYTES_MAX).await?;
    let bytes = body.bytes();
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|problem| error::invalid_body(&problem))
}
