//! A CUDA device through cudarc: its two streams, the compiled kernels, graphs, transfers and marks.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaGraph, CudaSlice, CudaStream, result};
use cudarc::nvrtc::Ptx;

use super::delivery::Pool;
use super::libtorch::CurrentStream;
use super::product::{Products, WORKSPACE_BYTES};
use super::recorder::Recorder;
use super::transfers::{Ring, Staging};
use super::{
    Address, Argument, DOWNLOADS, Delivery, Device, Download, Error, Kernel, Mark, Product, Queue, Span,
    Stage, StageTimes, TRANSFER_BYTES, compiler,
};

/// Uploads of up to as many bytes have a ring of their own, so large that the host never waits for it: an attempt's
/// state, a launch's rows, or what alignment costs are made of.
const SMALL_BYTES: usize = 16 << 10;
const SMALL_UPLOADS: usize = 256;
/// Larger ones: tries of terms.
const LARGE_UPLOADS: usize = 4;

/// A device's memory at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct DeviceMemory {
    pub free: u64,
    pub total: u64,
}

pub struct Runner {
    // Fields are in the order in which they must be dropped.
    graphs: HashMap<usize, CudaGraph>,
    /// Keys that have run once.
    warm: Vec<usize>,
    small_uploads: Ring,
    large_uploads: Ring,
    downloads: Ring,
    deliveries: Pool,
    staging: Staging,
    marks: Marks,
    recorder: Option<Recorder>,
    products: Products,
    _workspace: CudaSlice<u8>,
    functions: Vec<CudaFunction>,
    /// The kernels' queue.
    stream: Arc<CudaStream>,
    /// The side queue.
    side: Arc<CudaStream>,
    current: CurrentStream,
    context: Arc<CudaContext>,
}

/// Marks in the side queue. It runs in order, so all marks before one that it has reached are reached too.
#[derive(Default)]
struct Marks {
    last: u64,
    /// The last mark that is known to be reached.
    reached: u64,
    /// The marks after `reached` as far as `last`, in order.
    pending: VecDeque<CudaEvent>,
    /// To be used again.
    free: Vec<CudaEvent>,
}

impl Marks {
    fn make(&mut self, side: &CudaStream) -> Result<Mark, Error> {
        // Takes back the events of earlier marks, also of those for which no caller asks.
        self.is_reached(Mark(self.last))?;
        let event = match self.free.pop() {
            Some(event) => event,
            None => side.context().new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?,
        };
        event.record(side)?;
        self.pending.push_back(event);
        self.last += 1;
        Ok(Mark(self.last))
    }

    fn is_reached(&mut self, mark: Mark) -> Result<bool, Error> {
        while self.reached < mark.0
            && let Some(event) = self.pending.front()
        {
            if !event.try_is_complete()? {
                break;
            }
            self.reached += 1;
            self.free.extend(self.pending.pop_front());
        }
        Ok(mark.0 <= self.reached)
    }

    /// The event of `mark`; `None` once it is known to be reached.
    fn event(&self, mark: Mark) -> Option<&CudaEvent> {
        let after = mark.0.checked_sub(self.reached + 1)?;
        self.pending.get(usize::try_from(after).ok()?)
    }
}

impl Runner {
    /// Opens device `ordinal`, and moves libtorch's work in this thread to its side queue. The folder `cache` keeps
    /// compiled kernels.
    ///
    /// # Errors
    /// A failed device, a missing library, or kernels that do not compile.
    pub fn new(ordinal: usize, cache: &Path) -> Result<Self, Error> {
        let context = CudaContext::new(ordinal)?;
        // SAFETY: cudarc's own slices are one workspace, used on one stream: nothing needs its events, and
        // waiting for them would break the capture of a graph.
        unsafe { context.disable_event_tracking() };
        let (low, high) = result::stream::get_priority_range()?;
        let stream = context.new_stream_with_priority(high)?;
        let side = context.new_stream_with_priority(low)?;
        let current = CurrentStream::new(ordinal)?;
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
        let products = unsafe { Products::new(address) }?;
        let runner = Self {
            graphs: HashMap::new(),
            warm: Vec::new(),
            small_uploads: Ring::new(&context, SMALL_UPLOADS, SMALL_BYTES)?,
            large_uploads: Ring::new(&context, LARGE_UPLOADS, TRANSFER_BYTES)?,
            downloads: Ring::new(&context, DOWNLOADS, TRANSFER_BYTES)?,
            deliveries: Pool::default(),
            staging: Staging::new(&context)?,
            marks: Marks::default(),
            recorder: None,
            products,
            _workspace: workspace,
            functions,
            stream,
            side,
            current,
            context,
        };
        runner.libtorch_beside()?;
        Ok(runner)
    }

    /// The device's memory at this moment; `None` if it does not say.
    pub fn memory(&self) -> Option<DeviceMemory> {
        let (free, total) = self.context.mem_get_info().ok()?;
        Some(DeviceMemory { free: free as u64, total: total as u64 })
    }

