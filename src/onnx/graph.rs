//! The graph of a model in ONNX form, and parts of it: the nodes that lead from some of its values to others, as a model
//! of their own.
//!
//! Source of the format: `onnx.proto3` of onnx/onnx (`ModelProto`, `GraphProto`, `NodeProto`, `ValueInfoProto`), in the
//! encoding of protocol buffers.

use std::collections::{HashMap, HashSet};

/// Fields of `ModelProto`.
const MODEL_GRAPH: u64 = 7;
/// Fields of `GraphProto`.
const GRAPH_NODE: u64 = 1;
const GRAPH_NAME: u64 = 2;
const GRAPH_INITIALIZER: u64 = 5;
const GRAPH_INPUT: u64 = 11;
const GRAPH_OUTPUT: u64 = 12;
/// Fields of `NodeProto`.
const NODE_INPUT: u64 = 1;
const NODE_OUTPUT: u64 = 2;
const NODE_NAME: u64 = 3;
const NODE_OPERATOR: u64 = 4;
/// Field of `TensorProto`.
const TENSOR_NAME: u64 = 8;
/// Fields of `ValueInfoProto`.
const VALUE_NAME: u64 = 1;
const VALUE_TYPE: u64 = 2;
/// Fields of `TypeProto` and `TypeProto.Tensor`.
const TYPE_TENSOR: u64 = 1;
const TENSOR_ELEMENT: u64 = 1;
/// The wire type of strings and messages.
const DELIMITED: u64 = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("the file is no model in ONNX form")]
    Malformed,
    #[error("the model has no value `{0}`")]
    Missing(String),
}

/// The type of a value's elements: its number in `TensorProto.DataType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    Float = 1,
    Integer = 7,
}

/// A model's graph, which borrows the model's bytes.
pub struct Graph<'m> {
    /// The model's fields but the graph, with their keys.
    rest: Vec<&'m [u8]>,
    name: Option<&'m [u8]>,
    nodes: Vec<Node<'m>>,
    /// By name, with their keys.
    initializers: HashMap<&'m str, &'m [u8]>,
    inputs: HashMap<&'m str, &'m [u8]>,
}

struct Node<'m> {
    /// With its key.
    whole: &'m [u8],
    content: &'m [u8],
    operator: &'m str,
    inputs: Vec<&'m str>,
    outputs: Vec<&'m str>,
}

impl<'m> Graph<'m> {
    /// Reads a model.
    ///
    /// # Errors
    /// [`GraphError::Malformed`].
    pub fn read(model: &'m [u8]) -> Result<Self, GraphError> {
        let (mut rest, mut graph) = (Vec::new(), None);
        for field in fields(model) {
            let field = field?;
            if field.number == MODEL_GRAPH { graph = Some(field.content) } else { rest.push(field.whole) }
        }
        let mut found = Self {
            rest,
            name: None,
            nodes: Vec::new(),
            initializers: HashMap::new(),
            inputs: HashMap::new(),
        };
        for field in fields(graph.ok_or(GraphError::Malformed)?) {
            let field = field?;
            match field.number {
                GRAPH_NODE => found.nodes.push(Node {
                    whole: field.whole,
                    content: field.content,
                    operator: names(field.content, NODE_OPERATOR)?.pop().unwrap_or_default(),
                    inputs: names(field.content, NODE_INPUT)?,
                    outputs: names(field.content, NODE_OUTPUT)?,
                }),
                GRAPH_NAME => found.name = Some(field.whole),
                GRAPH_INITIALIZER => {
                    let name = names(field.content, TENSOR_NAME)?.pop().ok_or(GraphError::Malformed)?;
                    found.initializers.insert(name, field.whole);
                }
                GRAPH_INPUT => {
                    let name = names(field.content, VALUE_NAME)?.pop().ok_or(GraphError::Malformed)?;
                    found.inputs.insert(name, field.whole);
                }
                // Outputs are given anew; known shapes of values and notes on quantization help nothing here.
                _ => {}
            }
        }
        Ok(found)
    }

    /// The model that computes `outputs` from `inputs` and from those inputs of the whole model that it needs. Their shapes
    /// are left open.
    ///
    /// # Errors
    /// [`GraphError::Missing`].
    pub fn part(
        &self,
        inputs: &[(&str, Element)],
        outputs: &[(&str, Element)],
    ) -> Result<Vec<u8>, GraphError> {
        self.part_with(inputs, outputs, None).map(|(part, _)| part)
    }

    /// As [`Self::part`]; the results of its nodes of one operator, such as `ReduceMean`, can be given from outside. For each
    /// there is an input `given:NAME`, and an output `own:NAME` behind `outputs`, in the order of the names that are
    /// returned. The input [`WEIGHT`] is the share of what is given: 0 leaves all as it was.
    ///
    /// # Errors
    /// [`GraphError::Missing`].
    pub fn open_part(
        &self,
        inputs: &[(&str, Element)],
        outputs: &[(&str, Element)],
        operator: &str,
    ) -> Result<(Vec<u8>, Vec<String>), GraphError> {
        self.part_with(inputs, outputs, Some(operator))
    }

