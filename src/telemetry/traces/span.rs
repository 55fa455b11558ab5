//! Spans and their places in traces.

use std::time::SystemTime;

/// A place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub trace: u128,
    pub span: u64,
}

impl Context {
    /// Version 00 of W3C Trace Context.
    pub fn traceparent(self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.span)
    }

    /// The place, and whether it is traced. `None` for text that is malformed, which counts as missing.
    pub fn parse(text: &str) -> Option<(Self, bool)> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_whole = version != "00" || parts.next().is_none();
        if !(is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2) && is_whole)
            || version == "ff"
        {
            return None;
        }
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (trace != 0 && span != 0).then_some((Self { trace, span }, flags & 1 == 1))
    }
}

/// An attribute of a span.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Text(String),
    Whole(i64),
    Number(f64),
}

/// What a span is, in OTLP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
    Consumer = 5,
}

/// A piece of work that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub context: Context,
    pub parent: Option<u64>,
    pub name: String,
    pub kind: Kind,
    pub begun: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub is_error: bool,
}
