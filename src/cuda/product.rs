//! Matrix products by cuBLASLt.
//!
//! A row's result must not depend on how many rows there are. cuBLASLt promises equal bits only for equal calls: for
//! another number of rows it may choose another algorithm, and an algorithm may order its sums by the shape. So a product
//! multiplies all rows that there is room for, wanted or not. It costs little: the weight's bytes, which are read once
//! in either case, set the time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::size_of;
use std::rc::Rc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use super::libraries::Absent;
use super::{Error, Product};

/// NVIDIA's advice for Hopper; other devices need less.
pub const WORKSPACE_BYTES: usize = 32 << 20;

type Algorithm = sys::cublasLtMatmulAlgo_t;

pub struct Products {
    handle: sys::cublasLtHandle_t,
    /// Device memory of [`WORKSPACE_BYTES`].
    workspace: u64,
    /// By rows, inputs and outputs.
    known: RefCell<HashMap<[usize; 3], Rc<Known>>>,
}

/// A product that has been made before: its shape, and the algorithm for it.
struct Known {
    shape: Shape,
    algorithm: Algorithm,
}

impl Products {
    /// # Safety
    /// `workspace` is the address of [`WORKSPACE_BYTES`] of the device's memory, which only this uses and which
    /// outlives it.
    pub unsafe fn new(workspace: u64) -> Result<Self, Error> {
        // SAFETY: the check only asks the loader for a library by name.
        if !unsafe { sys::is_culib_present() } {
            return Err(Absent::Companion("libcublasLt.so.13").into());
        }
        Ok(Self { handle: result::create_handle()?, workspace, known: RefCell::default() })
    }

    /// Enqueues the product to `stream`.
    ///
    /// # Safety
    /// `stream` is alive, and of the context that is bound to this thread.
    ///
    /// # Errors
    /// [`Error::Rows`] for more rows than there is room for; those of cuBLASLt.
    pub unsafe fn multiply(&self, product: Product, stream: CUstream) -> Result<(), Error> {
        let Product { rows, room, inputs, outputs, .. } = product;
        if rows > room {
            return Err(Error::Rows { rows, room });
        }
        let known = self.known([room, inputs, outputs])?;
        let Known { shape, algorithm } = known.as_ref();
        let (alpha, beta) = (1.0f32, 0.0f32);
        let place = |address: u64| address as *const c_void;
        // SAFETY: the descriptors live through the call. The addresses are those of memory of these shapes (see
        // `Address::new`): a product's matrices have room for as many rows. The scalars are read before the
        // call returns, as they are on the host, and the caller promises the stream and the workspace.
        unsafe {
            result::matmul(
                self.handle,
                shape.description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                place(product.weight.0),
                shape.weight,
                place(product.x.0),
                shape.x,
                place(product.out.0),
                shape.out,
                place(product.out.0).cast_mut(),
                shape.out,
                &raw const *algorithm,
                self.workspace as *mut c_void,
                WORKSPACE_BYTES,
                stream.cast(),
            )?;
        }
        Ok(())
    }

    fn known(&self, size: [usize; 3]) -> Result<Rc<Known>, Error> {
        if let Some(known) = self.known.borrow().get(&size) {
            return Ok(known.clone());
        }
        let [rows, inputs, outputs] = size;
        let shape = Shape::new(rows, inputs, outputs)?;
        let known = Rc::new(Known { algorithm: self.choose(&shape)?, shape });
        self.known.borrow_mut().insert(size, known.clone());
        Ok(known)
    }

    fn choose(&self, shape: &Shape) -> Result<Algorithm, Error> {
        let preference = Preference(result::create_matmul_pref()?);
        let workspace = WORKSPACE_BYTES;
        // SAFETY: the descriptors are alive, and the attribute is read from a number of its size.
        unsafe {
            result::set_matmul_pref_attribute(
                preference.0,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<usize>(),
            )?;
            let &Shape { description, weight, x, out } = shape;
            let chosen = result::get_matmul_algo_heuristic(
                self.handle,
                description,
                weight,
                x,
                out,
                out,
                preference.0,
            );
            Ok(chosen?.algo)
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: `create_handle` made it, and it is destroyed once.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: `create_matmul_pref` made it, and it is destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

/// cuBLASLt is column-major: a row-major (rows, n) is its (n, rows), so it computes outᵀ = weight · xᵀ.
struct Shape {
    description: sys::cublasLtMatmulDesc_t,
    weight: sys::cublasLtMatrixLayout_t,
    x: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
}

impl Shape {
    fn new(rows: usize, inputs: usize, outputs: usize) -> Result<Self, CublasError> {
        use std::ptr::null_mut;
        use sys::cudaDataType::{CUDA_R_16BF, CUDA_R_32F};
        let mut shape = Self { description: null_mut(), weight: null_mut(), x: null_mut(), out: null_mut() };
        let layout = |kind, height: usize, width: usize| {
            result::create_matrix_layout(kind, height as u64, width as u64, height as i64)
        };
        shape.description =
            result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, CUDA_R_32F)?;
        // CUBLAS_OP_T of cublas_api.h.
        let transposed = 1i32;
        // SAFETY: the descriptor is alive, and the attribute is read from a number of its size.
        unsafe {
            result::set_matmul_desc_attribute(
                shape.description,
                sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                (&raw const transposed).cast(),
                size_of::<i32>(),
            )?;
        }
        shape.weight = layout(CUDA_R_16BF, inputs, outputs)?;
        shape.x = layout(CUDA_R_16BF, inputs, rows)?;
        shape.out = layout(CUDA_R_32F, outputs, rows)?;
        Ok(shape)
    }
}

impl Drop for Shape {
    fn drop(&mut self) {
        // SAFETY: each was made by its own function or is null, and is destroyed once.
        unsafe {
            for layout in [self.weight, self.x, self.out] {
                if !layout.is_null() {
                    let _ = result::destroy_matrix_layout(layout);
                }
            }
            if !self.description.is_null() {
                let _ = result::destroy_matmul_desc(self.description);
            }
        }
    }
}
