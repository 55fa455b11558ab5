//! libtorch's current stream: its work in a thread, on one device, goes there.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUstream;

use super::libraries::Absent;

type Set = unsafe extern "C" fn(*mut c_void, i32) -> c_int;
type Get = unsafe extern "C" fn(i32, *mut *mut c_void) -> c_int;

/// The functions of libtorch's CUDA part that read and change this thread's current stream of a device.
pub struct CurrentStream {
    ordinal: i32,
    set: Set,
    get: Get,
}

impl CurrentStream {
    /// # Errors
    /// [`Absent::BrokenLibtorch`] if the CUDA part lacks the functions.
    pub fn new(ordinal: usize) -> Result<Self, Absent> {
        let this = libloading::os::unix::Library::this();
        let lacks = |error: libloading::Error| Absent::BrokenLibtorch(error.to_string());
        // SAFETY: the signatures of torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h; the
        // library that has the functions is never closed.
        let (set, get) = unsafe {
            let set = this.get::<Set>(b"torch_set_current_cuda_stream\0").map_err(lacks)?;
            let get = this.get::<Get>(b"aoti_torch_get_current_cuda_stream\0").map_err(lacks)?;
            (*set, *get)
        };
        Ok(Self { ordinal: i32::try_from(ordinal).unwrap_or(i32::MAX), set, get })
    }

    /// Makes `stream` this thread's current stream; null is the device's default stream.
    ///
    /// # Safety
    /// `stream` is null or a stream of the device's primary context, which libtorch shares. It lives until another one
    /// is set in this thread and what libtorch enqueued to it is done.
    ///
    /// # Errors
    /// [`Absent::BrokenLibtorch`].
    pub unsafe fn set(&self, stream: CUstream) -> Result<(), Absent> {
        // SAFETY: the caller's promise; the call only stores the pointer.
        let failed = unsafe { (self.set)(stream.cast(), self.ordinal) };
        checked(failed, "torch_set_current_cuda_stream")
    }

    /// This thread's current stream.
    ///
    /// # Errors
    /// [`Absent::BrokenLibtorch`].
    pub fn get(&self) -> Result<CUstream, Absent> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a local variable of the type that the signature names.
        let failed = unsafe { (self.get)(self.ordinal, &mut stream) };
        checked(failed, "aoti_torch_get_current_cuda_stream").map(|()| stream.cast())
    }
}

fn checked(failed: c_int, function: &str) -> Result<(), Absent> {
    if failed == 0 { Ok(()) } else { Err(Absent::BrokenLibtorch(format!("{function} fails"))) }
}
