//! Log-mel features on a CUDA device: the kernels `log_mel` and `clamp_mel`.

use tch::{Kind, Tensor};

use super::FFT_SAMPLES;
use crate::audio::LogMel;
use crate::cuda::{Address, Device, Kernel, Stage};
use crate::models::Error;

/// Numbers of `send_beside` that make up one `i32`.
const COUNT: usize = 2;
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
    /// The audio on the device, used for one batch after the other: for each window the number of its samples, an
    /// `i32`; then (windows, samples of the longest) i16.
    audio: Tensor,
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
            audio: Tensor::f_empty([0], (Kind::Int16, place))?,
        })
    }

    /// Enqueues to the side queue, and to libtorch's work there, the features (windows, bands, frames), f32: of the
    /// first frames of each window's audio, mono at 16 kHz in [-1, 1], which goes to the device in 16 bits; behind
    /// them the value of padding.
    ///
    /// # Errors
    /// Of the device.
    pub fn compute(
        &mut self,
        device: &mut dyn Device,
        windows: &[&[f32]],
        frames: usize,
    ) -> Result<Tensor, Error> {
        device.libtorch_beside()?;
        let stride = windows.iter().map(|window| window.len()).max().unwrap_or(0).max(1);
        let needed = windows.len() * (COUNT + stride);
        if self.audio.size1()? < needed as i64 {
            let length = needed.next_power_of_two() as i64;
            self.audio = Tensor::f_empty([length], (Kind::Int16, self.place))?;
        }
        // SAFETY: contiguous memory of the device, here and below, of the types and sizes that the kernels take it
        // for. What this holds outlives every launch, because the device waits for all launches when it is dropped;
        // the other tensors are libtorch's in the side queue, which uses their memory again after the launches there.
        let address = |tensor: &Tensor| unsafe { Address::new(tensor.data_ptr()) };
        let counts = address(&self.audio);
        // SAFETY: as above; the counts come before the samples, in the same tensor.
        let samples = unsafe {
            let first = self.audio.data_ptr().cast::<i16>().add(windows.len() * COUNT);
            Address::new(first.cast())
        };
        device.send_beside(needed, counts, &mut |staged| write(windows, stride, staged))?;
        // After the audio, on which the host works meanwhile.
        device.stage_begins(Stage::Mel)?;
        let count = windows.len() as i64;
        let maxima = Tensor::f_full([count], i64::from(i32::MIN), (Kind::Int, self.place))?;
        let size = [count, self.bands as i64, frames as i64];
        let features = Tensor::f_empty(size, (Kind::Float, self.place))?;
        let arguments = [
            samples.into(),
            stride.into(),
            counts.into(),
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
        device.launch_beside(Kernel::LogMel, [frames.div_ceil(MEL_FRAMES), windows.len(), 1], &arguments)?;
        let arguments = [counts.into(), address(&maxima).into(), frames.into(), address(&features).into()];
        let grid = [frames.div_ceil(CLAMP_FRAMES), self.bands, windows.len()];
        device.launch_beside(Kernel::ClampMel, grid, &arguments)?;
        device.stage_ends()?;
        Ok(features)
    }
}

/// Writes the audio as [`DeviceLogMel`] keeps it on the device.
fn write(windows: &[&[f32]], stride: usize, staged: &mut [i16]) {
    let (counts, samples) = staged.split_at_mut(windows.len() * COUNT);
    for (window, count) in windows.iter().zip(counts.as_chunks_mut::<COUNT>().0) {
        let [a, b, c, d] = i32::try_from(window.len()).unwrap_or(i32::MAX).to_ne_bytes();
        *count = [i16::from_ne_bytes([a, b]), i16::from_ne_bytes([c, d])];
    }
    for (window, samples) in windows.iter().zip(samples.chunks_exact_mut(stride)) {
        let (heard, padding) = samples.split_at_mut(window.len());
        heard.iter_mut().zip(*window).for_each(|(to, &from)| *to = pcm16(from));
        padding.fill(0);
    }
}

/// A sample in 16 bits, exact where the audio had 16 bits to begin with: `(sample * 32768.0).round() as i16`. On x86-64
/// `round` is a call for each number; this becomes a few instructions for several at once.
fn pcm16(sample: f32) -> i16 {
    // The largest number below a half: with a half, the number just below a half would be rounded up twice.
    const HALF: f32 = 0.499_999_97;
    let scaled = (sample * 32768.0).clamp(-32768.0, 32767.0);
    (scaled + HALF.copysign(scaled)) as i32 as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Threads;
    use crate::cuda::emulated::devices;

    #[test]
    fn samples_in_16_bits_are_rounded_as_by_round() {
        let rounded = |sample: f32| (sample * 32768.0).round() as i16;
        let check =
            |sample: f32| assert_eq!(pcm16(sample), rounded(sample), "{sample:e} {:x}", sample.to_bits());
        // Every number of 16 bits, every half, and their neighbours, also beyond full scale.
        for halves in -2 * 32_770..=2 * 32_770 {
            let sample = halves as f32 / 65_536.0;
            for sample in [sample, sample.next_up(), sample.next_down(), sample.next_up().next_up()] {
                check(sample);
            }
        }
        // All exponents and signs, infinities and NaN.
        let mut bits = 0u32;
        for _ in 0..1_000_000 {
            bits = bits.wrapping_add(2_654_435_761);
            check(f32::from_bits(bits));
        }
        for sample in [1.0, -1.0, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            check(sample);
        }
    }

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
                device.libtorch_beside().expect("the device works");
                let mut ours = DeviceLogMel::new(&twin, place).expect("placed");
                // A longer batch before, whose audio is not heard again.
                let louder: Vec<Vec<f32>> = (4..10).map(|seed| audio(seed, 12_000)).collect();
                let louder: Vec<&[f32]> = louder.iter().map(Vec::as_slice).collect();
                let _ = ours.compute(device.as_mut(), &louder, frames).expect("computed");
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
