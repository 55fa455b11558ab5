//! A CUDA device through cudarc: two streams, the compiled kernels, graphs, and pinned buffers for transfers.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaSlice, CudaStream, PinnedHostSlice, result,
};
use cudarc::nvrtc::Ptx;

use super::delivery::Pool;
use super::product::{Products, WORKSPACE_BYTES};
use super::{
    Address, Argument, Delivery, Device, Download, Error, Kernel, Product, Queue, TRANSFER_BYTES, compiler,
};

/// Transfers that may be in progress at once in each direction.
const TRANSFERS: usize = 4;

pub struct Runner {
    // Fields are in the order in which they must be dropped.
    graphs: HashMap<usize, CudaGraph>,
    /// Keys that have run once.
    warm: Vec<usize>,
    uploads: Ring,
    downloads: Ring,
    deliveries: Pool,
    products: Products,
    _workspace: CudaSlice<u8>,
    functions: Vec<CudaFunction>,
    stream: Arc<CudaStream>,
    libtorch: Arc<CudaStream>,
    context: Arc<CudaContext>,
}

/// A ring of pinned buffers, each with the event of its last copy.
struct Ring {
    buffers: Vec<(PinnedHostSlice<u8>, CudaEvent)>,
    next: usize,
}

impl Ring {
    fn new(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let buffer = |_| {
            // Not write-combined: downloads are read.
            // SAFETY: bytes are written, by the host or by a copy, before they are read.
            let buffer = unsafe { context.alloc_pinned_with_flags::<u8>(TRANSFER_BYTES, 0) }?;
            Ok((buffer, context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?))
        };
        Ok(Self { buffers: (0..TRANSFERS).map(buffer).collect::<Result<_, Error>>()?, next: 0 })
    }

    /// Waits for the last copy of the next buffer and returns its index.
    fn take(&mut self, length: usize) -> Result<usize, Error> {
        if length > TRANSFER_BYTES {
            return Err(Error::Transfer(length));
        }
        let index = self.next;
        self.next = (self.next + 1) % TRANSFERS;
        self.buffers[index].1.synchronize()?;
        Ok(index)
    }
}

impl Runner {
    /// Opens device `ordinal`, and gives libtorch a separate stream there for this thread. The folder `cache` keeps
    /// compiled kernels. `rows_max`: the most rows of a product.
    ///
    /// # Errors
    /// A failed device, a missing library, or kernels that do not compile.
    pub fn new(ordinal: usize, cache: &Path, rows_max: usize) -> Result<Self, Error> {
        let context = CudaContext::new(ordinal)?;
        // SAFETY: cudarc's own slices are one workspace, used on one stream: nothing needs its events, and
        // waiting for them would break the capture of a graph.
        unsafe { context.disable_event_tracking() };
        let (low, high) = result::stream::get_priority_range()?;
        let stream = context.new_stream_with_priority(high)?;
        let libtorch = context.new_stream_with_priority(low)?;
        let libtorch =
            if set_libtorch_stream(&libtorch, ordinal) { libtorch } else { context.default_stream() };
        let cubin = compiler::kernels(context.compute_capability()?, cache)?;
        let module = context.load_module(Ptx::from_binary(cubin))?;
        let functions = Kernel::ALL.iter().map(|kernel| module.load_function(kernel.name()));
        let functions = functions.collect::<Result<_, _>>()?;
        // SAFETY: scratch memory of cuBLASLt, which writes it before it reads it.
        let workspace = unsafe { stream.alloc::<u8>(WORKSPACE_BYTES) }?;
        let address = workspace.leak();
        // SAFETY: the address was leaked just above; this is its owner again.
        let workspace = unsafe { stream.upgrade_device_ptr::<u8>(address, WORKSPACE_BYTES) };
        // SAFETY: the workspace lives in the runner, which drops its products first.
        let products = unsafe { Products::new(address, rows_max) }?;
        Ok(Self {
            graphs: HashMap::new(),
            warm: Vec::new(),
            uploads: Ring::new(&context)?,
            downloads: Ring::new(&context)?,
            deliveries: Pool::default(),
            products,
            _workspace: workspace,
            functions,
            stream,
            libtorch,
            context,
        })
    }

    /// Free bytes of the device's memory; `None` if it does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        self.context.mem_get_info().ok().map(|(free, _)| free as u64)
    }

    /// Name and memory, such as `NVIDIA H200, 140 GiB`.
    pub fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "CUDA device".into());
        let memory = self.context.total_mem().unwrap_or(0) >> 30;
        format!("{name}, {memory} GiB")
    }
}

