//! The filters of the log and its sums, as queries have them.

use std::time::SystemTime;

use url::form_urlencoded;
use uuid::Uuid;

use super::period::Period;
use crate::api::error;
use crate::http::Failure;
use crate::usage::{Endpoint, FEATURES, Filter, Method};

/// The only deployment that there is.
pub const DEPLOYMENT: &str = "self-hosted";
/// Deployments of the wire format, of which there are none here.
const OTHER_DEPLOYMENTS: [&str; 3] = ["hosted", "beta", "dedicated"];
/// Endpoints of the wire format that do not exist here.
const OTHER_ENDPOINTS: [&str; 1] = ["read"];

/// The filter that `query` describes; `None` if nothing can match it. Names that are no filters are ignored.
///
/// # Errors
/// 400 for a value that is none.
pub fn of_query(query: &str, tenant: u64, now: SystemTime) -> Result<Option<Filter>, Failure> {
    let period = Period::of_query(query, now)?;
    let mut filter = Filter::all(tenant, period.start, period.end);
    let mut can_match = true;
    for (name, value) in form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
        let (name, value) = (&*name, &*value);
        match name {
            "endpoint" => {
                filter.endpoint = Endpoint::ALL.into_iter().find(|endpoint| endpoint.name() == value);
                can_match &= filter.endpoint.is_some();
                if filter.endpoint.is_none() && !OTHER_ENDPOINTS.contains(&value) {
                    return Err(error::invalid_query(name, "must be listen, read, speak or agent"));
                }
            }
            "method" => {
                let method = Method::ALL.into_iter().find(|method| method.name() == value);
                let unknown = || error::invalid_query(name, "must be sync, async or streaming");
                filter.method = Some(method.ok_or_else(unknown)?);
            }
            "status" => {
                filter.has_succeeded = match value {
                    "succeeded" => Some(true),
                    "failed" => Some(false),
                    _ => return Err(error::invalid_query(name, "must be succeeded or failed")),
                }
            }
            "deployment" => {
                can_match &= value == DEPLOYMENT;
                if value != DEPLOYMENT && !OTHER_DEPLOYMENTS.contains(&value) {
                    return Err(error::invalid_query(name, "must be hosted, beta, dedicated or self-hosted"));
                }
            }
            "accessor" => filter.key = Some(uuid(name, value)?),
            "request_id" => filter.id = Some(uuid(name, value)?),
            "model" => filter.model = Some(value.to_owned()),
            "tag" => filter.tag = Some(value.to_owned()),
            _ => {
                if let Some(feature) = FEATURES.into_iter().find(|feature| *feature == name) {
                    if filter.features.iter().any(|(given, _)| *given == feature) {
                        return Err(error::invalid_query(name, "is given twice"));
                    }
                    filter.features.push((feature, flag(name, value)?));
                }
            }
        }
    }
    Ok(can_match.then_some(filter))
}

fn uuid(name: &str, value: &str) -> Result<Uuid, Failure> {
    Uuid::parse_str(value).map_err(|_| error::invalid_query(name, "must be a UUID"))
}

fn flag(name: &str, value: &str) -> Result<bool, Failure> {
    match value {
        _ if value.eq_ignore_ascii_case("true") => Ok(true),
        _ if value.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(error::invalid_query(name, "must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(query: &str) -> Result<Option<Filter>, Failure> {
        of_query(query, 7, SystemTime::now())
    }

    #[test]
    fn a_query_is_a_filter() {
        let id = Uuid::from_u128(1);
        let query = format!(
            "accessor={id}&endpoint=listen&method=async&status=failed&tag=a+b&diarize=true&search=False&x=y&deployment=self-hosted&model=base"
        );
        let found = filter(&query).unwrap().unwrap();
        assert_eq!((found.tenant, found.key, found.endpoint), (7, Some(id), Some(Endpoint::Listen)));
        assert_eq!((found.method, found.has_succeeded), (Some(Method::Async), Some(false)));
        assert_eq!((found.tag.as_deref(), found.model.as_deref()), (Some("a b"), Some("base")));
        assert_eq!(found.features, [("diarize", true), ("search", false)]);
        for nothing in ["endpoint=read", "deployment=hosted"] {
            assert!(filter(nothing).unwrap().is_none(), "{nothing}");
        }
        for wrong in [
            "accessor=me",
            "endpoint=v1",
            "method=fast",
            "status=200",
            "deployment=moon",
            "diarize=perhaps",
            "diarize=true&diarize=false",
        ] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
