//! The reasons why the demo can't start.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the built-in key is public: set DEMO_API_KEY to listen on {0}")]
    BuiltInKey(SocketAddr),
    #[error(
        "any client of {0} could pose as the telephony provider: set demo.twilio_auth_token, which the telephony provider signs \
         with, or let demo.listen be an address of loopback and leave demo.public_url out"
    )]
    Unsigned(String),
    #[error(
        "the voice service on {0} wants a key: make one with `verbatim keys create --label demo` and set \
         demo.sts_api_key, or let listen be an address of loopback"
    )]
    NoServiceKey(SocketAddr),
    #[error("`{0}` is no http or https address")]
    Address(&'static str),
    #[error("a key for the voice-agent service has characters that no header may have")]
    Key,
    #[error("the records in `{path}` cannot be read: {problem}")]
    Records { path: PathBuf, problem: String },
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
}