    fn part_with(
        &self,
        inputs: &[(&str, Element)],
        outputs: &[(&str, Element)],
        opened: Option<&str>,
    ) -> Result<(Vec<u8>, Vec<String>), GraphError> {
        let makers: HashMap<&str, usize> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(index, node)| node.outputs.iter().map(move |name| (*name, index)))
            .collect();
        let mut nodes = vec![false; self.nodes.len()];
        let (mut tensors, mut sources) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        let mut wanted: Vec<&str> = outputs.iter().map(|(name, _)| *name).collect();
        while let Some(name) = wanted.pop() {
            // An input that a node leaves out has an empty name.
            if name.is_empty() || inputs.iter().any(|(given, _)| *given == name) || !seen.insert(name) {
                continue;
            }
            if let Some(tensor) = self.initializers.get(name) {
                tensors.push(*tensor);
            } else if let Some(input) = self.inputs.get(name) {
                sources.push(*input);
            } else {
                let maker = *makers.get(name).ok_or_else(|| GraphError::Missing(name.to_owned()))?;
                if let (Some(needed), Some(node)) = (nodes.get_mut(maker), self.nodes.get(maker)) {
                    *needed = true;
                    wanted.extend(&node.inputs);
                }
            }
        }
        let mut graph = self.name.unwrap_or_default().to_vec();
        let mut names = Vec::new();
        for (node, _) in self.nodes.iter().zip(nodes).filter(|(_, is_needed)| *is_needed) {
            match node.outputs.as_slice() {
                [name] if opened == Some(node.operator) => {
                    graph.extend(node.opened(name)?);
                    names.push((*name).to_owned());
                }
                _ => graph.extend(node.whole),
            }
        }
        if !names.is_empty() {
            graph.extend(value(GRAPH_INPUT, WEIGHT, Element::Float));
        }
        tensors.into_iter().chain(sources).for_each(|field| graph.extend(field));
        inputs.iter().for_each(|(name, element)| graph.extend(value(GRAPH_INPUT, name, *element)));
        outputs.iter().for_each(|(name, element)| graph.extend(value(GRAPH_OUTPUT, name, *element)));
        for name in &names {
            graph.extend(value(GRAPH_INPUT, &given(name), Element::Float));
            graph.extend(value(GRAPH_OUTPUT, &own(name), Element::Float));
        }
        let mut model = self.rest.concat();
        model.extend(delimited(MODEL_GRAPH, &graph));
        Ok((model, names))
    }
}

/// The input that says how much of what is given counts, 0 to 1, in a model of [`Graph::open_part`].
pub const WEIGHT: &str = "weight";

/// The input for the value `name`.
pub fn given(name: &str) -> String {
    format!("given:{name}")
}

fn own(name: &str) -> String {
    format!("own:{name}")
}

impl Node<'_> {
    /// The node under another name for its result, and nodes that make the result `name` of it and of what is given:
    /// `own + (given - own) * weight`.
    fn opened(&self, name: &str) -> Result<Vec<u8>, GraphError> {
        let own = own(name);
        let mut same = Vec::new();
        for field in fields(self.content) {
            let field = field?;
            match field.number {
                NODE_OUTPUT => same.extend(delimited(NODE_OUTPUT, own.as_bytes())),
                _ => same.extend(field.whole),
            }
        }
        let [apart, part] = ["apart:", "part:"].map(|prefix| format!("{prefix}{name}"));
        Ok([
            delimited(GRAPH_NODE, &same),
            made("Sub", [&given(name), &own], &apart),
            made("Mul", [&apart, WEIGHT], &part),
            made("Add", [&own, &part], name),
        ]
        .concat())
    }
}

/// A node of an operator with two operands.
fn made(operator: &str, inputs: [&str; 2], output: &str) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|name| delimited(NODE_INPUT, name.as_bytes())).collect();
    node.extend(delimited(NODE_OUTPUT, output.as_bytes()));
    node.extend(delimited(NODE_NAME, output.as_bytes()));
    node.extend(delimited(NODE_OPERATOR, operator.as_bytes()));
    delimited(GRAPH_NODE, &node)
}

/// A field of a message.
struct Field<'m> {
    number: u64,
    /// With its key.
    whole: &'m [u8],
    /// Of a string or message; empty for numbers.
    content: &'m [u8],
}

fn fields(message: &[u8]) -> impl Iterator<Item = Result<Field<'_>, GraphError>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let read = field(rest);
        rest = read.as_ref().map_or(&[][..], |(_, others)| others);
        Some(read.map(|(field, _)| field).ok_or(GraphError::Malformed))
    })
}

/// The first field of `message`, and the rest.
fn field(message: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (key, after) = number(message)?;
    let (content, rest) = match key & 7 {
        0 => (&[][..], number(after)?.1),
        1 => (&[][..], after.get(8..)?),
        DELIMITED => {
            let (length, after) = number(after)?;
            after.split_at_checked(usize::try_from(length).ok()?)?
        }
        5 => (&[][..], after.get(4..)?),
        _ => return None,
    };
    let whole = message.get(..message.len() - rest.len())?;
    Some((Field { number: key >> 3, whole, content }, rest))
}

