//! Kernels for Whisper on CUDA devices, and the machinery to run them: finding the driver and the libraries,
//! compiling, streams, graphs. Nothing here depends on the model; memory is passed as addresses of libtorch's tensors.
//!
//! ```text
//! kernels/*.cu ─ compiler (NVRTC, cache on disk) ─▶ Runner: launches, products (cuBLASLt), graphs, copies
//!                                                     ▲ trait Device ▼
//!                     tests: the same sources, compiled as C++ for the processor (emulated)
//! ```
//!
//! Nothing of CUDA is linked: a machine without it builds and starts the same program.
#![doc = include_str!("README.md")]

mod compiler;
mod kernels;
mod layout;
pub mod libraries;
mod product;
mod runner;
mod stages;
#[cfg(test)]
mod tests;

pub use kernels::{ATTENTION_SPLIT, Kernel};
pub use layout::{Outcome, Row, State, TrieNode, Wanted};
pub use runner::Runner;
pub use stages::{Stage, StageTimes};
#[cfg(test)]
pub use tests::emulated;

/// The width of a head that the kernels support.
pub const HEAD: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Absent(#[from] libraries::Absent),
    #[error("the kernels do not compile for {architecture}: {log}")]
    Compile { architecture: String, log: String },
    #[error("NVRTC failed")]
    Nvrtc(#[source] cudarc::nvrtc::result::NvrtcError),
    #[error("CUDA failed: {0}")]
    Driver(#[from] cudarc::driver::DriverError),
    #[error("cuBLASLt failed: {0}")]
    Product(#[from] cudarc::cublaslt::result::CublasError),
    #[error("{0} bytes are too many for one transfer")]
    Transfer(usize),
    #[error("emulation: {0}")]
    Emulation(String),
}

/// A place in a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(u64);

impl Address {
    pub const NULL: Self = Self(0);

    /// # Safety
    /// `place` is memory of the device that launches will name it for. It is as large as the kernels that get it
    /// read and write, of the type that they take it for, and it outlives what is enqueued with it.
    pub unsafe fn new(place: *mut std::ffi::c_void) -> Self {
        Self(place as u64)
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    Address(Address),
    Int(i32),
}

impl From<Address> for Argument {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

impl From<usize> for Argument {
    fn from(number: usize) -> Self {
        Self::Int(i32::try_from(number).unwrap_or(i32::MAX))
    }
}

/// `out` (rows, outputs) f32 = `x` (rows, inputs) bf16 · `weight`ᵀ, which is (outputs, inputs) bf16.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    pub weight: Address,
    pub x: Address,
    pub out: Address,
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// A queue of work for a device, which runs in order.
pub trait Queue {
    /// Enqueues a kernel.
    ///
    /// # Errors
    /// An invalid grid, or a failed device.
    fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error>;

    /// Enqueues a product. Each row of the result is the same to the last bit, regardless of the other rows and their
    /// number.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn multiply(&self, product: Product) -> Result<(), Error>;
}

/// A copy to the host in progress.
#[derive(Debug)]
pub struct Download {
    buffer: usize,
    length: usize,
}

/// The kernels' queue on a device, separate from libtorch's. Belongs to one thread.
pub trait Device: Queue {
    /// Runs the work that `enqueue` enqueues. The second run of a `key` captures a graph, which later ones replay
    /// without calling `enqueue`: it must enqueue the same work for the same key.
    ///
    /// # Errors
    /// The error of `enqueue`, or of the device.
    fn replay(&mut self, key: usize, enqueue: &dyn Fn(&dyn Queue) -> Result<(), Error>) -> Result<(), Error>;

    /// Enqueues a copy to the device. `bytes` may change when this returns.
    ///
    /// # Errors
    /// [`Error::Transfer`] for more than [`TRANSFER_BYTES`].
    fn upload(&mut self, bytes: &[u8], to: Address) -> Result<(), Error>;

    /// Enqueues a copy from the device. Wait for it before the fourth download after it.
    ///
    /// # Errors
    /// [`Error::Transfer`] for more than [`TRANSFER_BYTES`].
    fn download(&mut self, from: Address, length: usize) -> Result<Download, Error>;

    /// Waits for `download`, but not for work enqueued after it, and returns the bytes.
    ///
    /// # Errors
    /// A failure on the device meanwhile.
    fn wait(&mut self, download: Download) -> Result<Vec<u8>, Error>;

    /// Orders the work enqueued from now on after libtorch's work so far.
    ///
    /// # Errors
    /// A failed device.
    fn after_libtorch(&self) -> Result<(), Error>;

    /// Orders libtorch's work from now on after the work enqueued so far.
    ///
    /// # Errors
    /// A failed device.
    fn before_libtorch(&self) -> Result<(), Error>;
}

/// The most bytes of one upload or download.
pub const TRANSFER_BYTES: usize = 1 << 20;
