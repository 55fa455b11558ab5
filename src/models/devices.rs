//! Devices for models: the CPU, or CUDA devices where they work.

use tch::Device;

use super::{Config, DeviceChoice, Error};
use crate::cuda::libraries::{self, Absent, Found};

/// The first device that `config` names.
///
/// # Errors
/// [`Error::NoCuda`], [`Error::NoDevice`] if it names a CUDA device that cannot be used.
pub fn find(config: &Config) -> Result<Device, Error> {
    match (config.device, cuda(config)) {
        (DeviceChoice::Cpu | DeviceChoice::None, _) | (DeviceChoice::Auto, Err(_)) => Ok(Device::Cpu),
        (DeviceChoice::Cuda(Some(index)), Ok(found)) if index >= found.devices => {
            Err(Error::NoDevice { index, devices: found.devices })
        }
        (DeviceChoice::Cuda(Some(index)), Ok(_)) => Ok(Device::Cuda(index)),
        (DeviceChoice::Auto | DeviceChoice::Cuda(None), Ok(_)) => Ok(Device::Cuda(0)),
        (DeviceChoice::Cuda(_), Err(absent)) => Err(absent.into()),
    }
}

/// A copy of `config` for each device that it names. Logs which devices were found.
///
/// # Errors
/// As [`find`].
pub fn each_device(config: &Config) -> Result<Vec<Config>, Error> {
    let on = |device| Config { device, ..config.clone() };
    if find(config)? == Device::Cpu {
        if config.device == DeviceChoice::Auto
            && let Err(absent) = cuda(config)
        {
            match absent {
                Absent::Driver(_) | Absent::Devices => tracing::info!("on the CPU: {absent}"),
                // A broken installation, not a machine without a GPU.
                _ => tracing::warn!("on the CPU: {absent}"),
            }
        }
        return Ok(vec![on(DeviceChoice::Cpu)]);
    }
    let found = cuda(config)?;
    tracing::info!(
        devices = found.devices,
        driver = found.driver,
        libtorch = %found.libtorch.display(),
        "CUDA found"
    );
    Ok(match config.device {
        DeviceChoice::Cuda(Some(_)) => vec![config.clone()],
        _ => (0..found.devices).map(|index| on(DeviceChoice::Cuda(Some(index)))).collect(),
    })
}

/// The CUDA devices that both the driver and libtorch can use.
fn cuda(config: &Config) -> Result<Found, Absent> {
    if matches!(config.device, DeviceChoice::Cpu | DeviceChoice::None) {
        return Err(Absent::Devices);
    }
    let found = libraries::open(config.libtorch_cuda.as_deref())?;
    match usize::try_from(tch::Cuda::device_count()) {
        Ok(devices) if devices > 0 => Ok(Found { devices: devices.min(found.devices), ..found }),
        _ => Err(Absent::Unregistered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_gpu_auto_is_the_cpu_and_cuda_is_an_error_with_its_reason() {
        let config = |device| Config { device, ..Config::default() };
        if let Ok(found) = libraries::open(None) {
            println!("skipped: there are {} GPUs", found.devices);
            return;
        }
        for device in [DeviceChoice::Auto, DeviceChoice::Cpu] {
            assert_eq!(find(&config(device)).ok(), Some(Device::Cpu));
            let each = each_device(&config(device)).expect("there is a CPU");
            assert_eq!(each, [config(DeviceChoice::Cpu)]);
        }
        for device in [DeviceChoice::Cuda(None), DeviceChoice::Cuda(Some(1))] {
            assert!(matches!(find(&config(device)), Err(Error::NoCuda(_))));
            let error = each_device(&config(device)).expect_err("there is no GPU");
            let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(!reason.is_empty(), "{error}");
        }
    }

    #[test]
    fn a_choice_is_written_as_it_is_read() {
        for text in ["auto", "cpu", "cuda", "cuda:0", "cuda:3"] {
            assert_eq!(text.parse::<DeviceChoice>().map(String::from).as_deref(), Ok(text));
        }
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cpu:0"] {
            assert!(wrong.parse::<DeviceChoice>().is_err(), "{wrong}");
        }
    }
}
