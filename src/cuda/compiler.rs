//! Compiles the kernels to machine code with NVRTC, which needs no device, and caches the result on disk.

use std::ffi::CString;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cudarc::nvrtc::{result, sys};
use sha2::{Digest, Sha256};

use super::Error;
use super::kernels::SOURCE;
use super::libraries::Absent;

/// Machine code is an ELF file.
const MAGIC: &[u8] = b"\x7fELF";

/// The kernels for a compute capability such as `(9, 0)`. The folder `cache` keeps them by source, options,
/// architecture and version of NVRTC; an empty path disables it.
///
/// # Errors
/// [`Absent::Companion`] without NVRTC, otherwise the compiler's.
pub fn kernels(capability: (i32, i32), cache: &Path) -> Result<Vec<u8>, Error> {
    let architecture = format!("sm_{}{}", capability.0, capability.1);
    if cache.as_os_str().is_empty() {
        return compile(SOURCE, &architecture);
    }
    let (major, minor) = version()?;
    let key = format!("{}\n{major}.{minor}\n{SOURCE}", options(&architecture).join(" "));
    let name = format!("{architecture}-{}.cubin", data_encoding::HEXLOWER.encode(&Sha256::digest(key)[..16]));
    let path = cache.join(name);
    // With several devices of one kind, each with its thread, only the first one compiles.
    static COMPILING: Mutex<()> = Mutex::new(());
    let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    // After a crash of the machine the file may be empty.
    if let Ok(cubin) = std::fs::read(&path)
        && cubin.starts_with(MAGIC)
    {
        return Ok(cubin);
    }
    let cubin = compile(SOURCE, &architecture)?;
    // Written to a temporary file and renamed, so that a partial file is never read. A failure is harmless: the next
    // start compiles again.
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    let kept = std::fs::create_dir_all(cache)
        .and_then(|()| std::fs::write(&partial, &cubin))
        .and_then(|()| std::fs::rename(&partial, &path));
    if let Err(error) = kept {
        tracing::warn!(path = %path.display(), %error, "compiled kernels are not kept");
    }
    Ok(cubin)
}

fn version() -> Result<(i32, i32), Error> {
    // SAFETY: the check only asks the loader for a library by name.
    if !unsafe { sys::is_culib_present() } {
        return Err(Absent::Companion("libnvrtc.so.13").into());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to local integers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(Error::Nvrtc)?;
    Ok((major, minor))
}

fn options(architecture: &str) -> [String; 2] {
    [format!("--gpu-architecture={architecture}"), "--std=c++17".into()]
}

struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `create_program` made it, and it is destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Machine code (cubin) of `source` for an architecture such as `sm_90`.
///
/// # Errors
/// [`Error::Compile`] with the compiler's log.
pub fn compile(source: &str, architecture: &str) -> Result<Vec<u8>, Error> {
    let _ = version()?;
    // The kernels' source has no NUL byte.
    let source = CString::new(source).unwrap_or_default();
    let program = Program(result::create_program(&source, Some(c"verbatim.cu")).map_err(Error::Nvrtc)?);
    // SAFETY: the program is alive, here and in the calls below.
    if unsafe { result::compile_program(program.0, &options(architecture)) }.is_err() {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program.0) }.map_err(Error::Nvrtc)?;
        let log = String::from_utf8_lossy(&log.into_iter().map(|c| c as u8).collect::<Vec<_>>()).into_owned();
        return Err(Error::Compile { architecture: architecture.into(), log });
    }
    let mut size = 0;
    // SAFETY: as above; the size is written to a number of this function.
    unsafe { sys::nvrtcGetCUBINSize(program.0, &mut size) }.result().map_err(Error::Nvrtc)?;
    let mut code = vec![0u8; size];
    // SAFETY: as above; `code` has as many bytes as the compiler asks for.
    unsafe { sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()) }.result().map_err(Error::Nvrtc)?;
    Ok(code)
}
