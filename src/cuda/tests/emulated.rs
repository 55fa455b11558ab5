//! A device for tests: `kernels/emulation.cpp`, compiled and loaded. Its memory is the host's, and every launch
//! completes before it returns. Results of the side queue are hidden until its mark is waited for, so that work which
//! does not wait for them finds none; and the side queue must wait for the kernels before it marks any.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use libloading::os::unix::{Library, Symbol};

use super::super::kernels::SOURCE;
use super::super::libraries::{self, Absent};
use super::super::{
    Address, Argument, Delivery, Device, Download, Error, Kernel, Mark, Product, Queue, Runner, Span, Stage,
    StageTimes,
};

type Emulate = unsafe extern "C" fn(*const c_char, *const c_uint, c_uint, *mut *mut c_void) -> c_int;

/// The bytes that hidden memory shows: NaN in every format of floating-point numbers, and a negative integer.
const HIDDEN: u8 = 0xFF;

#[derive(Default)]
pub struct Emulated {
    /// Downloaded bytes by buffer, each until its wait.
    downloads: Vec<Vec<u8>>,
    /// The last mark.
    last: u64,
    /// Marks that have not been waited for, in order.
    hidden: Vec<Hidden>,
    /// Whether a kernel has been launched since the side queue last waited: it may still read what the side queue
    /// writes.
    is_launched: Cell<bool>,
    times: Option<StageTimes>,
    begun: Option<(Stage, Instant)>,
}

/// The results before a mark.
struct Hidden {
    mark: Mark,
    /// Whether the caller has asked for it: it is reached between the first question and the second.
    was_asked_for: bool,
    results: Vec<(Address, Vec<u8>)>,
}

/// Which devices the tests run on: `VERBATIM_TEST_GPU`. By default the emulation, and a GPU if there is one; with
/// `only` a GPU alone, and without one the tests fail.
pub fn is_gpu_only() -> bool {
    match std::env::var("VERBATIM_TEST_GPU") {
        Ok(value) if value == "only" => true,
        Ok(value) => panic!("VERBATIM_TEST_GPU={value}: it is `only`, or not set"),
        Err(_) => false,
    }
}

/// libtorch checks for its CUDA part at the first call that asks, whichever test makes it: so it is opened before
/// `main`. What it found is asked for again in [`devices`]. An interpreter cannot open libraries.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static OPEN_LIBRARIES: extern "C" fn() = {
    extern "C" fn open() {
        let _ = libraries::open(None);
    }
    open
};

/// The devices that [`is_gpu_only`] describes, with libtorch's place on each.
pub fn devices() -> Vec<(tch::Device, Box<dyn Device>)> {
    let gpu_only = is_gpu_only();
    let mut devices: Vec<(tch::Device, Box<dyn Device>)> = Vec::new();
    if !gpu_only {
        devices.push((tch::Device::Cpu, Box::new(Emulated::default())));
    }
    match libraries::open(None) {
        Ok(found) => {
            assert!(tch::Cuda::is_available(), "libtorch does not know its CUDA part");
            let runner = Runner::new(0, Path::new("")).expect("the device works");
            println!("on {} devices, first {}", found.devices, runner.name());
            devices.push((tch::Device::Cuda(0), Box::new(runner)));
        }
        Err(absent @ (Absent::Driver(_) | Absent::Devices)) if !gpu_only => {
            println!("skipped on a GPU: {absent}");
        }
        Err(absent) => panic!("the GPU cannot be used: {absent}"),
    }
    devices
}

/// The source of the emulation: in place of the kernels' files that it includes, their text, so that a test binary
/// needs no other file.
fn source() -> String {
    const EMULATION: &str = include_str!("../../../kernels/emulation.cpp");
    let is_kernels = |line: &&str| line.starts_with("#include \"") && line.ends_with(".cu\"");
    let before = EMULATION.lines().take_while(|line| !is_kernels(line));
    let after = EMULATION.lines().skip_while(|line| !is_kernels(line)).filter(|line| !is_kernels(line));
    before.chain([SOURCE]).chain(after).flat_map(|line| [line, "\n"]).collect()
}

