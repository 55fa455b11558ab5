//! Number types that caches and matrices are stored in, and arithmetic that compiles to vector code.

/// The upper half of an f32.
pub use half::bf16 as Bf16;
use half::vec::HalfBitsVecExt;

/// A stored number. The conversions compile to a few vector instructions.
pub trait Element: Copy + Default + Send + Sync + 'static {
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;

    /// Zeros in memory that the system maps when it is first written to.
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

/// Written out because the crate's own conversions branch on NaN, which keeps them from becoming vector code.
impl Element for Bf16 {
    /// Rounds to nearest, ties to even. A NaN may become a number: none arises here.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        Self::from_bits((bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16) as u16)
    }

    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Made as integers, which the allocator hands out zeroed: zeros of this type would be written one by one.
    fn zeros(count: usize) -> Vec<Self> {
        vec![0u16; count].reinterpret_into()
    }
}

/// Integers; the scale stored beside them says what a unit is worth.
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
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    exp_by::<FMA, false>(x)
}

/// eˣ with a relative error below 3e-7, by one more term than [`exp`]: for a recurrence, which feeds its errors
/// back. x is clamped to ±87, where the result is a normal number.
#[inline(always)]
pub fn fine_exp<const FMA: bool>(x: f32) -> f32 {
    exp_by::<FMA, true>(x)
}

/// eˣ without a branch or a call, so that loops over it become vector code: x = n ln 2 + r with |r| ≤ ln 2 / 2
/// (Cody and Waite, 1980), eʳ by the Taylor polynomial of degree 6, or of 7 if `FINE`, and n into the
/// exponent's bits.
#[inline(always)]
fn exp_by<const FMA: bool, const FINE: bool>(x: f32) -> f32 {
    // ln 2 in two parts; the first has so few bits that n times it is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5 · 2²³ leaves the rounded number in the low bits of the sum.
    const ROUNDER: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, if FINE { 87.0 } else { 88.0 });
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = multiply_add::<FMA>(n, -LN2_HIGH, x);
    let r = multiply_add::<FMA>(n, -LN2_LOW, r);
    let mut p = if FINE { multiply_add::<FMA>(1.0 / 5040.0, r, 1.0 / 720.0) } else { 1.0 / 720.0 };
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
        fn fine_exp_is_exact_to_the_last_bits(x in -87.0f32..87.0) {
            let expected = f64::from(x).exp();
            for actual in [fine_exp::<true>(x), fine_exp::<false>(x)] {
                prop_assert!((f64::from(actual) / expected - 1.0).abs() < 3e-7, "{actual} for {expected}");
            }
        }

        #[test]
        fn bf16_rounds_to_nearest(x in -1e30f32..1e30) {
            let back = Element::to_f32(<Bf16 as Element>::from_f32(x));
            prop_assert!((back - x).abs() <= x.abs() / 256.0);
            prop_assert_eq!(Element::to_f32(<Bf16 as Element>::from_f32(back)), back);
        }
    }

    #[test]
    fn fine_exp_stays_finite() {
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            assert!(fine_exp::<false>(x).is_normal());
        }
    }
}
