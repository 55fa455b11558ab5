//! Hyper's clock, for the head of a request and for HTTP/2 pings.

use std::pin::Pin;
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use crate::patience::Lapse;

/// Counts only time that the process lived through.
pub(super) struct PatientTimer;

impl Sleep for Lapse {}

impl Timer for PatientTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Lapse::new(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        let limit = new_deadline.saturating_duration_since(self.now());
        match sleep.as_mut().downcast_mut_pin::<Lapse>() {
            Some(lapse) => lapse.get_mut().reset(limit),
            None => *sleep = self.sleep(limit),
        }
    }
}
