//! Failures in the form that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`.
//!
//! | status | type                    | code                  | when |
//! |--------|-------------------------|-----------------------|------|
//! | 400    | `invalid_request_error` | often null            | a form or a parameter that is not valid; `param` names it |
//! | 401    | `invalid_request_error` | `invalid_api_key`     | no key, or no such key |
//! | 403    | `invalid_request_error` | `origin_not_allowed`  | a page without a key |
//! | 404    | `invalid_request_error` | `model_not_found`     | a model that is not served |
//! | 404    | `invalid_request_error` | `unknown_url`         | no such path |
//! | 405    | `invalid_request_error` | `method_not_supported`| with `Allow` |
//! | 413    | `invalid_request_error` | `payload_too_large`   | more bytes than are taken |
//! | 429    | `requests`              | `rate_limit_exceeded` | with `Retry-After` |
//! | 503    | `server_error`          | `server_overloaded`   | with `Retry-After` |
//! | 5xx    | `server_error`          |                       | |
//!
//! A handler under these paths returns any [`Failure`], and [`form`] rewrites it. Those made by [`invalid`] and its
//! neighbours name the parameter at fault as well.

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::super::listen::is_sdk;
use crate::http::{Failure, FailureForm};

/// Paths whose failures have this form, whoever calls.
const PATHS: [&str; 2] = ["/v1/audio", "/v1/realtime"];
/// A path that clients of the wire format call too.
const MODELS: &str = "/v1/models";

/// The form of failures at `path`; `None` for the wire format's.
pub fn form(path: &str, headers: &HeaderMap) -> Option<FailureForm> {
    let is_under =
        |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let is_ours = PATHS.iter().any(|root| is_under(root)) || (is_under(MODELS) && !is_wire(headers));
    is_ours.then_some(shaped as FailureForm)
}

/// Whether a client of the wire format sent `headers`: an SDK, or anyone with the scheme `Token`.
pub fn is_wire(headers: &HeaderMap) -> bool {
    let scheme = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().trim_ascii().get(..6));
    is_sdk(headers) || scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"token "))
}

/// `failure` with a body of this form, unless it has one already.
pub fn shaped(failure: Failure) -> Failure {
    if failure.own_body().is_some() {
        return failure;
    }
    let body = body(&failure, None);
    failure.with_body(body)
}

/// `failure`, which the parameter `param` caused.
pub fn caused_by(param: &str, failure: Failure) -> Failure {
    let body = body(&failure, Some(param));
    failure.with_body(body)
}

/// The body of a failure; also that of an event in a stream.
pub fn body(failure: &Failure, param: Option<&str>) -> Value {
    let status = failure.status();
    let kind = match status {
        StatusCode::TOO_MANY_REQUESTS => "requests",
        _ if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    let code = match (status, failure.code()) {
        (StatusCode::UNAUTHORIZED, _) => Some("invalid_api_key".to_owned()),
        (StatusCode::NOT_FOUND, "NOT_FOUND") => Some("unknown_url".to_owned()),
        (StatusCode::METHOD_NOT_ALLOWED, _) => Some("method_not_supported".to_owned()),
        (StatusCode::TOO_MANY_REQUESTS, _) => Some("rate_limit_exceeded".to_owned()),
        (StatusCode::SERVICE_UNAVAILABLE, _) => Some("server_overloaded".to_owned()),
        (_, "Bad Request" | INVALID) => None,
        (_, code) => Some(code.to_ascii_lowercase()),
    };
    let message = match status {
        StatusCode::UNAUTHORIZED => "Incorrect API key provided. Send a key as `Authorization: Bearer KEY`.",
        _ => failure.message(),
    };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// The code, for the log, of refusals that have none for clients.
const INVALID: &str = "INVALID_FORM";

/// A form that is not valid as a whole.
pub fn malformed(message: impl Into<String>) -> Failure {
    shaped(Failure::new(StatusCode::BAD_REQUEST, INVALID, message.into()))
}

/// A parameter that is missing or not valid.
pub fn invalid(param: &str, message: impl Into<String>) -> Failure {
    caused_by(param, Failure::new(StatusCode::BAD_REQUEST, INVALID, message.into()))
}

/// A parameter that is understood and not served.
pub fn unsupported(param: &str, message: impl Into<String>) -> Failure {
    caused_by(param, Failure::new(StatusCode::BAD_REQUEST, "UNSUPPORTED_VALUE", message.into()))
}

/// A model that is not served.
pub fn no_such_model(name: &str) -> Failure {
    let message = format!("The model `{name}` does not exist or you do not have access to it.");
    caused_by("model", Failure::new(StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", message))
}

/// A failure to read the file: one of its format or length names the file, and is a 400, as that API's clients know it.
pub fn of_file(failure: Failure) -> Failure {
    let message = match failure.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            "Invalid file format. Supported formats: flac, mp3, mp4, mpeg, mpga, m4a, ogg, wav, webm, aac, aiff, caf, 3gp, amr."
                .to_owned()
        }
        StatusCode::UNPROCESSABLE_ENTITY => failure.message().to_owned(),
        StatusCode::BAD_REQUEST => "The audio file could not be decoded: it is damaged, empty or of an unknown format.".to_owned(),
        _ => return failure,
    };
    let code = failure.code().to_owned();
    caused_by("file", Failure::new(StatusCode::BAD_REQUEST, code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(hyper::header::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn the_form_goes_by_the_path_and_that_of_models_by_the_client() {
        let none = HeaderMap::new();
        for path in [
            "/v1/audio/transcriptions",
            "/v1/audio",
            "/v1/audio/x/y",
            "/v1/realtime",
            "/v1/models",
            "/v1/models/a",
        ] {
            assert!(form(path, &none).is_some(), "{path}");
        }
        for path in ["/", "/v1/listen", "/v1/audiobook", "/v1/modelsx", "/openapi.json"] {
            assert!(form(path, &none).is_none(), "{path}");
        }
        for headers in [
            with("authorization", "Token k"),
            with("x-fern-language", "Python"),
            with("user-agent", "deepgram"),
        ] {
            assert!(form("/v1/models", &headers).is_none(), "{headers:?}");
            assert!(form("/v1/audio/speech", &headers).is_some());
        }
        for headers in
            [with("authorization", "Bearer Token"), with("authorization", "Tok"), with("authorization", "é")]
        {
            assert!(form("/v1/models", &headers).is_some(), "{headers:?}");
        }
    }

    #[test]
    fn failures_have_the_type_and_code_that_clients_know() {
        let of = |status, code: &'static str| body(&Failure::new(status, code, "m"), None)["error"].clone();
        let expected =
            |kind: &str, code: Value| json!({"message": "m", "type": kind, "param": null, "code": code});
        assert_eq!(
            of(StatusCode::BAD_REQUEST, "Bad Request"),
            expected("invalid_request_error", Value::Null)
        );
        assert_eq!(
            of(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE"),
            expected("invalid_request_error", "payload_too_large".into())
        );
        assert_eq!(
            of(StatusCode::TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS"),
            expected("requests", "rate_limit_exceeded".into())
        );
        assert_eq!(
            of(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable"),
            expected("server_error", "server_overloaded".into())
        );
        assert_eq!(of(StatusCode::UNAUTHORIZED, "INVALID_AUTH")["code"], "invalid_api_key");
        let named = shaped(invalid("language", "no"));
        assert_eq!(named.own_body().unwrap()["error"]["param"], "language", "what was attributed stays so");
    }
}
