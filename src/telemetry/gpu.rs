//! The machine's GPUs, as the driver's management library describes them (NVML, `libnvidia-ml.so.1`).
//!
//! A thread asks it, since a driver may take its time, or hang with a GPU that is lost.

use std::ffi::OsStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use serde::Serialize;

/// The name that also images without development files have.
const LIBRARY: &str = "libnvidia-ml.so.1";
const INTERVAL: Duration = Duration::from_secs(2);
/// Older figures say nothing about the present.
const FRESH: Duration = Duration::from_secs(15);

/// One GPU at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Its place in the driver's order, which is that of `nvidia-smi`.
    pub index: u32,
    pub name: String,
    /// The part of the last moments in which it computed, from 0 to 1; `None` where the driver does not say, as with
    /// MIG.
    pub used: Option<f64>,
    /// In bytes.
    pub memory_free: u64,
    pub memory_total: u64,
}

struct Seen {
    gpus: Vec<Gpu>,
    at: Instant,
}

static LAST: Mutex<Option<Seen>> = Mutex::new(None);
static WATCH: OnceLock<()> = OnceLock::new();

/// Asks for the figures from here on, if there is a driver; a second call changes nothing.
pub fn watch() {
    WATCH.get_or_init(|| {
        let thread = std::thread::Builder::new().name("gpu figures".into());
        if let Err(error) = thread.spawn(follow) {
            tracing::warn!(%error, "there will be no figures of GPUs");
        }
    });
}

/// All GPUs that the driver shows to this process; `None` without a driver, or while it does not answer.
pub fn gpus() -> Option<Vec<Gpu>> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_ref().filter(|seen| seen.at.elapsed() < FRESH).map(|seen| seen.gpus.clone())
}

fn follow() {
    let nvml = match Nvml::builder().lib_path(OsStr::new(LIBRARY)).init() {
        Ok(nvml) => nvml,
        Err(error) => return tracing::debug!(%error, "no figures of GPUs: there is no driver"),
    };
    loop {
        match read(&nvml) {
            Ok(gpus) => {
                let seen = Seen { gpus, at: Instant::now() };
                *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
            }
            // It may be one moment's failure: what was seen before grows old.
            Err(error) => tracing::debug!(%error, "the driver gives no figures of its GPUs"),
        }
        std::thread::sleep(INTERVAL);
    }
}

fn read(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            let memory = device.memory_info()?;
            let used = device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0);
            Ok(Gpu {
                index,
                name: device.name()?,
                used,
                memory_free: memory.free,
                memory_total: memory.total,
            })
        })
        .collect()
}
