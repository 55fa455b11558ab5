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
mod delivery;
mod kernels;
mod layout;
pub mod libraries;
mod libtorch;
mod product;
mod recorder;
mod runner;
mod stages;
#[cfg(test)]
mod tests;
mod transfers;

pub use kernels::{ATTENTION_SPLIT, KEPT_ROWS, Kernel};
pub use layout::{Alignment, Outcome, Row, State, TrieNode, Wanted};
pub use runner::{DeviceMemory, Runner};
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
    #[error("a product of {rows} rows in memory for {room}")]
    Rows { rows: usize, room: usize },
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
    /// Rows that `x` and `out` have room for. All of them may be multiplied, and the rows of `out` after the first
    /// `rows` hold anything then.
    pub room: usize,
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
    /// number, where there is room for as many.
    ///
    /// # Errors
    /// As [`Queue::launch`]; [`Error::Rows`] for more rows than there is room for.
    fn multiply(&self, product: Product) -> Result<(), Error>;
}

/// A copy to the host in progress.
#[derive(Debug)]
pub struct Download {
    buffer: usize,
    length: usize,
}

/// A copy to the host in progress that any thread may wait for.
pub trait Delivery: Send {
    /// Waits for the copy, but not for work enqueued after it, and returns the numbers.
    ///
    /// # Errors
    /// A failure on the device meanwhile.
    fn wait(self: Box<Self>) -> Result<Vec<f32>, Error>;
}

/// A point in the side queue. Later marks are larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Memory of a device: where it begins, and how many bytes it has.
pub type Span = (Address, usize);

/// A device with two queues, which belong to one thread. The kernels' queue is that of [`Queue`] and of most methods
/// here. The side queue runs beside it at a lower priority, and is ordered with it only where a method says so.
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

    /// Enqueues a copy from the device. At most [`DOWNLOADS`] may be in progress: wait for this one before enqueuing
    /// that many more.
    ///
    /// # Errors
    /// [`Error::Transfer`] for more than [`TRANSFER_BYTES`].
    fn download(&mut self, from: Address, length: usize) -> Result<Download, Error>;

    /// Waits for `download`, but not for work enqueued after it, and returns the bytes.
    ///
    /// # Errors
    /// A failure on the device meanwhile.
    fn wait(&mut self, download: Download) -> Result<Vec<u8>, Error>;

    /// Enqueues a copy of `count` f32 numbers from the device for another thread. The memory at `from` may be written
    /// by work that is enqueued after this.
    ///
    /// # Errors
    /// A failed device, or no pinned memory.
    fn deliver(&mut self, from: Address, count: usize) -> Result<Box<dyn Delivery>, Error>;

    /// Orders the kernels' work from now on after libtorch's work in this thread so far.
    ///
    /// # Errors
    /// A failed device.
    fn after_libtorch(&self) -> Result<(), Error>;

    /// Moves libtorch's work in this thread to the kernels' queue from now on: it runs after the work enqueued there so
    /// far. Call it, or [`Device::libtorch_beside`], before each piece of libtorch's work: another device of this
    /// thread may have moved it meanwhile.
    ///
    /// # Errors
    /// A failed device.
    fn before_libtorch(&self) -> Result<(), Error>;

    /// Moves libtorch's work in this thread to the side queue from now on.
    ///
    /// # Errors
    /// A failed device.
    fn libtorch_beside(&self) -> Result<(), Error>;

    /// Enqueues a kernel to the side queue.
    ///
    /// # Errors
    /// As [`Queue::launch`].
    fn launch_beside(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error>;

    /// Enqueues a copy of `count` numbers to the side queue. `fill` writes all of them, into memory that the device
    /// reads; it waits only if [`STAGED`] earlier copies are still to be made.
    ///
    /// # Errors
    /// A failed device, or too little memory.
    fn send_beside(
        &mut self,
        count: usize,
        to: Address,
        fill: &mut dyn FnMut(&mut [i16]),
    ) -> Result<(), Error>;

    /// Orders the side queue's work from now on after the kernels' work enqueued so far.
    ///
    /// # Errors
    /// A failed device.
    fn side_waits(&self) -> Result<(), Error>;

    /// Marks the end of the side queue's work so far. `written` names the memory of its results, which only a
    /// rehearsal asks for: it hides them until the mark is waited for or reached.
    ///
    /// # Errors
    /// A failed device.
    fn mark(&mut self, written: &dyn Fn() -> Vec<Span>) -> Result<Mark, Error>;

    /// Whether the side queue has reached `mark`; does not wait.
    ///
    /// # Errors
    /// A failure on the device meanwhile.
    fn is_reached(&mut self, mark: Mark) -> Result<bool, Error>;

    /// Waits on the host until the side queue has reached `mark`.
    ///
    /// # Errors
    /// A failure on the device meanwhile.
    fn wait_for_mark(&mut self, mark: Mark) -> Result<(), Error>;

    /// Orders the kernels' work from now on after `mark`.
    ///
    /// # Errors
    /// A failed device.
    fn after_mark(&mut self, mark: Mark) -> Result<(), Error>;

    /// Measures stages from now on.
    fn measure(&mut self, times: StageTimes);

    /// A stage begins here, in the queue where it runs; stages do not overlap in the order in which they are enqueued.
    /// Costs nothing unless times are measured.
    ///
    /// # Errors
    /// A failed device.
    fn stage_begins(&mut self, stage: Stage) -> Result<(), Error>;

    /// The stage that began last ends here.
    ///
    /// # Errors
    /// A failed device.
    fn stage_ends(&mut self) -> Result<(), Error>;
}

/// The most bytes of one upload or download.
pub const TRANSFER_BYTES: usize = 1 << 20;
/// Downloads that may be in progress at once.
pub const DOWNLOADS: usize = 8;
/// Deliveries whose memory is kept for the next ones: to allocate or to free it holds up the device.
pub const DELIVERIES: usize = 128;
/// Copies to the side queue that may be in progress at once.
pub const STAGED: usize = 4;
