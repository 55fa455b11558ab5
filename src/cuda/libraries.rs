//! Finds and opens CUDA at run time: the driver, the CUDA part of libtorch, and the libraries that come with it.
//!
//! libtorch checks for a CUDA part only once, at the first call that asks: call [`open`] before that.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

/// The CUDA version of libtorch 2.11.0's CUDA part, in the driver's form: 1000 · major + 10 · minor.
const CUDA_VERSION: c_int = 13_000;
/// The lowest major compute capability: for older devices cuBLASLt has no products in bf16.
const CAPABILITY: c_int = 8;
/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR of cuda.h.
const CAPABILITY_MAJOR: c_int = 75;
/// The folder of CUDA's libraries in the Python wheels, relative to libtorch's.
const WHEEL_FOLDER: &str = "../../nvidia/cu13/lib";
/// Libraries to open before they are looked up by name, by path where a folder has them. Dependencies come first.
const COMPANIONS: [&str; 3] = ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13", "libcublasLt.so.13"];

/// Why CUDA cannot be used; for people.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Absent {
    #[error("there is no NVIDIA driver ({0})")]
    Driver(String),
    #[error("the NVIDIA driver is too old: it is for CUDA {0}, and 13.0 is needed (driver 580 or later)")]
    OldDriver(String),
    #[error("the NVIDIA driver does not work (error {0}): nvidia-smi may say more")]
    BrokenDriver(c_int),
    #[error("the NVIDIA driver sees no GPU")]
    Devices,
    #[error(
        "GPU {0} is too old: its compute capability is {1}.x, and 8.0 is needed (Ampere or later); \
         CUDA_VISIBLE_DEVICES can leave it out"
    )]
    OldDevice(c_int, c_int),
    #[error(
        "there is no CUDA part of libtorch 2.11.0: libtorch_cuda.so is not in {}; set models.libtorch_cuda",
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Libtorch { folders: Vec<PathBuf> },
    #[error("the CUDA part of libtorch cannot be loaded: {0}")]
    BrokenLibtorch(String),
    #[error("libtorch's CUDA part is loaded and finds no device that it works with")]
    Unregistered,
    #[error("{0} is not among the libraries of libtorch's CUDA part")]
    Companion(&'static str),
    #[error(
        "{library} is needed, and the loader finds {found} under its other names: perhaps LD_LIBRARY_PATH or \
         ld.so.conf names the folder of another toolkit; a folder that comes first in LD_LIBRARY_PATH, with a link to \
         {library} under its name without a version, goes before it"
    )]
    OtherLibrary { library: &'static str, found: String },
}

/// The CUDA installation.
#[derive(Debug, Clone)]
pub struct Found {
    pub devices: usize,
    /// The CUDA version of the driver, such as `13.0`.
    pub driver: String,
    /// The CUDA part of libtorch.
    pub libtorch: PathBuf,
}

/// Opens the driver and the CUDA part of libtorch, once for the process: in `folder` if given, otherwise beside the CPU
/// part or on the loader's search path.
///
/// # Errors
/// The first thing that is missing or broken.
pub fn open(folder: Option<&Path>) -> Result<Found, Absent> {
    static OPENED: OnceLock<Result<Found, Absent>> = OnceLock::new();
    OPENED.get_or_init(|| open_once(folder)).clone()
}

fn open_once(folder: Option<&Path>) -> Result<Found, Absent> {
    let (devices, driver) = driver("libcuda.so.1")?;
    same_driver()?;
    let folders = match folder {
        Some(folder) => vec![folder.to_owned()],
        None => loaded_folders(),
    };
    open_companions(&folders);
    // The loader's own search comes last: LD_LIBRARY_PATH and the system's folders.
    let candidates = folders.iter().map(|folder| folder.join("libtorch_cuda.so"));
    let candidates = candidates.filter(|path| path.is_file()).chain([PathBuf::from("libtorch_cuda.so")]);
    let mut failure = None;
    for path in candidates {
        match open_for_good(&path) {
            Ok(()) => {
                companions()?;
                return Ok(Found { devices, driver, libtorch: path });
            }
            Err(error) => failure = failure.or((path.is_absolute()).then(|| error.to_string())),
        }
    }
    Err(failure.map_or(Absent::Libtorch { folders }, Absent::BrokenLibtorch))
}

