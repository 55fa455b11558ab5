//! The constants of an ONNX file, by name. The graph is not read.
//!
//! The messages are the part of `onnx.proto` that holds constants (github.com/onnx/onnx).

use std::collections::HashMap;

use prost::Message;

/// `TensorProto.DataType.FLOAT`
const FLOAT: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "5")]
    initializer: Vec<TensorProto>,
}

/// A tensor as it is stored in the file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(string, tag = "8")]
    name: String,
    /// Little-endian.
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
}

impl TensorProto {
    /// The values, row-major; `None` unless they are `f32` of this shape.
    pub fn values(&self, shape: &[usize]) -> Option<Vec<f32>> {
        let (values, rest) = self.raw_data.as_chunks::<4>();
        let count = shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let dims = self.dims.iter().map(|&size| usize::try_from(size).ok());
        let fits = dims.eq(shape.iter().map(|&size| Some(size)));
        let whole = fits && self.data_type == FLOAT && rest.is_empty() && count == Some(values.len());
        whole.then(|| values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// All initializers of the model in `file`; `None` if it isn't whole Protocol Buffers.
pub(super) fn initializers(file: &[u8]) -> Option<HashMap<String, TensorProto>> {
    let graph = ModelProto::decode(file).ok()?.graph.unwrap_or_default();
    Some(graph.initializer.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes; shorter than 128.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn model(tensor: &[u8]) -> Vec<u8> {
        let graph = [bytes(2, b"graph"), bytes(5, tensor)].concat();
        // Before it the version of the format, which is a number, and the producer.
        [vec![1 << 3, 8], bytes(2, b"test"), bytes(7, &graph)].concat()
    }

    fn two_by_one(dims: &[u8], data_type: u8) -> Vec<u8> {
        let data = [1.5_f32.to_le_bytes(), (-2.0_f32).to_le_bytes()].concat();
        [dims.to_vec(), vec![2 << 3, data_type], bytes(8, b"weight"), bytes(9, &data)].concat()
    }

    #[test]
    fn reads_a_tensor_whose_sizes_are_packed_or_not() {
        for dims in [vec![1 << 3, 2, 1 << 3, 1], bytes(1, &[2, 1])] {
            let file = model(&two_by_one(&dims, 1));
            let tensors = initializers(&file).expect("a whole file");
            assert_eq!(tensors["weight"].values(&[2, 1]), Some(vec![1.5, -2.0]));
            assert_eq!(tensors["weight"].values(&[1, 2]), None);
        }
    }

    #[test]
    fn refuses_values_of_another_type_or_number() {
        for (size, data_type) in [(2, 10), (3, 1)] {
            let file = model(&two_by_one(&[1 << 3, size], data_type));
            let tensors = initializers(&file).expect("a whole file");
            assert_eq!(tensors["weight"].values(&[usize::from(size)]), None);
        }
    }

    #[test]
    fn a_cut_file_is_refused() {
        let file = model(&two_by_one(&[1 << 3, 2], 1));
        // Cuts between fields of the model itself leave a whole message, without the graph.
        for end in (1..file.len()).filter(|end| ![2, 8].contains(end)) {
            assert!(initializers(&file[..end]).is_none(), "cut at {end}");
        }
    }

    #[test]
    fn a_number_without_end_is_refused() {
        assert!(initializers(&[0xff; 40]).is_none());
    }

    #[test]
    fn a_negative_size_is_no_shape() {
        let minus_one = [vec![1 << 3], vec![0xff; 9], vec![1]].concat();
        let file = model(&two_by_one(&minus_one, 1));
        assert_eq!(initializers(&file).expect("a whole file")["weight"].values(&[1]), None);
    }
}
