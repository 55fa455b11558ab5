//! Keys and values of the audio in libtorch's tensors: in the format of the weights, or in e4m3, which halves both the
//! memory of bf16 and the bytes that a step reads.

use tch::{Device, Kind, Tensor};

use crate::engine::SlotId;
use crate::models::Error;

/// The largest number of e4m3 (Micikevicius et al., arXiv:2209.05433).
const E4M3_MAX: f64 = 448.0;

/// The audio cache of one layer, for all slots.
pub struct AudioCache {
    /// Keys and values: (2, slots, heads, audio positions, d / heads).
    pub numbers: Tensor,
    /// The factors of e4m3 numbers: (2, slots, heads), f32. They scale the largest number of each slot's head to
    /// the largest e4m3 number.
    pub scales: Option<Tensor>,
}

impl AudioCache {
    /// `size`: the size of `numbers`.
    pub fn new(size: [i64; 5], (kind, device): (Kind, Device)) -> Result<Self, Error> {
        let scales = match kind {
            Kind::Float8e4m3fn => Some(Tensor::f_zeros(&size[..3], (Kind::Float, device))?),
            _ => None,
        };
        Ok(Self { numbers: Tensor::f_zeros(size, (kind, device))?, scales })
    }

    /// `audio`: keys and values of a window for each of `slots`, (2, windows, heads, positions, d / heads). Numbers are
    /// scaled for all windows at once, as on a GPU every operation costs a launch.
    pub fn write(&self, slots: &[SlotId], audio: &Tensor) -> Result<(), Error> {
        let length = audio.size5()?.3;
        let mut scaled = None;
        if let Some(scales) = &self.scales {
            let largest = audio.f_abs()?.f_amax([3, 4], false)?.f_to_kind(Kind::Float)?;
            // All zeros: any scale is right but 0.
            let scale = largest.f_clamp_min(f64::from(f32::MIN_POSITIVE))?.f_div_scalar(E4M3_MAX)?;
            // In f32, as the scale is.
            let numbers = audio.f_div(&scale.f_unsqueeze(3)?.f_unsqueeze(4)?)?;
            scaled = Some((numbers, scale, scales));
        }
        let numbers = scaled.as_ref().map_or(audio, |(numbers, ..)| numbers);
        for (window, slot) in slots.iter().enumerate() {
            let (window, slot) = (window as i64, slot.0 as i64);
            let mut target = self.numbers.f_select(1, slot)?.f_narrow(2, 0, length)?;
            target.f_copy_(&numbers.f_select(1, window)?)?;
            if let Some((_, scale, scales)) = &scaled {
                scales.f_select(1, slot)?.f_copy_(&scale.f_select(1, window)?)?;
            }
        }
        Ok(())
    }

    /// Keys and values of a slot's first `length` positions in `kind`: (2, heads, length, d / heads).
    pub fn read(&self, slot: i64, length: i64, kind: Kind) -> Result<Tensor, Error> {
        let numbers = self.numbers.f_select(1, slot)?.f_narrow(2, 0, length)?;
        let Some(scales) = &self.scales else { return Ok(numbers.f_to_kind(kind)?) };
        let scale = scales.f_select(1, slot)?.f_unsqueeze(2)?.f_unsqueeze(3)?;
        Ok(numbers.f_to_kind(Kind::Float)?.f_mul(&scale)?.f_to_kind(kind)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_e4m3_are_off_by_a_sixteenth_at_most() {
        let size = [2, 3, 2, 40, 64];
        let cache = AudioCache::new(size, (Kind::Float8e4m3fn, Device::Cpu)).expect("memory");
        let audio = Tensor::randn([2, 2, 2, 30, 64], (Kind::Float, Device::Cpu));
        // Heads of both windows are of very different sizes, and one has nothing.
        let sizes = [1e-3f32, 1.0, 300.0, 0.0, 20.0, 1e-6, 3.0, 1e4];
        let audio = audio * Tensor::from_slice(&sizes).view([2, 2, 2, 1, 1]);
        let slots = [2, 1].map(SlotId);
        cache.write(&slots, &audio).expect("it fits");
        for (window, slot) in slots.iter().enumerate() {
            let read = cache.read(slot.0 as i64, 30, Kind::Float).expect("there");
            for (part, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let audio = audio.get(part).get(window as i64).get(head);
                let read = read.get(part).get(head);
                let largest = f64::try_from(audio.abs().max()).expect("a number");
                let off = (&read - &audio).abs() - audio.abs() / 16.0;
                // Below the normal numbers steps are even: 2⁻⁹ of a scale of which the largest is 448.
                let worst = f64::try_from(off.max()).expect("a number");
                assert!(worst <= largest / 448.0 / 1024.0, "{worst} of {largest}");
            }
        }
        let untouched = cache.numbers.select(1, 0).to_kind(Kind::Float).abs().max();
        assert_eq!(f64::try_from(untouched).expect("a number"), 0.0);
    }
}
