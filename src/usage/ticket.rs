//! The entry of a request while it is served.
//!
//! A handler knows what it does, and the layers above it know who asked and how it ended. So the entry travels with
//! the task: code at any depth adds what it knows by the functions of this file; work done outside a request is not
//! logged. When the last holder of the ticket drops it, the entry is written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use uuid::Uuid;

use super::active::InProgress;
use super::entry::{CLIENT_LEFT, Endpoint, Entry, Holder, Method, Work, of_query};
use super::message::Message;
use super::writer::Queue;

/// The status of a stream's answer.
const SWITCHING_PROTOCOLS: u16 = 101;

tokio::task_local! {
    static CURRENT: Ticket;
}

/// A request that is being served. Cheap to clone.
#[derive(Clone)]
pub struct Ticket(Arc<Open>);

struct Open {
    draft: Mutex<Draft>,
    begun: Instant,
    /// `None` if nothing is logged.
    queue: Option<Queue>,
    progress: InProgress,
}

struct Draft {
    id: Uuid,
    about: About,
    code: Option<u16>,
    work: Work,
    /// `None` for a key without limits. Dropped with the entry, when the request no longer counts as in progress.
    account: Option<Box<dyn Account>>,
}

/// The account that the audio of a request is charged to.
pub trait Account: Send {
    /// So many seconds of audio were heard.
    fn charge(&self, audio_seconds: f64);

    /// How much of its limits is left.
    fn figures(&self) -> Figures;
}

/// Names of headers, and their values.
pub type Figures = Vec<(&'static str, String)>;

impl Draft {
    fn held_by(&mut self, holder: Holder) {
        if let About::Request { holder: known, .. } = &mut self.about {
            *known = Some(holder);
        }
    }

    fn method(&mut self, method: Method) {
        if let About::Request { method: known, .. } = &mut self.about {
            *known = Some(method);
        }
    }

    fn worked(&mut self, work: Work) {
        if let Some(account) = &self.account {
            account.charge(work.audio_seconds);
        }
        self.work.audio_seconds += work.audio_seconds;
        self.work.characters += work.characters;
        self.work.channels = self.work.channels.max(work.channels);
        self.work.model = work.model.or(self.work.model.take());
    }
}

enum About {
    /// A request, which is logged if its holder is known.
    /// `method` is that of its answer; `None` before.
    Request { route: Route, holder: Option<Holder>, created: SystemTime, method: Option<Method> },
    /// More about one that was answered before.
    Later,
}

/// The route of a request.
pub struct Route {
    pub path: String,
    pub endpoint: Endpoint,
    pub query: String,
}

impl Ticket {
    pub(super) fn new(queue: Option<Queue>, id: Uuid, route: Route, progress: InProgress) -> Self {
        let created = SystemTime::now();
        Self::with(queue, id, About::Request { route, holder: None, created, method: None }, progress)
    }

    /// For work on a request that is logged already.
    pub(super) fn later(queue: Option<Queue>, id: Uuid, progress: InProgress) -> Self {
        Self::with(queue, id, About::Later, progress)
    }

    fn with(queue: Option<Queue>, id: Uuid, about: About, progress: InProgress) -> Self {
        let draft = Draft { id, about, code: None, work: Work::default(), account: None };
        Self(Arc::new(Open { draft: Mutex::new(draft), begun: Instant::now(), queue, progress }))
    }

    /// The status of the answer.
    pub fn answered(&self, code: u16) {
        self.change(|draft| {
            draft.code = Some(code);
            if code == SWITCHING_PROTOCOLS {
                draft.method(Method::Streaming);
            }
        });
    }

    /// As [`ended`].
    pub fn ended(&self, code: u16) {
        self.change(|draft| draft.code = Some(code));
    }

    /// The request's audio is charged to `account`, which is dropped when the request has ended.
    pub fn pays_from(&self, account: Box<dyn Account>) {
        self.change(|draft| draft.account = Some(account));
    }

    pub fn has_account(&self) -> bool {
        self.draft().account.is_some()
    }

    /// How much of its account's limits is left; nothing without limits.
    pub fn figures(&self) -> Figures {
        self.draft().account.as_ref().map(|account| account.figures()).unwrap_or_default()
    }

    /// As [`held_by`].
    pub fn held_by(&self, holder: Holder) {
        self.change(|draft| draft.held_by(holder));
    }

    /// As [`worked`].
    pub fn worked(&self, work: Work) {
        self.change(|draft| draft.worked(work));
    }

    fn change(&self, change: impl FnOnce(&mut Draft)) {
        change(&mut self.draft());
    }

    fn draft(&self) -> MutexGuard<'_, Draft> {
        self.0.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let draft = self.draft.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (id, work, code) = (draft.id, std::mem::take(&mut draft.work), draft.code);
        let message = match &mut draft.about {
            About::Request { holder: None, .. } => return,
            About::Request { route, holder: Some(holder), created, method } => {
                let (code, method) = (code.unwrap_or(CLIENT_LEFT), method.unwrap_or(Method::Sync));
                let elapsed = self.begun.elapsed();
                self.progress.ended(code, elapsed);
                let (tags, features) = of_query(&route.query);
                Message::Add(Box::new(Entry {
                    id,
                    holder: *holder,
                    created: *created,
                    path: std::mem::take(&mut route.path),
                    endpoint: route.endpoint,
                    method,
                    code,
                    elapsed,
                    work,
                    tags,
                    features,
                }))
            }
            About::Later => Message::Amend { id, code, work: Box::new(work) },
        };
        if let Some(queue) = &self.queue {
            queue.send(message);
        }
    }
}

/// Runs `task` as a part of the request of `ticket`, if there is one.
pub async fn within<T>(ticket: Option<Ticket>, task: impl Future<Output = T>) -> T {
    match ticket {
        Some(ticket) => CURRENT.scope(ticket, task).await,
        None => task.await,
    }
}

/// The request that this task serves: to be taken along into another task.
pub fn current() -> Option<Ticket> {
    CURRENT.try_with(Ticket::clone).ok()
}

/// The request has valid credentials.
pub fn held_by(holder: Holder) {
    note(|draft| draft.held_by(holder));
}

/// The request is answered later, to a callback.
pub fn is_async() {
    note(|draft| draft.method(Method::Async));
}

/// Work was done for the request; of several works, seconds and characters add up.
pub fn worked(work: Work) {
    note(|draft| draft.worked(work));
}

/// The request ended like this after its answer: a job with this status, a stream as a request of it would have.
pub fn ended(code: u16) {
    note(|draft| draft.code = Some(code));
}

fn note(change: impl FnOnce(&mut Draft)) {
    // Outside of a request there is nothing to note.
    let _ = CURRENT.try_with(|ticket| ticket.change(change));
}
