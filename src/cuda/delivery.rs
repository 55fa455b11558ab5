//! Copies from a device into pinned memory that another thread reads while the device's own thread goes on.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, PinnedHostSlice, result};

use super::{Address, DELIVERIES, Delivery, Error};

/// The fewest numbers of a buffer: 2 MiB, more than the costs of a window have.
const BUFFER_NUMBERS: usize = 1 << 19;

/// Pinned buffers of one stream. Each belongs to one copy at a time and comes back when that copy was read, or was
/// dropped unread: the next copy into it is then enqueued behind the first.
#[derive(Clone, Default)]
pub struct Pool(Arc<Mutex<Vec<Buffer>>>);

struct Buffer {
    numbers: PinnedHostSlice<f32>,
    /// Marks the end of its last copy.
    copied: CudaEvent,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The device may still write to it. An error here was reported before.
        let _ = self.copied.synchronize();
    }
}

impl Pool {
    /// Enqueues a copy on `stream`, which is always the same one.
    pub fn copy(&self, stream: &CudaStream, from: Address, count: usize) -> Result<Box<dyn Delivery>, Error> {
        let mut buffer = self.take(stream, count)?;
        let numbers = &mut buffer.numbers.as_mut_slice()?[..count];
        // SAFETY: the address holds as much (see `Address::new`). The buffer is not read until `copied` is done, and
        // not freed before.
        unsafe { result::memcpy_dtoh_async(numbers, from.0, stream.cu_stream()) }?;
        buffer.copied.record(stream)?;
        Ok(Box::new(Pinned { buffer: Some(buffer), count, pool: self.clone() }))
    }

    /// A buffer of at least `count` numbers.
    fn take(&self, stream: &CudaStream, count: usize) -> Result<Buffer, Error> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = spare.iter().position(|buffer| buffer.numbers.len() >= count) {
            return Ok(spare.swap_remove(index));
        }
        drop(spare);
        let context = stream.context();
        let size = count.next_power_of_two().max(BUFFER_NUMBERS);
        // Not write-combined: it is read.
        // SAFETY: numbers are written by a copy before they are read.
        let numbers = unsafe { context.alloc_pinned_with_flags::<f32>(size, 0) }?;
        // The thread that waits sleeps meanwhile.
        Ok(Buffer { numbers, copied: context.new_event(Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC))? })
    }
}

/// A copy to pinned memory.
struct Pinned {
    /// Present until it is dropped.
    buffer: Option<Buffer>,
    count: usize,
    pool: Pool,
}

impl Delivery for Pinned {
    fn wait(self: Box<Self>) -> Result<Vec<f32>, Error> {
        let Some(buffer) = &self.buffer else { return Ok(Vec::new()) };
        buffer.copied.synchronize()?;
        Ok(buffer.numbers.as_slice()?[..self.count].to_vec())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut spare = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < DELIVERIES {
            spare.extend(self.buffer.take());
        }
    }
}
