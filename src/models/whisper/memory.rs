//! Tensors on the CPU as plain slices, and back.

use tch::{Device, Tensor};

use crate::models::Error;

/// The elements of a contiguous CPU tensor of type `T`; no copy.
///
/// # Panics
/// Where it is another kind of tensor: a bug.
pub fn elements<T: Plain>(tensor: &Tensor, count: usize) -> &[T] {
    assert!(
        tensor.is_contiguous()
            && tensor.device() == Device::Cpu
            && tensor.numel() == count
            && tensor.kind() == T::KIND
    );
    // SAFETY: a contiguous CPU tensor is `numel` elements from `data_ptr` on, valid as long as the
    // tensor; f32 and bf16 have no invalid bits.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast_const().cast(), count) }
}

/// A new contiguous CPU tensor, written by `fill`.
pub fn filled<T: Plain>(shape: &[i64], fill: impl FnOnce(&mut [T])) -> Result<Tensor, Error> {
    let tensor = Tensor::f_empty(shape, (T::KIND, Device::Cpu))?;
    // SAFETY: a new tensor is contiguous, `numel` elements from `data_ptr` on, and nobody else has it;
    // the types have no invalid bits.
    fill(unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) });
    Ok(tensor)
}

/// A type that both sides store in the same way.
pub trait Plain: Copy {
    const KIND: tch::Kind;
}

impl Plain for f32 {
    const KIND: tch::Kind = tch::Kind::Float;
}

impl Plain for crate::cpu::Bf16 {
    const KIND: tch::Kind = tch::Kind::BFloat16;
}