/// The kernels, which run one at a time.
fn emulate() -> &'static Mutex<Symbol<Emulate>> {
    static EMULATE: OnceLock<Mutex<Symbol<Emulate>>> = OnceLock::new();
    EMULATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (library, file) = (folder.path().join("libemulation.so"), folder.path().join("emulation.cpp"));
        std::fs::write(&file, source()).expect("writable");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let compiled = Command::new(compiler)
            .args(["-std=c++17", "-O2", "-shared", "-fPIC", "-o"])
            .args([&library, &file])
            .output()
            .expect("a C++ compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        // SAFETY: the library was just compiled from emulation.cpp, has no initialisers and this signature.
        let symbol = unsafe {
            let opened = Library::new(&library).expect("it was just compiled");
            let symbol: Symbol<Emulate> = opened.get(b"emulate\0").expect("it has it");
            std::mem::forget(opened);
            symbol
        };
        Mutex::new(symbol)
    })
}

/// `count` numbers at `address`.
///
/// # Safety
/// The memory at `address` holds so many numbers of this type and is not written to while the slice is in use.
unsafe fn numbers<'a, T>(address: Address, count: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address.0 as *const T, count) }
}

/// # Safety
/// As of [`numbers`], and nothing else reads the memory while the slice is in use.
unsafe fn numbers_mut<'a, T>(address: Address, count: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(address.0 as *mut T, count) }
}

/// Runs a kernel.
fn run(kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
    let emulate = emulate().lock().unwrap_or_else(PoisonError::into_inner);
    let name = CString::new(kernel.name()).expect("no zeros");
    let mut pointers: Vec<*mut c_void> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::Address(address) => (&raw const address.0).cast_mut().cast(),
            Argument::Int(number) => (&raw const *number).cast_mut().cast(),
        })
        .collect();
    // SAFETY: arguments are in the order of the kernel's parameters, and addresses what they promise.
    let known = unsafe {
        emulate(
            name.as_ptr(),
            grid.map(|count| count as c_uint).as_ptr(),
            kernel.threads(),
            pointers.as_mut_ptr(),
        )
    };
    if known == 0 { Err(Error::Emulation(format!("there is no kernel {kernel:?}"))) } else { Ok(()) }
}

impl Queue for Emulated {
    fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
        self.is_launched.set(true);
        run(kernel, grid, arguments)
    }

    fn multiply(&self, product: Product) -> Result<(), Error> {
        let Product { rows, room, inputs, outputs, .. } = product;
        if rows > room {
            return Err(Error::Rows { rows, room });
        }
        // SAFETY: `Address::new` promises matrices of these sizes, and tests use a device from one thread.
        let (weight, x, out) = unsafe {
            (
                widen(numbers(product.weight, outputs * inputs)),
                widen(numbers(product.x, rows * inputs)),
                numbers_mut::<f32>(product.out, rows * outputs),
            )
        };
        for (x, out) in x.chunks_exact(inputs).zip(out.chunks_exact_mut(outputs)) {
            for (weight, out) in weight.chunks_exact(inputs).zip(out) {
                *out = weight.iter().zip(x).map(|(weight, x)| weight * x).sum();
            }
        }
        Ok(())
    }
}

fn widen(numbers: &[u16]) -> Vec<f32> {
    numbers.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)).collect()
}

struct Delivered(Vec<f32>);

impl Delivery for Delivered {
    fn wait(self: Box<Self>) -> Result<Vec<f32>, Error> {
        Ok(self.0)
    }
}

impl Emulated {
    /// Shows the results before `mark`, in the order in which they were written.
    fn reveal(&mut self, mark: Mark) {
        let later = self.hidden.iter().position(|hidden| hidden.mark > mark).unwrap_or(self.hidden.len());
        for (address, bytes) in self.hidden.drain(..later).flat_map(|hidden| hidden.results) {
            // SAFETY: as in `upload`: the bytes came from there.
            unsafe { numbers_mut(address, bytes.len()) }.copy_from_slice(&bytes);
        }
    }
}

impl Device for Emulated {
    fn replay(
        &mut self,
        _key: usize,
        enqueue: &dyn Fn(&dyn Queue) -> Result<(), Error>,
    ) -> Result<(), Error> {
        enqueue(self)
    }

    fn upload(&mut self, bytes: &[u8], to: Address) -> Result<(), Error> {
        // SAFETY: `Address::new` promises so many bytes, and tests use a device from one thread.
        unsafe { numbers_mut(to, bytes.len()) }.copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, from: Address, length: usize) -> Result<Download, Error> {
        // SAFETY: as above.
        self.downloads.push(unsafe { numbers(from, length) }.to_vec());
        Ok(Download { buffer: self.downloads.len() - 1, length })
    }

    fn wait(&mut self, download: Download) -> Result<Vec<u8>, Error> {
        assert_eq!(self.downloads[download.buffer].len(), download.length);
        Ok(std::mem::take(&mut self.downloads[download.buffer]))
    }

