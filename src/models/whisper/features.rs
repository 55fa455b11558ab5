//! Log-mel features of windows: on the processor's threads, and on a device.

mod device;

use crate::audio::{LogMel, clamp_log_mel};
use crate::cpu::{Places, Threads};

pub use crate::audio::{FFT_SAMPLES, HOP_SAMPLES};
pub use device::DeviceLogMel;

/// Frames that a thread takes at a time.
const FRAMES_OF_TASK: usize = 50;

impl LogMel {
    /// Features of the first frames of `samples` (mono, 16 kHz), silence following: (frames, bands) into
    /// `output`. The clamp at 8 below the maximum is taken over these frames.
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
