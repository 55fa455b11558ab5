//! The agent's way to the server: signalling that is resumed when it breaks, while the media goes on.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::protocol::{Request, Response};
use super::server::LiveKit;
use super::signal::Signal;
use super::socket::SignalError;
use crate::clock::now;

/// Attempts to resume, and the pause after the first, which doubles. The server keeps a participant without signalling
/// for some seconds.
const ATTEMPTS_MAX: u32 = 4;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(300);
/// A connection that broke sooner was no connection, and how many of those in a row are borne.
const SETTLED: Duration = Duration::from_secs(5);
const UNSETTLED_MAX: u32 = 4;
/// Requests that can wait for the way.
const WAITING_MAX: usize = 64;

/// Whom the agent is in a room.
#[derive(Clone)]
pub struct Identity {
    pub room: String,
    pub name: String,
}

pub struct Link {
    livekit: LiveKit,
    identity: Identity,
    /// The server's id of the participant.
    sid: String,
    state: State,
    since: Instant,
    unsettled: u32,
    waiting: VecDeque<Request>,
}

enum State {
    Up(Signal),
    Resuming(BoxFuture<'static, Result<Signal, SignalError>>),
    Down,
}

/// The participant's identity of a session's agent.
pub fn agent_of(session: &str) -> String {
    format!("agent-{session}")
}

impl Identity {
    /// A token to join by.
    pub fn token(&self, livekit: &LiveKit) -> String {
        livekit.account().agent(&self.room, &self.name, now() / 1000)
    }
}

impl Link {
    pub fn new(livekit: LiveKit, identity: Identity, sid: String, signal: Signal) -> Self {
        let (state, since) = (State::Up(signal), Instant::now());
        Self { livekit, identity, sid, state, since, unsettled: 0, waiting: VecDeque::new() }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Whether it has been up for long enough that taking it up again may help.
    pub fn is_settled(&self) -> bool {
        self.is_up() && self.since.elapsed() > SETTLED
    }

    /// Takes up the connection anew. [`Response::Reconnect`] is the first response after it.
    pub fn resume(&mut self) {
        self.unsettled = if self.since.elapsed() > SETTLED { 0 } else { self.unsettled + 1 };
        if self.unsettled > UNSETTLED_MAX {
            self.state = State::Down;
            return;
        }
        let resumed = resume(self.livekit.clone(), self.identity.clone(), self.sid.clone());
        self.state = State::Resuming(resumed.boxed());
    }

    /// Sends a request, or keeps it until the connection is resumed. A part of a negotiation is dropped then: it begins anew.
    pub async fn send(&mut self, request: Request) {
        let request = match &self.state {
            State::Up(signal) => match signal.send(request).await {
                Ok(()) => return,
                Err(request) => request,
            },
            State::Resuming(_) | State::Down => Some(request),
        };
        let Some(request) = request else { return };
        let is_lasting = !matches!(request, Request::Offer(_) | Request::Answer(_) | Request::Ping(_));
        if is_lasting && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(request);
        }
    }

    /// The next response. Cancel-safe.
    ///
    /// # Errors
    /// [`SignalError`] if the connection cannot be resumed.
    pub async fn next(&mut self) -> Result<Response, SignalError> {
        loop {
            match &mut self.state {
                State::Up(signal) => match signal.next().await {
                    Ok(response) => {
                        if matches!(response, Response::Reconnect(_)) {
                            while let Some(request) = self.waiting.pop_front() {
                                self.send(request).await;
                            }
                        }
                        return Ok(response);
                    }
                    Err(_) => self.resume(),
                },
                State::Resuming(resuming) => match resuming.await {
                    Ok(signal) => (self.state, self.since) = (State::Up(signal), Instant::now()),
                    Err(error) => {
                        self.state = State::Down;
                        return Err(error);
                    }
                },
                State::Down => return Err(SignalError::Closed),
            }
        }
    }
}

async fn resume(livekit: LiveKit, identity: Identity, sid: String) -> Result<Signal, SignalError> {
    let mut pause = ATTEMPT_PAUSE;
    let mut attempts = 1;
    loop {
        match Signal::connect(&livekit, &identity.token(&livekit), Some(&sid)).await {
            Err(SignalError::Refused { status }) if status < 500 => {
                return Err(SignalError::Refused { status });
            }
            Err(_) if attempts < ATTEMPTS_MAX => {
                tokio::time::sleep(pause).await;
                (attempts, pause) = (attempts + 1, pause * 2);
            }
            done => return done,
        }
    }
}
