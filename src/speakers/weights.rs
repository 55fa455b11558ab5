//! A network's weights, as their file holds them.
//!
//! Format: safetensors (github.com/huggingface/safetensors), all tensors in f32.

use std::path::Path;

use safetensors::tensor::{Metadata, SafeTensors};
use safetensors::{Dtype, SafeTensorError};

use super::error::Error;

/// The tensors of one file. Each one's shape is checked when it is read.
pub(super) struct Weights {
    metadata: Metadata,
    bytes: Vec<u8>,
    /// Where the tensors' values begin in `bytes`.
    start: usize,
}

impl Weights {
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Malformed`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes =
            std::fs::read(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        Self::from_bytes(bytes).map_err(|source| Error::Malformed { path: path.to_owned(), source })
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, SafeTensorError> {
        let (header, metadata) = SafeTensors::read_metadata(&bytes)?;
        Ok(Self { metadata, bytes, start: size_of::<u64>() + header })
    }

    /// The values of a tensor of that shape, row by row.
    ///
    /// # Errors
    /// [`Error::Unexpected`].
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let found = self.metadata.info(name).filter(|info| info.dtype == Dtype::F32 && info.shape == shape);
        let bytes = found.and_then(|info| {
            let (begin, end) = info.data_offsets;
            self.bytes.get(self.start..)?.get(begin..end)
        });
        let bytes = bytes.ok_or_else(|| Error::Unexpected { tensor: name.to_owned() })?;
        Ok(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    /// A file of the vector (1, 2, 3), and of a number of another type.
    fn file() -> Vec<u8> {
        let values: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let view = |dtype, shape, bytes| TensorView::new(dtype, shape, bytes).expect("lengths fit");
        let tensors =
            [("vector", view(Dtype::F32, vec![3], &values)), ("byte", view(Dtype::U8, vec![1], &[7]))];
        safetensors::serialize(tensors, None).expect("written")
    }

    #[test]
    fn a_tensor_is_read_by_its_name_and_shape() {
        let weights = Weights::from_bytes(file()).expect("whole");
        assert_eq!(weights.values("vector", &[3]).expect("there"), [1.0, 2.0, 3.0]);
        for (name, shape) in [("vector", &[1, 3][..]), ("vector", &[4]), ("matrix", &[3]), ("byte", &[1])] {
            let wrong = weights.values(name, shape);
            assert!(matches!(wrong, Err(Error::Unexpected { tensor }) if tensor == name));
        }
    }

    #[test]
    fn a_missing_or_cut_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cut.safetensors");
        assert!(matches!(Weights::read(&path), Err(Error::Unreadable { path: named, .. }) if named == path));
        let whole = file();
        for length in [0, 7, 30, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).expect("written");
            let cut = Weights::read(&path);
            assert!(matches!(cut, Err(Error::Malformed { path: named, .. }) if named == path), "{length}");
        }
    }
}
