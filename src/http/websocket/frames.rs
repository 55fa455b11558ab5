//! Assembles messages from a client's bytes, strictly by RFC 6455. Pure.

use bytes::{Buf as _, Bytes, BytesMut};
use fastwebsockets::{CloseCode, OpCode, unmask};

/// Size limits, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Payload of one frame.
    pub frame_bytes_max: u64,
    /// A message, however many frames it comes in.
    pub message_bytes_max: u64,
}

impl Limits {
    /// For messages that may come in one frame.
    pub const fn of_message(bytes_max: u64) -> Self {
        Self { frame_bytes_max: bytes_max, message_bytes_max: bytes_max }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Text(String),
    Binary(Bytes),
    Ping(Bytes),
    Pong,
    /// The close code; `None` if there was none.
    Close(Option<u16>),
}

/// A violation of the protocol by the peer; `code` is the one to close with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Violation {
    pub code: u16,
    pub reason: &'static str,
}

const fn protocol(reason: &'static str) -> Violation {
    Violation { code: 1002, reason }
}

const NO_TEXT: Violation = Violation { code: 1007, reason: "the text is not UTF-8" };
const TOO_LARGE: Violation = Violation { code: 1009, reason: "the message is larger than is taken" };
/// RFC 6455, 5.5.
const CONTROL_BYTES_MAX: u64 = 125;

/// Assembles messages from frames.
pub struct Assembler {
    limits: Limits,
    frame: Option<Header>,
    message: Option<Unfinished>,
    control: Vec<u8>,
}

/// A frame whose payload is incomplete.
struct Header {
    opcode: OpCode,
    is_final: bool,
    /// Rotated to the next byte of the payload.
    mask: [u8; 4],
    remaining: u64,
}

struct Unfinished {
    is_text: bool,
    bytes: Vec<u8>,
    /// This many of `bytes` are valid UTF-8 so far.
    checked: usize,
}

impl Assembler {
    pub fn new(limits: Limits) -> Self {
        Self { limits, frame: None, message: None, control: Vec::new() }
    }

    /// Missing bytes of the current frame.
    pub fn missing(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| usize::try_from(frame.remaining).unwrap_or(usize::MAX))
    }

    /// Consumes bytes of `input`; returns a message as soon as one is complete.
    ///
    /// [`Violation`], as soon as it shows. Anything after it is meaningless.
    /// [`Violation`], as soon as it shows. What comes after it means nothing.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Message>, Violation> {
        loop {
            let Some(mut frame) =
                self.frame.take().map_or_else(|| self.header(input), |frame| Ok(Some(frame)))?
            else {
                return Ok(None);
            };
            let count = usize::try_from(frame.remaining).unwrap_or(usize::MAX).min(input.len());
            let mut payload = input.split_to(count);
            unmask(&mut payload, frame.mask);
            frame.mask.rotate_left(count % 4);
            frame.remaining -= count as u64;
            let is_whole = frame.remaining == 0;
            if is_control(frame.opcode) {
                self.control.extend_from_slice(&payload);
                if is_whole {
                    return control(frame.opcode, std::mem::take(&mut self.control)).map(Some);
                }
            } else if let Some(message) = &mut self.message {
                message.reserve(payload.len(), self.limits.message_bytes_max);
                message.bytes.extend_from_slice(&payload);
                message.check(is_whole && frame.is_final)?;
                if is_whole && frame.is_final {
                    return Ok(self.message.take().map(Unfinished::finish));
                }
            }
            if !is_whole {
                self.frame = Some(frame);
                return Ok(None);
            }
        }
    }

    /// The next frame's header, once it is complete.
    fn header(&mut self, input: &mut BytesMut) -> Result<Option<Header>, Violation> {
        let &[first, second, ref rest @ ..] = &input[..] else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(protocol("a reserved bit is set"));
        }
        let opcode = OpCode::try_from(first & 0x0F).map_err(|_| protocol("an opcode that means nothing"))?;
        let is_final = first & 0x80 != 0;
        if second & 0x80 == 0 {
            return Err(protocol("a client's frame is not masked"));
        }
        let (length, mask) = match (second & 0x7F, rest) {
            (126, &[a, b, ref mask @ ..]) => (u64::from(u16::from_be_bytes([a, b])), mask),
            (127, &[a, b, c, d, e, f, g, h, ref mask @ ..]) => {
                (u64::from_be_bytes([a, b, c, d, e, f, g, h]), mask)
            }
            (126.., _) => return Ok(None),
            (length, mask) => (u64::from(length), mask),
        };
        let shortest = match length {
            0..126 => 0,
            126..=0xFFFF => 126,
            _ => 127,
        };
        if second & 0x7F > 125 && second & 0x7F != shortest {
            return Err(protocol("a length is not in its shortest form"));
        }
        self.check(opcode, is_final, length)?;
        let &[a, b, c, d, ..] = mask else { return Ok(None) };
        let header_bytes = input.len() - mask.len() + 4;
        input.advance(header_bytes);
        if matches!(opcode, OpCode::Text | OpCode::Binary) {
            self.message =
                Some(Unfinished { is_text: opcode == OpCode::Text, bytes: Vec::new(), checked: 0 });
        }
        Ok(Some(Header { opcode, is_final, mask: [a, b, c, d], remaining: length }))
    }

    /// Whether such a frame is allowed now.
    fn check(&self, opcode: OpCode, is_final: bool, length: u64) -> Result<(), Violation> {
        if is_control(opcode) {
            return match (is_final, length) {
                (false, _) => Err(protocol("a control frame is fragmented")),
                (_, CONTROL_BYTES_MAX..) if length > CONTROL_BYTES_MAX => {
                    Err(protocol("a control frame is too large"))
                }
                _ => Ok(()),
            };
        }
        match (opcode, &self.message) {
            (OpCode::Continuation, None) => return Err(protocol("there is nothing to continue")),
            (OpCode::Text | OpCode::Binary, Some(_)) => {
                return Err(protocol("a message begins before the last one is finished"));
            }
            _ => {}
        }
        let before = self.message.as_ref().map_or(0, |message| message.bytes.len() as u64);
        if length > self.limits.frame_bytes_max
            || length.saturating_add(before) > self.limits.message_bytes_max
        {
            return Err(TOO_LARGE);
        }
        Ok(())
    }
}

