//! Settings for reading websites and documents. The `fetch` settings decide which hosts may be reached.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Pages read from one website. Default 20.
    pub pages_max: usize,
    /// How many links away from the first page a page may be. Default 2.
    pub depth_max: usize,
    /// Largest page or document, in bytes. Default 2 MiB.
    pub page_bytes_max: u64,
    /// Time limit for one page or document. Default 10 000.
    pub page_timeout_ms: u64,
    /// Time limit for a whole website. Default 30 000.
    pub total_timeout_ms: u64,
    /// Text kept from one website, in bytes. Default 400 000.
    pub text_bytes_max: usize,
    /// Time limit for all documents and the website of one session together; the session keeps everything read
    /// before it ran out. Default 60 000.
    pub reading_timeout_ms: u64,
    /// Pause between two pages of a website. Default 100.
    pub pause_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            pages_max: 20,
            depth_max: 2,
            page_bytes_max: 2 << 20,
            page_timeout_ms: 10_000,
            total_timeout_ms: 30_000,
            text_bytes_max: 400_000,
            reading_timeout_ms: 60_000,
            pause_ms: 100,
        }
    }
}
