//! A synthetic voice for tests: something between speech and machine.

use std::f64::consts::{PI, TAU};

/// Pulses at the pitch of a voice, through the first three resonances of three vowels, in syllables over faint noise.
pub struct SyntheticVoice {
    /// The mean pitch, and how far it goes up and down, in Hz.
    pub pitch: f64,
    pub swing: f64,
    /// Raises the resonances as a shorter throat does; 1 leaves them.
    pub size: f64,
    /// Seconds from one syllable to the next, and those of them with voice.
    pub syllable: f64,
    pub voiced: f64,
    /// The noise between syllables; beneath voice it is 0.01.
    pub hush: f64,
}

impl SyntheticVoice {
    /// `count` samples at 16 kHz, with voice at the seconds for which `talks` holds.
    pub fn samples(&self, count: usize, talks: impl Fn(f64) -> bool) -> Vec<f64> {
        const VOWELS: [[(f64, f64); 3]; 3] = [
            [(700.0, 110.0), (1220.0, 120.0), (2600.0, 160.0)],
            [(300.0, 80.0), (2200.0, 120.0), (2900.0, 160.0)],
            [(450.0, 90.0), (900.0, 110.0), (2400.0, 160.0)],
        ];
        let mut resonators = [[0.0_f64; 2]; 3];
        let mut phase = 0.0;
        let mut noise = 1_u32;
        let sample = |n: usize| {
            let t = n as f64 / 16000.0;
            let syllable = (t / self.syllable) as usize;
            let voiced = t - syllable as f64 * self.syllable < self.voiced && syllable % 5 != 4 && talks(t);
            phase += (self.pitch + self.swing * (TAU * 0.7 * t).sin()) / 16000.0;
            let mut value = 0.0;
            if phase >= 1.0 {
                phase -= 1.0;
                value = f64::from(u8::from(voiced));
            }
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            value += if voiced { 0.01 } else { self.hush } * (f64::from(noise) / 4_294_967_296.0 - 0.5);
            for (past, (frequency, width)) in resonators.iter_mut().zip(VOWELS[syllable % 3]) {
                let radius = (-PI * width / 16000.0).exp();
                let turn = 2.0 * radius * (TAU * frequency * self.size / 16000.0).cos();
                value = (1.0 - radius) * value * 4.0 + turn * past[0] - radius * radius * past[1];
                *past = [value, past[0]];
            }
            value * 7.0
        };
        (0..count).map(sample).collect()
    }
}
