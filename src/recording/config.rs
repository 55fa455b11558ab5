//! Settings of recordings.

use serde::{Deserialize, Serialize};

/// Which talks are recorded, and how long recordings are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which talks are recorded. Default `request`: those whose start says `"recording": true`.
    pub record: Record,
    /// The agent's first words in a talk that is recorded, and whenever a participant joins it. Default `This call is
    /// recorded.`
    pub announcement: String,
    /// How long a recording is kept after its talk. Seconds, default 2 592 000, 30 days.
    pub kept_seconds: u64,
    /// All recordings together: a second takes 64 kB. If it is reached, or an organisation has its share of it, talks go
    /// on unrecorded. Bytes, default 10 GiB.
    pub bytes_max: u64,
    /// Free space to leave on that disk in any case, in bytes. Default 1 GiB.
    pub disk_free_bytes_min: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            record: Record::Request,
            announcement: "This call is recorded.".into(),
            kept_seconds: 2_592_000,
            bytes_max: 10 << 30,
            disk_free_bytes_min: 1 << 30,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    /// None, whatever a start says.
    Never,
    /// Those whose start asks for it.
    #[default]
    Request,
    /// All.
    Always,
}