    /// Name and memory, such as `NVIDIA H200, 140 GiB`.
    pub fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "CUDA device".into());
        let memory = self.context.total_mem().unwrap_or(0) >> 30;
        format!("{name}, {memory} GiB")
    }

    /// Moves libtorch's work in this thread to one of the two streams. Work in any other stream, such as another
    /// runner's, comes first.
    fn libtorch_to(&self, stream: &CudaStream) -> Result<(), Error> {
        let before = self.current.get()?;
        if before != self.stream.cu_stream() && before != self.side.cu_stream() {
            self.wait_for(before, stream)?;
        }
        // SAFETY: a stream of the device's primary context, which lives until the runner is dropped: that waits for
        // all work and puts the default stream in its place.
        Ok(unsafe { self.current.set(stream.cu_stream()) }?)
    }

    /// Orders the work of `stream` from now on after that of libtorch's current stream so far.
    fn wait_for(&self, current: CUstream, stream: &CudaStream) -> Result<(), Error> {
        let event = self.context.new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?;
        // SAFETY: libtorch's own current stream of this device, which it keeps alive, or the one of a runner, which
        // takes it away when it is dropped. The context is that of the new event, bound to this thread.
        unsafe { result::event::record(event.cu_event(), current) }?;
        Ok(stream.wait(&event)?)
    }

    fn launch_to(
        &self,
        stream: &CudaStream,
        kernel: Kernel,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<(), Error> {
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
                stream.cu_stream(),
                &mut places,
            )?;
        }
        Ok(())
    }
}

impl Queue for Runner {
    fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
        self.launch_to(&self.stream, kernel, grid, arguments)
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
        if bytes.len() > TRANSFER_BYTES {
            return Err(Error::Transfer(bytes.len()));
        }
        self.context.bind_to_thread()?;
        let ring = if bytes.len() <= SMALL_BYTES { &mut self.small_uploads } else { &mut self.large_uploads };
        ring.send(bytes, to, &self.stream)
    }

    fn download(&mut self, from: Address, length: usize) -> Result<Download, Error> {
        if length > TRANSFER_BYTES {
            return Err(Error::Transfer(length));
        }
        self.context.bind_to_thread()?;
        let index = self.downloads.take()?;
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
        let current = self.current.get()?;
        if current == self.stream.cu_stream() {
            return Ok(());
        }
        self.wait_for(current, &self.stream)
    }

    fn before_libtorch(&self) -> Result<(), Error> {
        self.libtorch_to(&self.stream)
    }

    fn libtorch_beside(&self) -> Result<(), Error> {
        self.libtorch_to(&self.side)
    }

    fn launch_beside(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
        self.launch_to(&self.side, kernel, grid, arguments)
    }

    fn send_beside(
        &mut self,
        count: usize,
        to: Address,
        fill: &mut dyn FnMut(&mut [i16]),
    ) -> Result<(), Error> {
        self.context.bind_to_thread()?;
        self.staging.send(count, to, fill, &self.side)
    }

    fn side_waits(&self) -> Result<(), Error> {
        Ok(self.side.join(&self.stream)?)
    }

    fn mark(&mut self, _written: &dyn Fn() -> Vec<Span>) -> Result<Mark, Error> {
        self.context.bind_to_thread()?;
        self.marks.make(&self.side)
    }

    fn is_reached(&mut self, mark: Mark) -> Result<bool, Error> {
        self.context.bind_to_thread()?;
        self.marks.is_reached(mark)
    }

    fn wait_for_mark(&mut self, mark: Mark) -> Result<(), Error> {
        self.context.bind_to_thread()?;
        Ok(self.marks.event(mark).map_or(Ok(()), CudaEvent::synchronize)?)
    }

    fn after_mark(&mut self, mark: Mark) -> Result<(), Error> {
        match self.marks.event(mark) {
            Some(event) => Ok(self.stream.wait(event)?),
            None => Ok(()),
        }
    }

    fn measure(&mut self, times: StageTimes) {
        self.recorder = Some(Recorder::new(times));
    }

    fn stage_begins(&mut self, stage: Stage) -> Result<(), Error> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        recorder.begins(stage, if stage.is_beside() { &self.side } else { &self.stream })
    }

    fn stage_ends(&mut self) -> Result<(), Error> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        self.context.bind_to_thread()?;
        recorder.ends(|stage| if stage.is_beside() { &self.side } else { &self.stream })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Wait until the device is idle before streams, buffers and graphs are freed. An error here was reported
        // before.
        let _ = self.context.synchronize();
        // libtorch must not go on with a stream that is gone. Another runner of this thread puts its own there before
        // libtorch's next work.
        // SAFETY: null is the default stream.
        let _ = unsafe { self.current.set(std::ptr::null_mut()) };
    }
}
