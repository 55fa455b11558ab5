//! Log-mel features of windows: on the CPU's threads, and on a CUDA device.

mod device;

use crate::audio::{LogMel, clamp_log_mel};
use crate::cpu::{Places, Threads};
use crate::engine::EncodeRequest;
use crate::models::{Error, weights};

pub use crate::audio::{FFT_SAMPLES, HOP_SAMPLES};
pub use device::DeviceLogMel;

/// Frames of one task of a thread.
const FRAMES_OF_TASK: usize = 50;

/// Log-mel features by the CPU.
pub struct HostLogMel {
    log_mel: LogMel,
    threads: Threads,
}

impl HostLogMel {
    /// With as many bands as the encoder's first convolution reads.
    pub fn new(weights: &weights::Weights, threads: Threads) -> Result<Self, Error> {
        let (_, bands, _) = weights.conv1.weight.size3()?;
        Ok(Self { log_mel: LogMel::new(bands as usize), threads })
    }

    pub fn bands(&self) -> usize {
        self.log_mel.bands()
    }

    /// (windows, frames, bands). A window's audio fills its first frames; the rest is padding.
    pub fn compute(&self, requests: &[EncodeRequest], frames: usize) -> Vec<f32> {
        let bands = self.bands();
        // Zero is the value of padding in the reference; silence has another one.
        let mut features = vec![0.0; requests.len() * frames * bands];
        for (request, window) in requests.iter().zip(features.chunks_exact_mut(frames * bands)) {
            let samples = request.pcm.samples();
            let frames = LogMel::frames(samples.len()).min(frames);
            self.log_mel.compute(&self.threads, samples, &mut window[..frames * bands]);
        }
        features
    }
}

impl LogMel {
    /// Writes the features of the first frames of `samples` (mono, 16 kHz; silence follows) into `output`,
    /// (frames, bands). The clamp at 8 below the maximum is over these frames.
    pub fn compute(&self, threads: &Threads, samples: &[f32], output: &mut [f32]) {
        let bands = self.bands();
        let frames = output.len() / bands;
        let places = Places::new(output);
        threads.split(frames.div_ceil(FRAMES_OF_TASK), |tasks| {
            let frames = tasks.start * FRAMES_OF_TASK..(tasks.end * FRAMES_OF_TASK).min(frames);
            // SAFETY: tasks do not overlap.
            let output = unsafe { places.range(frames.start * bands..frames.end * bands) };
            self.log_energies(samples, frames, output);
        });
        clamp_log_mel(output);
    }
}