/// The number of the driver's devices, and its CUDA version.
fn driver(name: &str) -> Result<(usize, String), Absent> {
    // SAFETY: opening the driver runs only its own initialisers.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.map_err(|error| Absent::Driver(error.to_string()))?;
    type Initialise = unsafe extern "C" fn(u32) -> c_int;
    type Number = unsafe extern "C" fn(*mut c_int) -> c_int;
    type NumberOf = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    // SAFETY: signatures of the CUDA driver API: cuInit(unsigned), cuDriverGetVersion(int *), cuDeviceGetCount(int *),
    // cuDeviceGet(CUdevice *, int), cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice), where CUdevice is an
    // int; the pointers are to local integers.
    let (version, devices) = unsafe {
        let missing = |error: libloading::Error| Absent::Driver(error.to_string());
        let initialise: Symbol<Initialise> = library.get(b"cuInit\0").map_err(missing)?;
        let version_of: Symbol<Number> = library.get(b"cuDriverGetVersion\0").map_err(missing)?;
        let count: Symbol<Number> = library.get(b"cuDeviceGetCount\0").map_err(missing)?;
        let device: Symbol<NumberOf> = library.get(b"cuDeviceGet\0").map_err(missing)?;
        let attribute: Symbol<Attribute> = library.get(b"cuDeviceGetAttribute\0").map_err(missing)?;
        let (mut version, mut devices) = (0, 0);
        match initialise(0) {
            0 => {}
            // CUDA_ERROR_NO_DEVICE
            100 => return Err(Absent::Devices),
            error => return Err(Absent::BrokenDriver(error)),
        }
        let works = |error: c_int| if error == 0 { Ok(()) } else { Err(Absent::BrokenDriver(error)) };
        works(version_of(&mut version))?;
        works(count(&mut devices))?;
        for index in 0..devices {
            let (mut handle, mut capability) = (0, 0);
            works(device(&mut handle, index))?;
            works(attribute(&mut capability, CAPABILITY_MAJOR, handle))?;
            if capability < CAPABILITY {
                return Err(Absent::OldDevice(index, capability));
            }
        }
        (version, devices)
    };
    std::mem::forget(library);
    let text = format!("{}.{}", version / 1000, version % 1000 / 10);
    match usize::try_from(devices) {
        _ if version < CUDA_VERSION => Err(Absent::OldDriver(text)),
        Ok(devices) if devices > 0 => Ok((devices, text)),
        _ => Err(Absent::Devices),
    }
}

/// Folders that may hold the libraries of libtorch, CUDA and NVRTC.
fn loaded_folders() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let cpu_part =
        maps.lines().filter_map(|line| Path::new(&line[line.find('/')?..]).parent_of("libtorch_cpu.so"));
    let mut folders: Vec<PathBuf> = cpu_part.collect();
    folders.dedup();
    folders
}

trait ParentOf {
    /// The folder of `path`, if its file has that name.
    fn parent_of(&self, name: &str) -> Option<PathBuf>;
}

impl ParentOf for Path {
    fn parent_of(&self, name: &str) -> Option<PathBuf> {
        (self.file_name()? == name).then(|| self.parent().map(Path::to_owned)).flatten()
    }
}

/// Opens the companions in or beside `folders`, or else where the loader finds them by their versioned names.
pub(super) fn open_companions(folders: &[PathBuf]) {
    for name in COMPANIONS {
        let places =
            folders.iter().flat_map(|folder| [folder.join(name), folder.join(WHEEL_FOLDER).join(name)]);
        let mut places = places.filter(|place| place.is_file()).chain([PathBuf::from(name)]);
        let _ = places.any(|place| open_for_good(&place).is_ok());
    }
}

/// Checks the driver that cudarc uses. cudarc looks for unversioned names first, and under these a toolkit has a stub.
fn same_driver() -> Result<(), Absent> {
    const LIBRARY: &str = "libcuda.so.1";
    let other = |found: String| Absent::OtherLibrary { library: LIBRARY, found };
    // SAFETY: asks the loader for a library by name.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(other("none".into()));
    }
    cudarc::driver::result::init().map_err(|error| other(format!("one that does not work ({error})")))
}

