//! Points in time, as the service writes them.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer};

use crate::clock::{Millis, rfc3339};

/// A point in time; as JSON in the form of RFC 3339, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Millis);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = UNIX_EPOCH + Duration::from_millis(self.0);
        serializer.serialize_str(&rfc3339(time))
    }
}
