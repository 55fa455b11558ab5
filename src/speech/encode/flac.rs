//! FLAC (RFC 9639), 16 bits: frames of equal length. The head leaves the number of samples open unless it is known.

use flacenc::bitsink::{BitSink as _, ByteSink};
use flacenc::component::{BitRepr as _, Stream, StreamInfo};
use flacenc::config;
use flacenc::error::{Verified, Verify as _};
use flacenc::source::{Fill as _, FrameBuf};

use super::code::{Code, Error, linear};

/// Samples of a frame.
const FRAME: usize = 4096;
const BITS: usize = 16;

pub struct Flac {
    config: Verified<config::Encoder>,
    info: StreamInfo,
    /// Less than a frame.
    pending: Vec<i32>,
    frames: usize,
}

impl Flac {
    /// # Errors
    /// The rate does not exist.
    pub fn new(sample_rate_hz: u32) -> Result<Self, Error> {
        let mut info = StreamInfo::new(sample_rate_hz as usize, 1, BITS).map_err(failed)?;
        info.set_block_sizes(FRAME, FRAME).map_err(failed)?;
        let mut config = config::Encoder::default();
        config.multithread = false;
        config.block_size = FRAME;
        let config = config.into_verified().map_err(|(_, error)| failed(error))?;
        Ok(Self { config, info, pending: Vec::new(), frames: 0 })
    }

    fn frame(&mut self, samples: &[i32]) -> Result<Vec<u8>, Error> {
        let mut buffer = FrameBuf::with_size(1, samples.len()).map_err(failed)?;
        buffer.fill_interleaved(samples).map_err(failed)?;
        let frame = flacenc::encode_fixed_size_frame(&self.config, &buffer, self.frames, &self.info);
        self.frames += 1;
        let mut sink = ByteSink::new();
        frame.map_err(failed)?.write(&mut sink).map_err(|_| failed("a frame"))?;
        sink.align_to_byte().map_err(|_| failed("a frame"))?;
        Ok(sink.into_inner())
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Codec("flac", error.to_string())
}

impl Code for Flac {
    fn head(&mut self, samples: Option<u64>) -> Result<Vec<u8>, Error> {
        let mut info = self.info.clone();
        info.set_total_samples(samples.and_then(|samples| usize::try_from(samples).ok()).unwrap_or(0));
        let mut sink = ByteSink::new();
        Stream::with_stream_info(info).write(&mut sink).map_err(|_| failed("the head"))?;
        Ok(sink.into_inner())
    }

    fn push(&mut self, samples: &[f32]) -> Result<Vec<u8>, Error> {
        self.pending.extend(samples.iter().map(|sample| i32::from(linear(*sample))));
        let whole = self.pending.len() / FRAME * FRAME;
        let rest = self.pending.split_off(whole);
        let samples = std::mem::replace(&mut self.pending, rest);
        let mut bytes = Vec::new();
        for samples in samples.chunks(FRAME) {
            bytes.extend(self.frame(samples)?);
        }
        Ok(bytes)
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<u8>, Error> {
        let samples = std::mem::take(&mut self.pending);
        if samples.is_empty() { Ok(Vec::new()) } else { self.frame(&samples) }
    }
}
