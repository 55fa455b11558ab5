//! Fetches pages for one session: tenants take turns, and nothing is fetched past the session's deadline.

use tokio::time::{Instant, timeout_at};

use crate::fetch::{self, Download, Fetcher};
use crate::share::Turns;

/// Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    pub fetcher: Fetcher,
    pub turns: Turns,
    pub tenant: u64,
    pub deadline: Instant,
}

/// The reason why a page or document was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the time for reading was over")]
    Late,
    #[error("{}", reason(.0))]
    Fetch(#[from] fetch::Error),
}

impl Reader {
    /// The same reader with `deadline`, if that is earlier than its own.
    pub fn until(&self, deadline: Instant) -> Self {
        Self { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Fetches `url`. A turn lasts for one page, so that a slow host delays only that page.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn fetch(&self, url: &str) -> Result<Download, ReadError> {
        let fetched = async {
            let _turn = self.turns.take(self.tenant).await;
            self.fetcher.fetch(url).await
        };
        Ok(timeout_at(self.deadline, fetched).await.map_err(|_| ReadError::Late)??)
    }
}

/// The reason in words that reveal nothing internal to the client.
fn reason(error: &fetch::Error) -> &'static str {
    match error {
        fetch::Error::InvalidUrl => "the address is not that of a website",
        // One answer for both, so that clients cannot probe which internal hosts exist.
        fetch::Error::NotRoutable | fetch::Error::Unresolvable => "the address is not a public one",
        fetch::Error::ClientError(_) => "the page is not there",
        fetch::Error::TooLarge { .. } => "the page is too large",
        _ => "the page could not be read",
    }
}
