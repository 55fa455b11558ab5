//! A device for tests: `kernels/emulation.cpp`, compiled and loaded. Its memory is the host's, and every launch
//! completes before it returns.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix::{Library, Symbol};

use super::super::{
    Address, Argument, Delivery, Device, Download, Error, Kernel, Product, Queue, Runner, libraries,
};

type Emulate = unsafe extern "C" fn(*const c_char, *const c_uint, c_uint, *mut *mut c_void) -> c_int;

/// Downloaded bytes by buffer, each until its wait.
#[derive(Default)]
pub struct Emulated(Vec<Vec<u8>>);

/// The emulation, and a GPU if there is one.
pub fn devices() -> Vec<(tch::Device, Box<dyn Device>)> {
    let mut devices: Vec<(tch::Device, Box<dyn Device>)> =
        vec![(tch::Device::Cpu, Box::new(Emulated::default()))];
    match libraries::open(None) {
        Ok(found) => {
            let runner = Runner::new(0, Path::new(""), 128).expect("the device works");
            println!("on {} devices, first {}", found.devices, runner.name());
            devices.push((tch::Device::Cuda(0), Box::new(runner)));
        }
        Err(absent) => println!("skipped on a GPU: {absent}"),
    }
    devices
}

/// The kernels, which run one at a time.
fn emulate() -> &'static Mutex<Symbol<Emulate>> {
    static EMULATE: OnceLock<Mutex<Symbol<Emulate>>> = OnceLock::new();
    EMULATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = folder.path().join("libemulation.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/emulation.cpp");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let compiled = Command::new(compiler)
            .args(["-std=c++17", "-O2", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
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

impl Queue for Emulated {
    fn launch(&self, kernel: Kernel, grid: [usize; 3], arguments: &[Argument]) -> Result<(), Error> {
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

    fn multiply(&self, product: Product) -> Result<(), Error> {
        let Product { rows, inputs, outputs, .. } = product;
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
        self.0.push(unsafe { numbers(from, length) }.to_vec());
        Ok(Download { buffer: self.0.len() - 1, length })
    }

    fn wait(&mut self, download: Download) -> Result<Vec<u8>, Error> {
        assert_eq!(self.0[download.buffer].len(), download.length);
        Ok(std::mem::take(&mut self.0[download.buffer]))
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
}
