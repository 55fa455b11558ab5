//! A reader of Ogg packets (RFC 3533), for codecs that the usual reader of the container does not know.

use std::io::{BufReader, Read};

/// A longer packet is not speech: it is skipped.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Bytes that are searched for a page where one should begin.
const SEARCHED_BYTES_MAX: usize = 1 << 17;

pub struct Packet {
    pub bytes: Vec<u8>,
    pub serial: u32,
    /// It is the first of its stream.
    pub begins_stream: bool,
}

/// Reads one page at a time.
pub struct Packets<R> {
    bytes: BufReader<R>,
    /// The stream that is read; `None` takes the first packet of each.
    serial: Option<u32>,
    /// The lengths of the segments left in the current page.
    segments: std::collections::VecDeque<u8>,
    page: Page,
    partial: Vec<u8>,
    is_damaged: bool,
}

#[derive(Default, Clone, Copy)]
struct Page {
    serial: u32,
    begins_stream: bool,
    /// It is of the stream that is read.
    is_wanted: bool,
}

impl<R: Read> Packets<R> {
    pub fn new(bytes: R) -> Self {
        Self {
            bytes: BufReader::new(bytes),
            serial: None,
            segments: Default::default(),
            page: Page::default(),
            partial: Vec::new(),
            is_damaged: false,
        }
    }

    /// Reads this stream from now on, and the first packets of others.
    pub fn keep(&mut self, serial: u32) {
        self.serial = Some(serial);
        self.page.is_wanted |= self.page.serial == serial;
    }

    /// Whether bytes were skipped, or the file is truncated.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The next packet; `None` at the end.
    pub fn next(&mut self) -> Option<Packet> {
        loop {
            let Some(length) = self.segments.pop_front() else {
                self.next_page()?;
                continue;
            };
            if !self.page.is_wanted {
                let mut passed_over = [0; 255];
                self.bytes.read_exact(passed_over.get_mut(..usize::from(length))?).ok()?;
                continue;
            }
            let start = self.partial.len();
            self.partial.resize(start + usize::from(length), 0);
            if self.bytes.read_exact(&mut self.partial[start..]).is_err() {
                self.is_damaged = true;
                return None;
            }
            if self.partial.len() > PACKET_BYTES_MAX {
                self.is_damaged = true;
                self.partial.clear();
            }
            if length < 255 {
                let bytes = std::mem::take(&mut self.partial);
                let Page { serial, begins_stream, .. } = self.page;
                return Some(Packet { bytes, serial, begins_stream });
            }
        }
    }

    fn next_page(&mut self) -> Option<()> {
        const CONTINUED: u8 = 1;
        const FIRST: u8 = 2;
        self.find_page()?;
        let mut header = [0; 23];
        self.bytes.read_exact(&mut header).ok()?;
        let [_, flags, _, _, _, _, _, _, _, _, s0, s1, s2, s3, _, _, _, _, _, _, _, _, count] = header;
        let serial = u32::from_le_bytes([s0, s1, s2, s3]);
        let begins_stream = flags & FIRST != 0;
        self.page = Page {
            serial,
            begins_stream,
            is_wanted: begins_stream || self.serial.is_none_or(|kept| kept == serial),
        };
        if flags & CONTINUED == 0 && !self.partial.is_empty() && self.page.is_wanted {
            self.is_damaged = true;
            self.partial.clear();
        }
        let mut segments = vec![0; usize::from(count)];
        self.bytes.read_exact(&mut segments).ok()?;
        self.segments = segments.into();
        Some(())
    }

    /// Skips bytes that are not a page.
    fn find_page(&mut self) -> Option<()> {
        let mut last = [0; 4];
        self.bytes.read_exact(&mut last).ok()?;
        let mut searched = 0;
        while last != *b"OggS" {
            self.is_damaged = true;
            searched += 1;
            if searched > SEARCHED_BYTES_MAX {
                return None;
            }
            last.rotate_left(1);
            self.bytes.read_exact(&mut last[3..]).ok()?;
        }
        Some(())
    }
}
