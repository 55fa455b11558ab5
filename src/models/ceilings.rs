//! Ceilings of a device: its speed in a large copy and in a large product, which no stage of a model exceeds for long.

use std::time::{Duration, Instant};

use serde::Serialize;
use tch::{Device, Kind, TchError, Tensor};

use super::{Config, Error, devices};

/// A measurement lasts at least this long.
const LEAST: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ceilings {
    /// Bytes read and written by a large copy, in 10⁹ a second.
    pub copy_gigabytes_per_second: f64,
    /// Operations of a large product in bf16, in 10¹² a second.
    pub product_teraflops: f64,
}

/// Measures the first device that `config` names, through libtorch. On CUDA that takes a gigabyte of its memory.
///
/// # Errors
/// The device is missing, or lacks the memory.
pub fn ceilings(config: &Config) -> Result<Ceilings, Error> {
    let device = devices::find(config)?;
    let _guard = tch::no_grad_guard();
    // Larger than caches; on a processor, small enough for one core.
    let (copied, size) = if device.is_cuda() { (256 << 20, 8192) } else { (64 << 20, 1024) };

    let source = Tensor::f_zeros([copied], (Kind::Uint8, device))?;
    let mut target = Tensor::f_zeros_like(&source)?;
    let copy = seconds(device, || target.f_copy_(&source))?;
    drop((source, target));

    let random = || Tensor::f_randn([size, size], (Kind::BFloat16, device));
    let (left, right) = (random()?, random()?);
    let product = seconds(device, || left.f_matmul(&right).map(drop))?;
    Ok(Ceilings {
        copy_gigabytes_per_second: 2.0 * copied as f64 / copy / 1e9,
        product_teraflops: 2.0 * (size as f64).powi(3) / product / 1e12,
    })
}

/// Seconds of one run, the mean of many in a row.
fn seconds(device: Device, mut run: impl FnMut() -> Result<(), TchError>) -> Result<f64, TchError> {
    run()?;
    let mut runs = 1;
    loop {
        synchronize(device);
        let begun = Instant::now();
        for _ in 0..runs {
            run()?;
        }
        synchronize(device);
        let took = begun.elapsed();
        if took >= LEAST {
            return Ok(took.as_secs_f64() / f64::from(runs));
        }
        runs *= 2;
    }
}

/// Waits for everything that was enqueued.
fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        tch::Cuda::synchronize(index as i64);
    }
}
