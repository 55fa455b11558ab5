//! Which vector instructions this processor has, found at run time.

/// The instructions that a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// What every processor of the target has.
    Portable,
    /// 256-bit vectors and fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The widest that this processor has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }

    /// What this processor has, the widest last. Kernels rely on it: no other level may be used.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "there is one level where the target isn't x86-64")]
        let mut levels = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                levels.push(Self::Avx2);
            }
            if is_x86_feature_detected!("avx512f") {
                levels.push(Self::Avx512);
            }
        }
        levels
    }

    /// Outputs in a panel of packed weights: with a tile's rows they fill the registers.
    pub fn panel_outputs(self) -> usize {
        match self {
            Self::Portable => 8,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => 16,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => 32,
        }
    }
}

/// `a · b + c`; with `FMA` rounded once, which is fast only where the processor has it.
#[inline(always)]
pub(super) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `e^x` without a branch or a call, so that loops over it become vector code. Relative error
/// below 3e-7; `x` is cut to ±87, where `f32` still has normal numbers.
///
/// Splits `x = n ln 2 + r` with `|r| ≤ ln 2 / 2` (Cody and Waite, 1980), takes `e^r` from its
/// Taylor series and puts `n` into the exponent's bits.
#[inline(always)]
pub(super) fn exponential<const FMA: bool>(x: f32) -> f32 {
    /// `ln 2` in two parts, of which the first has few enough bits that `n` times it is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    /// Adding 1.5 · 2²³ rounds to an integer and leaves it in the low bits of the mantissa.
    const ROUNDING: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 87.0);
    let shifted = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUNDING);
    let n = shifted - ROUNDING;
    let r = multiply_add::<FMA>(-n, LN_2[0], x);
    let r = multiply_add::<FMA>(-n, LN_2[1], r);
    let mut power = 1.0 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        power = multiply_add::<FMA>(power, r, coefficient);
    }
    let exponent = (shifted.to_bits().wrapping_sub(ROUNDING.to_bits())) << 23;
    f32::from_bits(power.to_bits().wrapping_add(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_is_exact_to_the_last_bits() {
        for i in -8700..=8700 {
            let x = i as f32 / 100.0;
            let expected = f64::from(x).exp();
            for got in [exponential::<true>(x), exponential::<false>(x)] {
                assert!((f64::from(got) / expected - 1.0).abs() < 3e-7, "e^{x} = {expected}, got {got}");
            }
        }
    }

    #[test]
    fn exponential_stays_finite() {
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN] {
            assert!(exponential::<false>(x).is_normal());
        }
    }
}
