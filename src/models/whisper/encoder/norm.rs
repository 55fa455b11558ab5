//! The encoder's residual and its norms on a CUDA device: one kernel adds the output of a block and normalises for the
//! next, for which libtorch takes four passes over memory.

use tch::{Kind, Tensor};

use super::super::layers::LayerNorm;
use crate::cuda::{self, Address, Argument, Kernel};
use crate::models::Error;

/// Enqueues a kernel in order with libtorch's work in this thread.
pub type Launch<'a> = &'a dyn Fn(Kernel, [usize; 3], &[Argument]) -> Result<(), cuda::Error>;

/// Adds `y` in bf16 to the residual `x`, which is contiguous and in f32, and returns the norm of the sum in bf16. All
/// are (…, d); the width is one that the kernel takes.
pub fn add_norm(launch: Launch, x: &Tensor, y: Option<&Tensor>, norm: &LayerNorm) -> Result<Tensor, Error> {
    let width = norm.gamma.numel();
    let y = y.map(Tensor::f_contiguous).transpose()?;
    let normal = Tensor::f_empty(x.size(), (Kind::BFloat16, x.device()))?;
    // SAFETY: contiguous memory of the device, of the types and sizes that the kernel takes it for. It goes back to
    // libtorch, which reuses it in its own order, in which the kernel is.
    let address = |tensor: &Tensor| unsafe { Address::new(tensor.data_ptr()) };
    let arguments = [
        address(x).into(),
        y.as_ref().map_or(Address::NULL, address).into(),
        address(&norm.gamma).into(),
        address(&norm.beta).into(),
        width.into(),
        address(&normal).into(),
    ];
    launch(Kernel::EncoderNorm, [x.numel() / width.max(1), 1, 1], &arguments)?;
    Ok(normal)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::cuda::emulated::devices;
    use crate::models::weights;

    #[test]
    fn sums_and_norms_are_those_of_libtorch() {
        let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
        for (torch_device, device) in devices() {
            device.libtorch_beside().expect("the device works");
            // Widths of models, of less than a block and of more.
            for width in [128, 384, 1280, 2048] {
                let weights = weights::LayerNorm { gamma: random(&[width]), beta: random(&[width]) };
                let norm = LayerNorm::new(&weights, torch_device, Kind::BFloat16).expect("memory");
                let before = random(&[2, 3, width]).to_device(torch_device) * 3.0;
                let y = random(&[2, 3, width]).to_kind(Kind::BFloat16).to_device(torch_device);
                let launch =
                    |kernel, grid, arguments: &[Argument]| device.launch_beside(kernel, grid, arguments);
                for y in [Some(&y), None] {
                    let x = before.copy();
                    let found = add_norm(&launch, &x, y, &norm).expect("launched");
                    let expected = match y {
                        Some(y) => &before + y.to_kind(Kind::Float),
                        None => before.copy(),
                    };
                    assert_eq!(f64::try_from((&x - &expected).abs().max()).expect("a number"), 0.0);
                    let expected = norm.forward(&expected).expect("computed").to_kind(Kind::Float);
                    // At most a step of bf16.
                    let off = (found.to_kind(Kind::Float) - &expected).abs() - expected.abs() / 128.0;
                    let worst = f64::try_from(off.max()).expect("a number");
                    assert!(worst < 1e-4, "width {width}: {worst}");
                }
            }
        }
    }
}
