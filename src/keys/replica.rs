//! The keys of a node of a cluster: [`super::shared`], on a connection of its own and off the runtime's threads.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use super::shared::{Columns, Untold};
use super::store::Store;
use super::{Error, Verifier};

/// Cheap handle; clones share the connection.
#[derive(Clone)]
pub struct Replica {
    store: Arc<Mutex<Store>>,
    verifier: Verifier,
}

impl Verifier {
    /// The keys as a node of a cluster shares them.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn replica(&self) -> Result<Replica, Error> {
        let store = self.with_store(Store::reopen).await?;
        Ok(Replica { store: Arc::new(Mutex::new(store)), verifier: self.clone() })
    }
}

impl Replica {
    /// As [`Store::changes`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn changes(&self, most: usize) -> Result<Vec<Untold>, Error> {
        self.with(move |store| store.changes(most)).await
    }

    /// As [`Store::settle`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn settle(&self, change: Untold) -> Result<(), Error> {
        self.with(move |store| store.settle(&change)).await
    }

    /// As [`Store::offer_all_but`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn offer_all_but(&self, known: HashSet<String>) -> Result<usize, Error> {
        self.with(move |store| store.offer_all_but(&known)).await
    }

    /// As [`Store::reconcile`]. The next request of this node counts with the result.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn reconcile(
        &self,
        name: String,
        theirs: Option<Columns>,
    ) -> Result<Option<(Untold, Columns)>, Error> {
        let news = self.with(move |store| store.reconcile(&name, theirs.as_ref())).await?;
        self.verifier.look_again().await;
        Ok(news)
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.store.clone();
        // A panic elsewhere leaves the connection usable: SQLite rolls back what was not committed.
        let done =
            tokio::task::spawn_blocking(move || work(&store.lock().unwrap_or_else(PoisonError::into_inner)));
        done.await.map_err(|_| Error::Interrupted)?
    }
}
