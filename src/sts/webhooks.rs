//! Outgoing webhooks: events of sessions, handed to [`crate::jobs`], which signs them, sends them, and repeats them.
//!
//! ```text
//! session ─ observer ─▶ queue ─▶ (summary by the chat model) ─▶ jobs ─▶ receiver
//! ```
//! The observer never waits: if the queue is full, the event is dropped and the log says so.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::webhook_event::WebhookEvent;
use super::wire::value;
use crate::agent::Tools;
use crate::jobs::{Announcement, JobId, Jobs};
use crate::session::{Line, Moment, Observer, Session, Setup};

/// Events that wait for the disk, or for a summary.
const QUEUED_MAX: usize = 1024;
/// Events that are worked on at once.
const AT_ONCE: usize = 16;

/// An event on its way.
struct Outgoing {
    session: String,
    tenant: u64,
    key: String,
    event: WebhookEvent,
    /// Receivers: the operator's, and the session's own.
    receivers: Vec<Url>,
    /// Of a session that has ended, for the chat model.
    talk: Vec<Line>,
}

/// The queue's end. Events go through [`Self::run`].
pub struct Webhooks {
    jobs: Option<Jobs>,
    queue: mpsc::Receiver<Outgoing>,
}

impl Webhooks {
    /// `url`: the operator's receiver. `has_chat`: talks are summarised by the chat model. Without `jobs` nothing is
    /// delivered.
    pub fn new(jobs: Option<Jobs>, url: Option<&str>, has_chat: bool) -> (Self, Observer) {
        let (sender, queue) = mpsc::channel(QUEUED_MAX);
        let operators: Option<Url> = url.and_then(|url| url.parse().ok());
        let can_deliver = jobs.is_some();
        let observer = move |session: &Session, setup: &Setup, moment: Moment<'_>| {
            let own = setup.talk.webhook_url.as_ref().and_then(|url| url.parse().ok());
            let mut receivers: Vec<Url> = operators.iter().cloned().chain(own).collect();
            receivers.dedup();
            if !can_deliver {
                receivers.clear();
            }
            let Some(event) = WebhookEvent::of(session, setup, &moment) else { return };
            let is_summarised = has_chat && event.summary().is_some();
            if receivers.is_empty() && !is_summarised {
                return;
            }
            let talk = if is_summarised { session.transcript.clone() } else { Vec::new() };
            let key = session.key.map(|key| key.to_string()).unwrap_or_default();
            let outgoing =
                Outgoing { session: session.id.clone(), tenant: session.tenant, key, event, receivers, talk };
            if sender.try_send(outgoing).is_err() {
                tracing::warn!(session = session.id, "too many events wait: one is not sent");
            }
        };
        (Self { jobs, queue }, Arc::new(observer))
    }

    /// Passes events on until `stop`, and then those that wait already, without summaries.
    pub async fn run(mut self, tools: Arc<Tools>, stop: CancellationToken) {
        let (jobs, queue) = (self.jobs.clone(), &mut self.queue);
        let waiting = stream::poll_fn(|context| queue.poll_recv(context)).take_until(stop.cancelled());
        let pass = |outgoing| pass_on(&tools, jobs.as_ref(), outgoing, &stop);
        waiting.for_each_concurrent(AT_ONCE, pass).await;
        while let Ok(outgoing) = self.queue.try_recv() {
            pass_on(&tools, self.jobs.as_ref(), outgoing, &stop).await;
        }
    }
}

async fn pass_on(tools: &Tools, jobs: Option<&Jobs>, outgoing: Outgoing, stop: &CancellationToken) {
    let Outgoing { session, tenant, key, mut event, receivers, talk } = outgoing;
    if !talk.is_empty()
        && let (Some(chat), Some(facts)) = (&tools.chat, event.summary().cloned())
        && let Some(Some(text)) = stop.run_until_cancelled(chat.summarize(&talk, &facts)).await
    {
        let written = facts.written(&text);
        event = event.with_summary(written.clone());
        let kept = async {
            let handle = tools.sessions.revive(&session).await?;
            handle
                .change(|session, _, _| {
                    session.summary = Some(written);
                    Ok(())
                })
                .await
        };
        if let Err(error) = kept.await {
            tracing::warn!(session, %error, "a summary is not kept");
        }
    }
    let Some(jobs) = jobs else { return };
    let body = value(&event).to_string().into_bytes();
    for callback in receivers {
        let (id, key, body) = (JobId(Uuid::new_v4()), key.clone(), body.clone());
        if let Err(error) = jobs.announce(Announcement { id, tenant, key, callback, body }).await {
            tracing::warn!(session, error = &error as &dyn std::error::Error, "an event is not sent");
        }
    }
}