impl Unfinished {
    /// Reserves room for `more`, doubling as vectors do, but never beyond the largest message.
    fn reserve(&mut self, more: usize, limit: u64) {
        let (length, room) = (self.bytes.len(), self.bytes.capacity());
        if length + more > room {
            let most = usize::try_from(limit).unwrap_or(usize::MAX).max(length + more);
            let wanted = room.saturating_mul(2).clamp(length + more, most);
            self.bytes.reserve_exact(wanted - length);
        }
    }

    /// Refuses bytes that can no longer become valid UTF-8.
    fn check(&mut self, is_whole: bool) -> Result<(), Violation> {
        if !self.is_text {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.checked..]) {
            Ok(_) => self.checked = self.bytes.len(),
            Err(error) if error.error_len().is_none() && !is_whole => self.checked += error.valid_up_to(),
            Err(_) => return Err(NO_TEXT),
        }
        Ok(())
    }

    fn finish(self) -> Message {
        match (self.is_text, self.bytes) {
            // Checked as it arrived.
            (true, bytes) => Message::Text(String::from_utf8(bytes).unwrap_or_default()),
            (false, bytes) => Message::Binary(Bytes::from(bytes)),
        }
    }
}

fn is_control(opcode: OpCode) -> bool {
    matches!(opcode, OpCode::Close | OpCode::Ping | OpCode::Pong)
}

fn control(opcode: OpCode, payload: Vec<u8>) -> Result<Message, Violation> {
    match opcode {
        OpCode::Ping => Ok(Message::Ping(Bytes::from(payload))),
        OpCode::Close => match payload.as_slice() {
            [] => Ok(Message::Close(None)),
            &[high, low, ref reason @ ..] => {
                let code = u16::from_be_bytes([high, low]);
                // RFC 6455, 7.4: codes below 1000 and from 5000 on do not exist; some are never sent.
                if code < 1000 || !CloseCode::from(code).is_allowed() {
                    return Err(protocol("a close code that means nothing"));
                }
                std::str::from_utf8(reason).map_err(|_| NO_TEXT)?;
                Ok(Message::Close(Some(code)))
            }
            _ => Err(protocol("half a close code")),
        },
        _ => Ok(Message::Pong),
    }
}

#[cfg(test)]
mod tests;
