//! Words to all nodes that are there at present: core NATS, which keeps nothing.

use std::future::ready;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::{Error, Places};

impl Places {
    /// Tells the other nodes `text`. A node that is away never hears of it.
    ///
    /// # Errors
    /// [`Error::Broker`] if the broker is away; [`Error::Seal`].
    pub async fn tell(&self, name: &'static str, text: &str) -> Result<(), Error> {
        let failed = |source| Error::Broker { store: name.to_owned(), source };
        let plain = serde_json::to_vec(&(self.node(), text)).map_err(|error| failed(error.into()))?;
        let sealed = self.seal().seal(name, &plain)?;
        let cluster = self.cluster();
        let told = cluster.client().publish(cluster.subject(name), sealed.into()).await;
        told.map_err(|error| failed(error.into()))
    }

    /// What the other nodes tell from now on. The subscription outlives the loss of a connection.
    ///
    /// # Errors
    /// [`Error::Broker`].
    pub async fn told(&self, name: &'static str) -> Result<BoxStream<'static, String>, Error> {
        let cluster = self.cluster();
        let heard = cluster.client().subscribe(cluster.subject(name)).await;
        let heard = heard.map_err(|error| Error::Broker { store: name.to_owned(), source: error.into() })?;
        let places = self.clone();
        let texts = heard.filter_map(move |message| {
            let plain = places.seal().open(name, &message.payload);
            let said = plain.and_then(|plain| serde_json::from_slice::<(String, String)>(&plain).ok());
            ready(said.and_then(|(node, text)| (node != places.node()).then_some(text)))
        });
        Ok(texts.boxed())
    }
}
