//! A clock that runs when nothing else does, and receivers that do as the dice say.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{Dice, among};
use crate::fetch::{Error, Message, Reply, SendError};
use crate::jobs::world::World;

/// A request that a receiver got.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    pub at: SystemTime,
    pub id: String,
    pub body: Vec<u8>,
    /// It said so, whether or not that was heard.
    pub was_taken: bool,
}

pub struct Simulated {
    pub dice: Dice,
    /// Before this life.
    earlier: Duration,
    began: Instant,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Simulated {
    pub fn new(dice: Dice, earlier: Duration, received: Arc<Mutex<Vec<Received>>>) -> Self {
        Self { dice, earlier, began: Instant::now(), received }
    }

    /// Since the first life began.
    pub fn elapsed(&self) -> Duration {
        self.earlier + self.began.elapsed()
    }
}

impl World for Simulated {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000) + self.elapsed()
    }

    fn chance(&self) -> f64 {
        among(&self.dice, 0..1001) as f64 / 1000.0
    }

    fn send(&self, message: Message, timeout: Duration) -> BoxFuture<'_, Result<Reply, SendError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(among(&self.dice, 1..200))).await;
            let fate = among(&self.dice, 0..20);
            let header = message.headers.get("webhook-id").expect("an id");
            let received = Received {
                at: self.now(),
                id: header.to_str().expect("text").to_owned(),
                body: message.body.to_vec(),
                was_taken: fate > 6,
            };
            RECORD.with_borrow_mut(|record| record.push(format!("{received:?}")));
            self.received.lock().expect("one thread").push(received);
            let reply = |status, seconds: Option<u64>| {
                Ok(Reply { status, retry_after: seconds.map(Duration::from_secs) })
            };
            match fate {
                0 => reply(500, None),
                1 => reply(503, Some(among(&self.dice, 0..20))),
                2 => reply(302, None),
                3 => reply(if among(&self.dice, 0..10) == 0 { 410 } else { 404 }, None),
                4 => Err(SendError::Refused(Error::Failed)),
                // It never comes, or it came and the answer is lost.
                5..=7 => {
                    tokio::time::sleep(timeout).await;
                    Err(SendError::Timeout)
                }
                _ => reply(204, None),
            }
        })
    }
}

thread_local! {
    static RECORD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// All that receivers got while `run` ran on this thread, in order.
pub fn told(run: impl FnOnce()) -> Vec<String> {
    RECORD.with_borrow_mut(Vec::clear);
    run();
    RECORD.with_borrow_mut(std::mem::take)
}