/// Checks the libraries that cudarc uses by name: that they are there, opened by [`open_companions`] or found by the
/// loader, and of the right version. cudarc looks for unversioned names first.
fn companions() -> Result<(), Absent> {
    use cudarc::{cublaslt, nvrtc};
    const COMPILER: &str = "libnvrtc.so.13";
    const PRODUCTS: &str = "libcublasLt.so.13";
    // SAFETY: both ask the loader for a library by name.
    let present = unsafe { (nvrtc::sys::is_culib_present(), cublaslt::sys::is_culib_present()) };
    match present {
        (false, _) => return Err(Absent::Companion(COMPILER)),
        (_, false) => return Err(Absent::Companion(PRODUCTS)),
        _ => {}
    }
    let (mut compiler, mut minor) = (0, 0);
    // SAFETY: the pointers are to local integers. The versions are 13.x and 10000 · 13 + …; a stub has none.
    let products = unsafe {
        if nvrtc::sys::nvrtcVersion(&mut compiler, &mut minor).result().is_err() {
            compiler = 0;
        }
        cublaslt::sys::cublasLtGetVersion() / 10_000
    };
    if compiler != CUDA_VERSION / 1000 {
        return Err(Absent::OtherLibrary { library: COMPILER, found: format!("version {compiler}.{minor}") });
    }
    if products != (CUDA_VERSION / 1000) as usize {
        return Err(Absent::OtherLibrary { library: PRODUCTS, found: format!("version {products}") });
    }
    Ok(())
}

fn open_for_good(path: &Path) -> Result<(), libloading::Error> {
    // SAFETY: a library of CUDA or libtorch, whose initialisers register it with those already loaded. It stays open.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
    std::mem::forget(library);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A fake driver with the given answers.
    const DRIVER: &str = r#"
        extern "C" int cuInit(unsigned) { return INIT; }
        extern "C" int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
        extern "C" int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
        extern "C" int cuDeviceGet(int *device, int index) { *device = index; return 0; }
        extern "C" int cuDeviceGetAttribute(int *value, int attribute, int device) {
            *value = attribute == 75 ? (device == 0 ? 9 : CAPABILITY) : 0;
            return 0;
        }
    "#;

    #[test]
    fn what_is_wrong_with_a_driver_is_said() {
        if crate::cuda::emulated::is_gpu_only() {
            println!("skipped: it needs a compiler, and has nothing to do with the GPU");
            return;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = folder.path().join("driver.cpp");
        std::fs::write(&source, DRIVER).expect("writable");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let tried = |[init, version, count, capability]: [u32; 4]| {
            let library = folder.path().join(format!("driver-{init}-{version}-{count}-{capability}.so"));
            let compiled = Command::new(&compiler)
                .args([format!("-DINIT={init}"), format!("-DVERSION={version}"), format!("-DCOUNT={count}")])
                .args([&format!("-DCAPABILITY={capability}"), "-shared", "-fPIC", "-o"])
                .args([&library, &source])
                .status();
            assert!(compiled.expect("a C++ compiler").success());
            driver(&library.to_string_lossy())
        };
        assert!(matches!(tried([999, 13_000, 1, 9]), Err(Absent::BrokenDriver(999))));
        assert!(matches!(tried([100, 13_000, 1, 9]), Err(Absent::Devices)));
        assert!(matches!(tried([0, 13_000, 0, 9]), Err(Absent::Devices)));
        let old = tried([0, 12_040, 1, 9]).expect_err("too old").to_string();
        assert!(old.contains("CUDA 12.4") && old.contains("13.0"), "{old}");
        let old = tried([0, 13_000, 2, 7]).expect_err("too old").to_string();
        assert!(old.contains("GPU 1") && old.contains("7.x"), "{old}");
        std::fs::write(folder.path().join("empty.so"), "").expect("writable");
        let broken = driver(&folder.path().join("empty.so").to_string_lossy());
        assert!(matches!(broken, Err(Absent::Driver(_))));
    }
}
