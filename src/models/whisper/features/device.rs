//! Log-mel features on a CUDA device: the kernels `log_mel` and `clamp_mel`.

use tch::{Kind, Tensor};

use super::FFT_SAMPLES;
use crate::audio::LogMel;
use crate::cuda::{Address, Device, Kernel};
use crate::models::Error;

/// Frames that a block of `log_mel` takes, and of `clamp_mel`.
const MEL_FRAMES: usize = 8;
const CLAMP_FRAMES: usize = 256;

/// The tables of [`LogMel`] on a device.
pub struct DeviceLogMel {
    place: tch::Device,
    bands: usize,
    hann: Tensor,
    /// Of one turn in as many steps as there are samples.
    cosines: Tensor,
    sines: Tensor,
    /// For each filter its first bin, its bins, and where its weights begin.
    firsts: Tensor,
    widths: Tensor,
    starts: Tensor,
    weights: Tensor,
}

impl DeviceLogMel {
    /// # Errors
    /// Of the device.
    pub fn new(twin: &LogMel, place: tch::Device) -> Result<Self, Error> {
        let table = |values: &[f32]| Tensor::from_slice(values).f_to_device(place);
        let ints = |values: &[i32]| Tensor::from_slice(values).f_to_device(place);
        let turn = |of: fn(f64) -> f64| {
            let step = std::f64::consts::TAU / FFT_SAMPLES as f64;
            table(&(0..FFT_SAMPLES).map(|n| of(step * n as f64) as f32).collect::<Vec<_>>())
        };
        let (mut firsts, mut widths, mut starts, mut weights) = (vec![], vec![], vec![], vec![]);
        for (first, filter) in &twin.filters {
            firsts.push(*first as i32);
            widths.push(filter.len() as i32);
            starts.push(weights.len() as i32);
            weights.extend_from_slice(filter);
        }
        Ok(Self {
            place,
            bands: twin.bands(),
            hann: table(&twin.hann)?,
            cosines: turn(f64::cos)?,
            sines: turn(f64::sin)?,
            firsts: ints(&firsts)?,
            widths: ints(&widths)?,
            starts: ints(&starts)?,
            weights: table(&weights)?,
        })
    }

    /// Features (windows, bands, frames), f32: of the first frames of each window's audio, mono at 16 kHz in
    /// [-1, 1], which goes to the device in 16 bits; behind them the value of padding.
    ///
    /// # Errors
    /// Of the device.
    pub fn compute(
        &self,
        device: &mut dyn Device,
        windows: &[&[f32]],
        frames: usize,
    ) -> Result<Tensor, Error> {
        let stride = windows.iter().map(|window| window.len()).max().unwrap_or(0).max(1);
        let mut samples = vec![0i16; windows.len() * stride];
        for (window, samples) in windows.iter().zip(samples.chunks_exact_mut(stride)) {
            // Exact where the audio had 16 bits to begin with. The cast saturates.
            samples.iter_mut().zip(*window).for_each(|(to, from)| *to = (from * 32768.0).round() as i16);
        }
        let counts: Vec<i32> = windows.iter().map(|window| window.len() as i32).collect();
        // From pinned memory nobody waits for the copy; libtorch keeps it until then.
        let sent = |tensor: Tensor| match self.place {
            tch::Device::Cpu => Ok(tensor),
            place => tensor.f_pin_memory(place)?.f_to_device_(place, tensor.kind(), true, false),
        };
        let samples = sent(Tensor::from_slice(&samples))?;
        let counts = sent(Tensor::from_slice(&counts))?;
        let count = windows.len() as i64;
        let maxima = Tensor::f_full([count], i64::from(i32::MIN), (Kind::Int, self.place))?;
        let size = [count, self.bands as i64, frames as i64];
        let features = Tensor::f_empty(size, (Kind::Float, self.place))?;
        device.after_libtorch()?;
        // SAFETY: contiguous memory of the device, of the types and sizes that the kernels take it for. The tables
        // outlive every launch, because the device waits for all launches when it is dropped. The other tensors go
        // back to libtorch, which reuses their memory in its own order, after what `before_libtorch` puts first.
        let address = |tensor: &Tensor| unsafe { Address::new(tensor.data_ptr()) };
        let arguments = [
            address(&samples).into(),
            stride.into(),
            address(&counts).into(),
            address(&self.hann).into(),
            address(&self.cosines).into(),
            address(&self.sines).into(),
            address(&self.firsts).into(),
            address(&self.widths).into(),
            address(&self.starts).into(),
            address(&self.weights).into(),
            self.bands.into(),
            frames.into(),
            address(&maxima).into(),
            address(&features).into(),
        ];
        device.launch(Kernel::LogMel, [frames.div_ceil(MEL_FRAMES), windows.len(), 1], &arguments)?;
        let arguments =
            [address(&counts).into(), address(&maxima).into(), frames.into(), address(&features).into()];
        let grid = [frames.div_ceil(CLAMP_FRAMES), self.bands, windows.len()];
        device.launch(Kernel::ClampMel, grid, &arguments)?;
        device.before_libtorch()?;
        Ok(features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Threads;
    use crate::cuda::emulated::devices;

    #[test]
    fn features_are_those_of_the_twin() {
        // Tones and noise in 16 bits: longer than the frames, shorter, hardly any, none.
        let audio = |seed: u32, length: usize| -> Vec<f32> {
            let sample = |n: usize| {
                let noise = (n as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16;
                let tone = (n as f32 * 0.05 * (1 + seed) as f32).sin() * 8000.0;
                (tone + noise as f32 * 0.01).round() / 32768.0
            };
            (0..length).map(sample).collect()
        };
        let windows = [audio(0, 9000), audio(1, 4801), audio(2, 170), audio(3, 0)];
        let frames = 50;
        for bands in [80, 128] {
            let twin = LogMel::new(bands);
            for (place, mut device) in devices() {
                let ours = DeviceLogMel::new(&twin, place).expect("placed");
                let windows: Vec<&[f32]> = windows.iter().map(Vec::as_slice).collect();
                let found = ours.compute(device.as_mut(), &windows, frames).expect("computed");
                for (index, window) in windows.iter().enumerate() {
                    let whole = LogMel::frames(window.len()).min(frames);
                    let mut expected = vec![0.0; frames * bands];
                    twin.compute(&Threads::new(1), window, &mut expected[..whole * bands]);
                    let found = found.get(index as i64).tr().to_device(tch::Device::Cpu).contiguous();
                    let found: Vec<f32> = found.view([-1]).try_into().expect("numbers");
                    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        // A sum of 400 products in f32 against a Fourier transform: in quiet bands the logarithm
                        // shows the difference.
                        assert!((found - expected).abs() < 2e-3, "{index}, {at}: {found} against {expected}");
                    }
                }
            }
        }
    }
}
