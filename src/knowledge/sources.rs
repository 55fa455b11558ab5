//! The sources of one session's knowledge, as its start request names them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    pub title: String,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    Text(String),
    Url(String),
}

#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    pub tenant: u64,
    pub instructions: Option<&'a str>,
    pub documents: &'a [Document],
    /// Names of documents in the tenant's folder on this machine.
    pub stored: &'a [String],
    pub website_url: Option<&'a str>,
}
