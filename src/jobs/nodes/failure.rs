//! Why the broker did not do something.

/// The broker did not do what it was asked, or its answer was lost: a change may have been made, or be made later.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("the broker cannot be reached")]
    Away,
    #[error("the broker failed")]
    Broker(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the broker holds a record of version {0}, which this program does not know")]
    Newer(u32),
    #[error("the broker holds a record that cannot be read")]
    Unreadable,
}
