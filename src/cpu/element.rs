//! Number types that caches and matrices are stored in, and arithmetic that vectorises.

/// The upper half of an f32.
pub use half::bf16 as Bf16;
use half::vec::HalfBitsVecExt;

/// A stored number. The conversions compile to a few vector instructions.
pub trait Element: Copy + Default + Send + Sync + 'static {
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;

    /// Memory that is not touched before it is written to.
    fn zeros(count: usize) -> Vec<Self> {
        vec![Self::default(); count]
    }
}

impl Element for f32 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

/// Written out, since the crate's own conversions treat not-a-numbers apart and do not vectorise.
impl Element for Bf16 {
    /// Rounds to nearest, ties to even. Not-a-numbers keep being some number: none arises here.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        Self::from_bits((bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16) as u16)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// As whole numbers, whose zeros the allocator has: of this type each would be written.
    fn zeros(count: usize) -> Vec<Self> {
        vec![0u16; count].reinterpret_into()
    }
}

/// Whole numbers; what they count is up to the scale beside them.
impl Element for i8 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value.round_ties_even() as i8
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
}

/// a · b + c, fused where the processor can: without the instruction `mul_add` is a slow call.
#[inline(always)]
pub fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// eˣ to about 2 units in the last place for x ≤ 88; smaller than e⁻⁸⁷ is e⁻⁸⁷.
///
/// Cody and Waite reduction, then the Taylor polynomial of degree 6 on |r| ≤ ln 2 / 2.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5 · 2²³ leaves the rounded number in the low bits of the sum.
    const ROUNDER: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add::<FMA>(n, -LN2_HIGH, x);
    let r = multiply_add::<FMA>(n, -LN2_LOW, r);
    let mut p = 1.0 / 720.0;
    for coefficient in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = multiply_add::<FMA>(p, r, coefficient);
    }
    let exponent = (shifted.to_bits().wrapping_sub(ROUNDER.to_bits()).wrapping_add(127)) << 23;
    p * f32::from_bits(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exp_is_close(x in -87.0f32..88.0) {
            let expected = f64::from(x).exp();
            for actual in [exp::<true>(x), exp::<false>(x)] {
                prop_assert!((f64::from(actual) / expected - 1.0).abs() < 1e-6, "{actual} for {expected}");
            }
        }

        #[test]
        fn bf16_rounds_to_nearest(x in -1e30f32..1e30) {
            let back = Element::to_f32(<Bf16 as Element>::from_f32(x));
            prop_assert!((back - x).abs() <= x.abs() / 256.0);
            prop_assert_eq!(Element::to_f32(<Bf16 as Element>::from_f32(back)), back);
        }
    }
}
