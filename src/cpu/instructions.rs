//! What the processor can do.

/// Instruction sets, each including the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the program was compiled for.
    Baseline,
    /// AVX2 and fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// And products of int8 (VNNI) and bf16.
    Avx512Products,
}

impl Level {
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx512 && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bf16") {
                return Self::Avx512Products;
            }
            if avx512 {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }
}

/// Compiles `$body`, an `#[inline(always)]` function generic over `const FMA: bool`, for each level
/// and makes `$name` choose.
macro_rules! multiversion {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident $(<$generic:ident : $bound:path>)? ($($argument:ident : $type:ty),* $(,)?) $(-> $result:ty)? = $body:ident) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name $(<$generic: $bound>)? (level: $crate::cpu::Level, $($argument: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx512 $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                    $body::<true $(, $generic)?>($($argument),*)
                }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2 $(<$generic: $bound>)? ($($argument: $type),*) $(-> $result)? {
                    $body::<true $(, $generic)?>($($argument),*)
                }
                if level >= $crate::cpu::Level::Avx512 {
                    // SAFETY: `Level::detect` found these instructions.
                    return unsafe { avx512($($argument),*) };
                }
                if level >= $crate::cpu::Level::Avx2 {
                    // SAFETY: as above.
                    return unsafe { avx2($($argument),*) };
                }
            }
            let _ = level;
            $body::<false $(, $generic)?>($($argument),*)
        }
    };
}

pub(crate) use multiversion;
