//! LiveKit's signalling: the requests of a participant, and the server's responses.

use super::protocol::{Request, Response, SignalRequest, SignalResponse, VERSION};
use super::server::LiveKit;
use super::socket::{SignalError, Socket};

/// A connection. Dropping it closes it.
pub struct Signal(Socket<SignalRequest, SignalResponse>);

impl Signal {
    /// Joins, or takes up the connection of the participant with the server's id `resumed`.
    ///
    /// # Errors
    /// [`SignalError`].
    pub async fn connect(livekit: &LiveKit, token: &str, resumed: Option<&str>) -> Result<Self, SignalError> {
        let mut url = livekit.address("rtc");
        url.query_pairs_mut()
            .append_pair("protocol", &VERSION.to_string())
            .append_pair("auto_subscribe", "0");
        if let Some(sid) = resumed {
            url.query_pairs_mut().append_pair("reconnect", "1").append_pair("sid", sid);
        }
        Ok(Self(Socket::open(livekit, url, token).await?))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The request, if the connection is closed.
    pub async fn send(&self, request: Request) -> Result<(), Option<Request>> {
        let unsent = |message: Option<SignalRequest>| message.and_then(|message| message.message);
        self.0.send(SignalRequest { message: Some(request) }).await.map_err(unsent)
    }

    /// Cancel-safe.
    ///
    /// # Errors
    /// [`SignalError::Closed`].
    pub async fn next(&mut self) -> Result<Response, SignalError> {
        loop {
            // Unknown messages decode to none.
            if let Some(message) = self.0.next().await?.message {
                return Ok(message);
            }
        }
    }
}
