//! Fetches for one session: each when it is its organisation's turn, and none past the session's deadline.

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

/// Why a page or a document was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the time for reading was over")]
    Late,
    #[error("{}", reason(.0))]
    Fetch(#[from] fetch::Error),
}

impl Reader {
    /// The same with an earlier deadline, where `deadline` is one.
    pub fn until(&self, deadline: Instant) -> Self {
        Self { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Fetches `url`. A turn is held for one page alone, so that a slow host holds up nothing but that page.
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

/// The reason that a client may know.
fn reason(error: &fetch::Error) -> &'static str {
    match error {
        fetch::Error::InvalidUrl => "the address is not that of a website",
        // The same for both: what exists inside is not for clients to find out.
        fetch::Error::NotRoutable | fetch::Error::Unresolvable => "the address is not a public one",
        fetch::Error::ClientError(_) => "the page is not there",
        fetch::Error::TooLarge { .. } => "the page is too large",
        _ => "the page could not be read",
    }
}
