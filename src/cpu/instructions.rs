//! The processor's vector instructions: which there are, and kernels compiled for each set of them.

/// Sets of vector instructions; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// The instructions that the program was compiled for.
    Baseline,
    /// AVX2 and fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with products of int8 (VNNI) and of bf16.
    Avx512Products,
}

impl Instructions {
    const ALL: [Self; 4] = [Self::Baseline, Self::Avx2, Self::Avx512, Self::Avx512Products];

    /// Whether this processor executes them.
    #[cfg(target_arch = "x86_64")]
    fn are_available(self) -> bool {
        match self {
            Self::Baseline => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Avx512 => {
                Self::Avx2.are_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx512Products => {
                Self::Avx512.are_available()
                    && is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("avx512bf16")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn are_available(self) -> bool {
        self == Self::Baseline
    }
}

/// Proof that this processor executes a set of [`Instructions`]: kernels compiled for them take it and
/// check nothing further, so a `Level` is only made after a look at the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level(Instructions);

impl Level {
    /// The level that every processor has.
    pub const BASELINE: Self = Self(Instructions::Baseline);

    /// `None` if the processor lacks the instructions.
    pub fn new(instructions: Instructions) -> Option<Self> {
        instructions.are_available().then_some(Self(instructions))
    }

    /// The highest level of this processor.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::BASELINE)
    }

    /// All levels of this processor, the lowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Instructions::ALL.into_iter().filter_map(Self::new)
    }

    /// Whether kernels at this level may use `instructions`.
    pub fn has(self, instructions: Instructions) -> bool {
        self.0 >= instructions
    }
}

/// Compiles a function for each [`Level`] and makes `$name` choose between the results by the level that it
/// takes as its first argument.
///
/// `= $body` names an `#[inline(always)]` function generic over `const FMA: bool`. `= [$baseline, $avx2,
/// $avx512]` gives each level its own instance, for bodies that depend on more than `FMA`. An `unsafe fn` has an
/// `unsafe` body, and passes the caller's promise on to it.
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident $(<$generic:ident : $bound:path>)?
        ($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident
    ) => {
        $crate::cpu::multiversion! {
            @each [$(#[$meta])* $visibility] [] $name [$($generic: $bound)?]
            ($($argument: $type),*) [$($result)?]
            $body::<false $(, $generic)?>, $body::<true $(, $generic)?>, $body::<true $(, $generic)?>
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis unsafe fn $name:ident $(<$generic:ident : $bound:path>)?
        ($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident
    ) => {
        $crate::cpu::multiversion! {
            @each [$(#[$meta])* $visibility] [unsafe] $name [$($generic: $bound)?]
            ($($argument: $type),*) [$($result)?]
            $body::<false $(, $generic)?>, $body::<true $(, $generic)?>, $body::<true $(, $generic)?>
        }
    };
    (
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident ($($argument:ident : $type:ty),* $(,)?)
        = [$baseline:expr, $avx2:expr, $avx512:expr $(,)?]
    ) => {
        $crate::cpu::multiversion! {
            @each [$(#[$meta])* $visibility] [] $name [] ($($argument: $type),*) [] $baseline, $avx2, $avx512
        }
    };
    (
        @each [$($signature:tt)*] [$($unsafe:tt)?] $name:ident [$($generic:ident : $bound:path)?]
        ($($argument:ident : $type:ty),*) [$($result:ty)?] $baseline:expr, $avx2:expr, $avx512:expr
    ) => {
        #[allow(clippy::too_many_arguments, unused_unsafe, reason = "a safe body is called as an unsafe one")]
        $($signature)* $($unsafe)? fn $name $(<$generic: $bound>)?
        (level: $crate::cpu::Level, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                $($unsafe)? fn avx512 $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                    // SAFETY: an unsafe body gets what the caller promises; a safe one needs no promise.
                    unsafe { ($avx512)($($argument),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                $($unsafe)? fn avx2 $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                    // SAFETY: as above.
                    unsafe { ($avx2)($($argument),*) }
                }
                if level.has($crate::cpu::Instructions::Avx512) {
                    // SAFETY: a `Level` is only made for a processor that has its instructions.
                    return unsafe { avx512($($argument),*) };
                }
                if level.has($crate::cpu::Instructions::Avx2) {
                    // SAFETY: as above.
                    return unsafe { avx2($($argument),*) };
                }
            }
            let _ = level;
            // SAFETY: an unsafe body gets what the caller promises; a safe one needs no promise.
            unsafe { ($baseline)($($argument),*) }
        }
    };
}

pub(crate) use multiversion;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_only_made_for_a_processor_that_has_it() {
        let available: Vec<Level> = Level::available().collect();
        assert_eq!(available.first(), Some(&Level::BASELINE));
        assert_eq!(available.last(), Some(&Level::detect()));
        for instructions in Instructions::ALL {
            let level = Level::new(instructions);
            assert_eq!(level.is_some(), available.iter().any(|level| level.0 == instructions));
            // Each set includes the ones before it.
            assert_eq!(level.is_some(), Level::detect().has(instructions));
        }
    }
}
