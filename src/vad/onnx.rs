//! The constants of an ONNX file, by name. The graph is not read.
//!
//! ONNX is Protocol Buffers: fields of a number and a wire type each
//! (protobuf.dev/programming-guides/encoding). Field numbers are those of `onnx.proto`:
//! `ModelProto.graph` 7, `GraphProto.initializer` 5, and in `TensorProto` `dims` 1, `data_type` 2,
//! `name` 8, `raw_data` 9.

use std::collections::HashMap;

/// `TensorProto.DataType.FLOAT`
const FLOAT: u64 = 1;

/// A tensor of `f32`, as it lies in the file.
#[derive(Debug, Default)]
pub(super) struct Tensor<'a> {
    pub shape: Vec<usize>,
    data_type: u64,
    /// Little-endian.
    data: &'a [u8],
}

impl Tensor<'_> {
    /// The values, `None` unless they are `f32` and as many as the shape says.
    pub fn values(&self) -> Option<Vec<f32>> {
        let (values, rest) = self.data.as_chunks::<4>();
        let count = self.shape.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let whole = self.data_type == FLOAT && rest.is_empty() && count == Some(values.len());
        whole.then(|| values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}

/// All initializers of the model in `file`; `None` where it breaks the encoding.
pub(super) fn initializers(file: &[u8]) -> Option<HashMap<&str, Tensor<'_>>> {
    let mut tensors = HashMap::new();
    for graph in messages(file, 7)? {
        for initializer in messages(graph, 5)? {
            let (name, tensor) = tensor(initializer)?;
            tensors.insert(name, tensor);
        }
    }
    Some(tensors)
}

fn tensor(message: &[u8]) -> Option<(&str, Tensor<'_>)> {
    let mut tensor = Tensor::default();
    let mut name = "";
    for field in fields(message)? {
        match field {
            (1, Value::Number(size)) => tensor.shape.push(usize::try_from(size).ok()?),
            (1, Value::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    tensor.shape.push(usize::try_from(varint(&mut packed)?).ok()?);
                }
            }
            (2, Value::Number(data_type)) => tensor.data_type = data_type,
            (8, Value::Bytes(bytes)) => name = str::from_utf8(bytes).ok()?,
            (9, Value::Bytes(bytes)) => tensor.data = bytes,
            _ => {}
        }
    }
    Some((name, tensor))
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The messages in field `number`.
fn messages(message: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let messages = fields(message)?.into_iter().filter_map(|field| match field {
        (n, Value::Bytes(bytes)) if n == number => Some(bytes),
        _ => None,
    });
    Some(messages.collect())
}

/// All fields of a message, by number.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => Value::Bytes(message.split_off(..8)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Value::Bytes(message.split_off(..length)?)
            }
            5 => Value::Bytes(message.split_off(..4)?),
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
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
            assert_eq!(tensors["weight"].shape, [2, 1]);
            assert_eq!(tensors["weight"].values(), Some(vec![1.5, -2.0]));
        }
    }

    #[test]
    fn refuses_values_of_another_type_or_number() {
        for (dims, data_type) in [([1 << 3, 2], 10), ([1 << 3, 3], 1)] {
            let file = model(&two_by_one(&dims, data_type));
            assert_eq!(initializers(&file).expect("a whole file")["weight"].values(), None);
        }
    }

    #[test]
    fn a_cut_file_is_no_file() {
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
}