/// A number of variable length.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// The strings in the fields of this number.
fn names(message: &[u8], wanted: u64) -> Result<Vec<&str>, GraphError> {
    let mut found = Vec::new();
    for field in fields(message) {
        let field = field?;
        if field.number == wanted {
            found.push(std::str::from_utf8(field.content).map_err(|_| GraphError::Malformed)?);
        }
    }
    Ok(found)
}

fn put_number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn delimited(number: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 16);
    put_number(&mut bytes, number << 3 | DELIMITED);
    put_number(&mut bytes, content.len() as u64);
    bytes.extend(content);
    bytes
}

/// A `ValueInfoProto` without a shape, as field `number` of a graph.
fn value(number: u64, name: &str, element: Element) -> Vec<u8> {
    let mut tensor = Vec::new();
    put_number(&mut tensor, TENSOR_ELEMENT << 3);
    put_number(&mut tensor, element as u64);
    let kind = delimited(VALUE_TYPE, &delimited(TYPE_TENSOR, &tensor));
    delimited(number, &[delimited(VALUE_NAME, name.as_bytes()), kind].concat())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(inputs: &[&str], output: &str) -> Vec<u8> {
        let mut node: Vec<u8> =
            inputs.iter().flat_map(|name| delimited(NODE_INPUT, name.as_bytes())).collect();
        node.extend(delimited(NODE_OUTPUT, output.as_bytes()));
        delimited(GRAPH_NODE, &node)
    }

    /// `x` and the weight `w` make `a`; `a` and the input `y` make `b`; `b` makes `c`.
    fn model() -> Vec<u8> {
        let graph = [
            node(&["x", "w"], "a"),
            node(&["a", "", "y"], "b"),
            node(&["b"], "c"),
            delimited(GRAPH_INITIALIZER, &delimited(TENSOR_NAME, b"w")),
            value(GRAPH_INPUT, "x", Element::Float),
            value(GRAPH_INPUT, "y", Element::Float),
            value(GRAPH_OUTPUT, "c", Element::Float),
        ];
        // Version 8 of the format, in front.
        [vec![8, 8], delimited(MODEL_GRAPH, &graph.concat())].concat()
    }

    fn parts(model: &[u8]) -> (Vec<String>, Vec<String>, Vec<String>) {
        let graph = Graph::read(model).expect("a model");
        let sorted = |names: Vec<&&str>| {
            let mut names: Vec<String> = names.into_iter().map(|name| (*name).to_owned()).collect();
            names.sort();
            names
        };
        (
            graph.nodes.iter().map(|node| node.outputs.concat()).collect(),
            sorted(graph.initializers.keys().collect()),
            sorted(graph.inputs.keys().collect()),
        )
    }

    #[test]
    fn a_part_has_what_it_needs_and_no_more() {
        let model = model();
        let graph = Graph::read(&model).expect("a model");
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let front = graph.part(&[], &[("a", Element::Float)]).expect("a part");
        assert_eq!(parts(&front), (own(&["a"]), own(&["w"]), own(&["x"])));
        let back = graph.part(&[("a", Element::Float)], &[("c", Element::Float)]).expect("a part");
        assert_eq!(parts(&back), (own(&["b", "c"]), own(&[]), own(&["a", "y"])));
        assert!(back.starts_with(&[8, 8]));
        let missing = graph.part(&[], &[("d", Element::Float)]);
        assert_eq!(missing, Err(GraphError::Missing("d".into())));
    }

    #[test]
    fn results_of_an_operator_can_be_given() {
        let graph = [
            made("Max", ["x", "y"], "a"),
            made("Min", ["a", "x"], "b"),
            value(GRAPH_INPUT, "x", Element::Float),
            value(GRAPH_INPUT, "y", Element::Float),
        ];
        let model = delimited(MODEL_GRAPH, &graph.concat());
        let graph = Graph::read(&model).expect("a model");
        let (part, names) = graph.open_part(&[], &[("b", Element::Float)], "Max").expect("a part");
        let (nodes, _, inputs) = parts(&part);
        assert_eq!(names, ["a"]);
        assert_eq!(nodes, ["own:a", "apart:a", "part:a", "a", "b"]);
        assert_eq!(inputs, ["given:a", WEIGHT, "x", "y"]);
        let (same, none) = graph.open_part(&[], &[("b", Element::Float)], "Sin").expect("a part");
        assert!(none.is_empty() && same == graph.part(&[], &[("b", Element::Float)]).expect("a part"));
    }

    #[test]
    fn a_model_that_is_cut_short_is_no_model() {
        let model = model();
        let outcomes = (0..model.len()).map(|end| Graph::read(&model[..end]).is_err());
        assert_eq!(outcomes.filter(|is_refused| *is_refused).count(), model.len());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(graph) = Graph::read(&bytes) {
                let _ = graph.part(&[], &[("a", Element::Float)]);
            }
        }
    }
}