    fn deliver(&mut self, from: Address, count: usize) -> Result<Box<dyn Delivery>, Error> {
        // SAFETY: as above.
        Ok(Box::new(Delivered(unsafe { numbers(from, count) }.to_vec())))
    }

    fn after_libtorch(&self) -> Result<(), Error> {
        Ok(())
    }

    fn before_libtorch(&self) -> Result<(), Error> {
        Ok(())
    }

    fn libtorch_beside(&self) -> Result<(), Error> {
        Ok(())
    }

    fn launch_beside(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
        run(kernel, grid, arguments)
    }

    fn send_beside(
        &mut self,
        count: usize,
        to: Address,
        fill: &mut dyn FnMut(&mut [i16]),
    ) -> Result<(), Error> {
        // Another value than any audio leaves behind, if `fill` forgets a number.
        let mut staged = vec![i16::MIN; count];
        fill(&mut staged);
        // SAFETY: as in `upload`.
        unsafe { numbers_mut(to, count) }.copy_from_slice(&staged);
        Ok(())
    }

    fn side_waits(&self) -> Result<(), Error> {
        self.is_launched.set(false);
        Ok(())
    }

    fn mark(&mut self, written: &dyn Fn() -> Vec<Span>) -> Result<Mark, Error> {
        assert!(!self.is_launched.get(), "launches under way may read what the side queue writes here");
        self.last += 1;
        let mark = Mark(self.last);
        let hide = |(address, length): Span| {
            // SAFETY: as in `upload`: the caller names memory of its own.
            let place: &mut [u8] = unsafe { numbers_mut(address, length) };
            let bytes = place.to_vec();
            place.fill(HIDDEN);
            (address, bytes)
        };
        let results = written().into_iter().map(hide).collect();
        self.hidden.push(Hidden { mark, was_asked_for: false, results });
        Ok(mark)
    }

    fn is_reached(&mut self, mark: Mark) -> Result<bool, Error> {
        match self.hidden.iter_mut().find(|hidden| hidden.mark == mark) {
            None => Ok(true),
            Some(hidden) if !hidden.was_asked_for => {
                hidden.was_asked_for = true;
                Ok(false)
            }
            Some(_) => {
                self.reveal(mark);
                Ok(true)
            }
        }
    }

    fn wait_for_mark(&mut self, mark: Mark) -> Result<(), Error> {
        self.reveal(mark);
        Ok(())
    }

    fn after_mark(&mut self, mark: Mark) -> Result<(), Error> {
        self.reveal(mark);
        Ok(())
    }

    fn measure(&mut self, times: StageTimes) {
        self.times = Some(times);
    }

    fn stage_begins(&mut self, stage: Stage) -> Result<(), Error> {
        assert!(self.begun.is_none(), "{:?} has not ended", self.begun);
        self.begun = Some((stage, Instant::now()));
        Ok(())
    }

    fn stage_ends(&mut self) -> Result<(), Error> {
        let (stage, begun) = self.begun.take().expect("a stage has begun");
        if let Some(times) = &self.times {
            times.add(stage, begun.elapsed());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_side_queue_are_hidden_until_they_are_waited_for() {
        let mut device = Emulated::default();
        let mut memory = [[1u8; 4], [2; 4], [3; 4], [4; 4]];
        // SAFETY: memory of this test, which outlives the device's use of it and is read between the calls alone.
        let places = memory.each_mut().map(|part| unsafe { Address::new(part.as_mut_ptr().cast()) });
        // SAFETY: as above.
        let read = || places.map(|place| unsafe { numbers::<u8>(place, 4) }[0]);
        let marks = places.map(|place| device.mark(&|| vec![(place, 4)]).expect("enqueued"));
        assert_eq!(read(), [HIDDEN; 4]);
        assert!(!device.is_reached(marks[0]).expect("it works"));
        assert_eq!(read(), [HIDDEN; 4]);
        assert!(device.is_reached(marks[0]).expect("it works"));
        assert_eq!(read(), [1, HIDDEN, HIDDEN, HIDDEN]);
        // Later marks come after earlier ones.
        device.after_mark(marks[2]).expect("enqueued");
        assert_eq!(read(), [1, 2, 3, HIDDEN]);
        assert!(device.is_reached(marks[1]).expect("it works"));
        device.wait_for_mark(marks[3]).expect("it works");
        assert_eq!(read(), [1, 2, 3, 4]);
    }
}
