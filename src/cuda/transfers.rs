//! Pinned buffers for copies between host and device, which are made while the host goes on.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, PinnedHostSlice, result};

use super::{Address, Error, STAGED};

/// A ring of pinned buffers of one size, each with the event of its last copy.
pub struct Ring {
    pub buffers: Vec<(PinnedHostSlice<u8>, CudaEvent)>,
    next: usize,
}

impl Ring {
    pub fn new(context: &Arc<CudaContext>, count: usize, bytes: usize) -> Result<Self, Error> {
        let buffer = |_| {
            // Not write-combined: downloads are read.
            // SAFETY: bytes are written, by the host or by a copy, before they are read.
            let buffer = unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }?;
            Ok((buffer, context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?))
        };
        Ok(Self { buffers: (0..count).map(buffer).collect::<Result<_, Error>>()?, next: 0 })
    }

    /// Waits for the last copy of the next buffer and returns its index.
    pub fn take(&mut self) -> Result<usize, Error> {
        let index = self.next;
        self.next = (index + 1) % self.buffers.len();
        self.buffers[index].1.synchronize()?;
        Ok(index)
    }

    /// Enqueues a copy of `bytes` to the device; they fit into one buffer.
    pub fn send(&mut self, bytes: &[u8], to: Address, stream: &CudaStream) -> Result<(), Error> {
        let index = self.take()?;
        let (buffer, copied) = &mut self.buffers[index];
        let buffer = buffer.as_mut_slice()?.get_mut(..bytes.len()).ok_or(Error::Transfer(bytes.len()))?;
        buffer.copy_from_slice(bytes);
        // SAFETY: the address holds as much (see `Address::new`); the buffer stays as it is until `copied` is done.
        unsafe { result::memcpy_htod_async(to.0, buffer, stream.cu_stream()) }?;
        Ok(copied.record(stream)?)
    }
}

/// Pinned buffers that grow to what is sent, each with the event of its last copy.
pub struct Staging {
    buffers: Vec<(Option<PinnedHostSlice<i16>>, CudaEvent)>,
    next: usize,
}

impl Staging {
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let event = |_| Ok((None, context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?));
        Ok(Self { buffers: (0..STAGED).map(event).collect::<Result<_, Error>>()?, next: 0 })
    }

    /// Enqueues a copy of the `count` numbers that `fill` writes.
    pub fn send(
        &mut self,
        count: usize,
        to: Address,
        fill: &mut dyn FnMut(&mut [i16]),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let index = self.next;
        self.next = (index + 1) % self.buffers.len();
        let (buffer, copied) = &mut self.buffers[index];
        copied.synchronize()?;
        // Freed first, so that both are never held at once.
        drop(buffer.take_if(|buffer| buffer.len() < count));
        let buffer = match buffer {
            Some(buffer) => buffer,
            none => {
                let length = count.next_power_of_two();
                // SAFETY: numbers are written, by `fill`, before they are read.
                none.insert(unsafe { stream.context().alloc_pinned_with_flags::<i16>(length, 0) }?)
            }
        };
        let numbers = &mut buffer.as_mut_slice()?[..count];
        fill(numbers);
        // SAFETY: the address holds as much (see `Address::new`); the buffer stays as it is until `copied` is done.
        unsafe { result::memcpy_htod_async(to.0, numbers, stream.cu_stream()) }?;
        Ok(copied.record(stream)?)
    }
}