/// Makes libtorch use `stream` in this thread; false if this libtorch has no such function.
fn set_libtorch_stream(stream: &CudaStream, ordinal: usize) -> bool {
    type SetStream = unsafe extern "C" fn(*mut c_void, i32) -> c_int;
    let this = libloading::os::unix::Library::this();
    // SAFETY: the signature is that of torch/csrc/stable/c/shim.h; the stream belongs to the device's primary
    // context, which libtorch shares, and lives as long as the runner, as does what libtorch computes.
    unsafe {
        let set = this.get::<SetStream>(b"torch_set_current_cuda_stream\0");
        set.is_ok_and(|set| set(stream.cu_stream().cast(), ordinal as i32) == 0)
    }
}

impl Queue for Runner {
    fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
        let Some(function) = self.functions.get(kernel as usize) else { return Ok(()) };
        let mut places: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address(address) => (&raw const address.0).cast_mut().cast(),
                Argument::Int(number) => (&raw const *number).cast_mut().cast(),
            })
            .collect();
        // libtorch may have made another device's context the thread's.
        self.context.bind_to_thread()?;
        let [x, y, z] = grid.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        // SAFETY: addresses are what `Address::new` promises, arguments are in the order of the kernel's
        // parameters and live until the call returns, which copies them.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (x, y, z),
                (kernel.threads(), 1, 1),
                0,
                self.stream.cu_stream(),
                &mut places,
            )?;
        }
        Ok(())
    }

    fn multiply(&self, product: Product) -> Result<(), Error> {
        self.context.bind_to_thread()?;
        // SAFETY: the runner's own stream, of the context that was just bound.
        unsafe { self.products.multiply(product, self.stream.cu_stream()) }
    }
}

impl Device for Runner {
    fn replay(&mut self, key: usize, enqueue: &dyn Fn(&dyn Queue) -> Result<(), Error>) -> Result<(), Error> {
        if let Some(graph) = self.graphs.get(&key) {
            return Ok(graph.launch()?);
        }
        // The first run is not captured: libraries load and allocate on first use, which a graph cannot contain.
        if !self.warm.contains(&key) {
            enqueue(self)?;
            self.warm.push(key);
            return Ok(());
        }
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let enqueued = enqueue(self);
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0));
        enqueued?;
        if let Some(graph) = graph? {
            graph.launch()?;
            self.graphs.insert(key, graph);
        }
        Ok(())
    }

    fn upload(&mut self, bytes: &[u8], to: Address) -> Result<(), Error> {
        self.context.bind_to_thread()?;
        let index = self.uploads.take(bytes.len())?;
        let (buffer, copied) = &mut self.uploads.buffers[index];
        let buffer = &mut buffer.as_mut_slice()?[..bytes.len()];
        buffer.copy_from_slice(bytes);
        // SAFETY: the address holds as much (see `Address::new`); the buffer stays until `copied` is done.
        unsafe { result::memcpy_htod_async(to.0, buffer, self.stream.cu_stream()) }?;
        Ok(copied.record(&self.stream)?)
    }

    fn download(&mut self, from: Address, length: usize) -> Result<Download, Error> {
        self.context.bind_to_thread()?;
        let index = self.downloads.take(length)?;
        let (buffer, copied) = &mut self.downloads.buffers[index];
        let buffer = &mut buffer.as_mut_slice()?[..length];
        // SAFETY: the address holds as much (see `Address::new`); the buffer is not read until `copied` is done.
        unsafe { result::memcpy_dtoh_async(buffer, from.0, self.stream.cu_stream()) }?;
        copied.record(&self.stream)?;
        Ok(Download { buffer: index, length })
    }

    fn wait(&mut self, download: Download) -> Result<Vec<u8>, Error> {
        let (buffer, copied) = &self.downloads.buffers[download.buffer];
        copied.synchronize()?;
        Ok(buffer.as_slice()?[..download.length].to_vec())
    }

    fn deliver(&mut self, from: Address, count: usize) -> Result<Box<dyn Delivery>, Error> {
        self.context.bind_to_thread()?;
        self.deliveries.copy(&self.stream, from, count)
    }

    fn after_libtorch(&self) -> Result<(), Error> {
        Ok(self.stream.wait(&self.libtorch.record_event(None)?)?)
    }

    fn before_libtorch(&self) -> Result<(), Error> {
        Ok(self.libtorch.wait(&self.stream.record_event(None)?)?)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Wait until the device is idle before buffers and graphs are freed. An error here was reported before.
        let _ = self.context.synchronize();
    }
}
