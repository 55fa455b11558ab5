//! One launch of the decoder: its kernels and products, in order.

use tch::Tensor;

use super::kept::Kept;
use super::network::{self, Layer, Network, Norm, Weight};
use crate::cuda::{ATTENTION_SPLIT, Address, Argument, Error, Kernel, Product, Queue};
use crate::models::whisper::bias::NODES_MAX;

/// Enqueues a launch of `rows` rows: embeddings, layers, logits, the next tokens.
pub fn enqueue(network: &Network, queue: &dyn Queue, rows: usize) -> Result<(), Error> {
    let launch = Launch { network, queue, rows, at: Addresses::of(network) };
    launch.embed()?;
    let mut before = (Address::NULL, Address::NULL);
    for layer in &network.layers {
        launch.add_norm(before, &layer.attention_norm)?;
        launch.text_attention(layer)?;
        launch.add_norm((launch.at.product, layer.output.bias), &layer.cross_norm)?;
        launch.cross_attention(layer)?;
        launch.add_norm((launch.at.product, layer.cross_output.bias), &layer.feed_forward_norm)?;
        launch.feed_forward(layer)?;
        before = (launch.at.product, layer.contract.bias);
    }
    launch.add_norm(before, &network.norm)?;
    launch.choose()
}

struct Launch<'a> {
    network: &'a Network,
    queue: &'a dyn Queue,
    rows: usize,
    at: Addresses,
}

/// The addresses of the network's buffers.
struct Addresses {
    rows: Address,
    states: Address,
    tries: Address,
    gains: Address,
    lengths: Address,
    positions: Address,
    x: Address,
    input: Address,
    product: Address,
    parts: Address,
    logits: Address,
    outcomes: Address,
    suppressed: Address,
    /// Null if no scores are kept.
    kept: Address,
}

impl Addresses {
    fn of(network: &Network) -> Self {
        // SAFETY: tensors of the network, which the decoder drops after its device; they are made contiguous, with
        // the sizes and types that the kernels below are called with.
        let address = |tensor: &Tensor| unsafe { network::address(tensor) };
        let buffers = &network.buffers;
        Self {
            rows: address(&buffers.rows),
            states: address(&buffers.states),
            tries: address(&buffers.tries),
            gains: address(&buffers.gains),
            lengths: address(&buffers.lengths),
            positions: address(&buffers.positions),
            x: address(&buffers.x),
            input: address(&buffers.input),
            product: address(&buffers.product),
            parts: address(&buffers.parts),
            logits: address(&buffers.logits),
            outcomes: address(&buffers.outcomes),
            suppressed: address(&network.suppressed),
            kept: network.kept.as_ref().map_or(Address::NULL, Kept::scores_address),
        }
    }
}

impl Launch<'_> {
    /// The last norm's output times `weight`.
    fn multiply(&self, weight: &Weight) -> Result<(), Error> {
        let &Weight { weight, inputs, outputs, .. } = weight;
        let Addresses { input: x, product: out, .. } = self.at;
        let room = self.network.rows_max;
        self.queue.multiply(Product { weight, x, out, rows: self.rows, room, inputs, outputs })
    }

    /// Adds the last product and its bias to the residual and normalises it for the next product.
    fn add_norm(&self, (product, bias): (Address, Address), norm: &Norm) -> Result<(), Error> {
        let arguments = [
            self.at.positions.into(),
            self.at.x.into(),
            product.into(),
            bias.into(),
            norm.gamma.into(),
            norm.beta.into(),
            self.network.width.into(),
            self.at.input.into(),
        ];
        self.queue.launch(Kernel::AddNorm, [self.rows, 1, 1], &arguments)
    }

    fn embed(&self) -> Result<(), Error> {
        let network = self.network;
        let arguments = [
            self.at.rows.into(),
            self.at.states.into(),
            network.embedding.into(),
            network.positions.into(),
            network.width.into(),
            network.vocabulary.into(),
            network.text_positions.into(),
            self.at.positions.into(),
            self.at.x.into(),
        ];
        self.queue.launch(Kernel::Embed, [self.rows, 1, 1], &arguments)
    }

    fn text_attention(&self, layer: &Layer) -> Result<(), Error> {
        let heads = self.network.heads;
        self.multiply(&layer.query_key_value)?;
        let arguments = [
            self.at.rows.into(),
            self.at.positions.into(),
            self.at.product.into(),
            layer.query_key_value.bias.into(),
            heads.into(),
            self.network.text_positions.into(),
            layer.text_keys.into(),
            layer.text_values.into(),
            self.at.input.into(),
        ];
        self.queue.launch(Kernel::TextAttention, [self.rows, heads, 1], &arguments)?;
        self.multiply(&layer.output)
    }

    /// Attention to the audio: over parts of it, which are then joined.
    fn cross_attention(&self, layer: &Layer) -> Result<(), Error> {
        let (heads, audio_positions) = (self.network.heads, self.network.audio_positions);
        let splits = audio_positions.div_ceil(ATTENTION_SPLIT);
        self.multiply(&layer.cross_query)?;
        let mut arguments = vec![
            self.at.rows.into(),
            self.at.positions.into(),
            self.at.product.into(),
            layer.cross_query.bias.into(),
            heads.into(),
            audio_positions.into(),
            self.at.lengths.into(),
            layer.audio_keys.into(),
            layer.audio_values.into(),
            layer.kept_heads.into(),
            self.network.kept.as_ref().map_or(0, |kept| kept.heads).into(),
            self.at.kept.into(),
        ];
        arguments.extend(layer.audio_scales.into_iter().flatten().map(Argument::from));
        arguments.push(self.at.parts.into());
        let kernel = match layer.audio_scales {
            Some(_) => Kernel::CrossAttentionFp8,
            None => Kernel::CrossAttention,
        };
        self.queue.launch(kernel, [self.rows, heads, splits], &arguments)?;
        let join = [self.at.positions.into(), self.at.parts.into(), splits.into(), self.at.input.into()];
        self.queue.launch(Kernel::CrossJoin, [self.rows, heads, 1], &join)?;
        self.multiply(&layer.cross_output)
    }

    fn feed_forward(&self, layer: &Layer) -> Result<(), Error> {
        let wide = layer.expand.outputs;
        self.multiply(&layer.expand)?;
        let gelu = [
            self.at.positions.into(),
            self.at.product.into(),
            layer.expand.bias.into(),
            wide.into(),
            self.at.input.into(),
        ];
        self.queue.launch(Kernel::BiasGelu, [self.rows, wide.div_ceil(1024), 1], &gelu)?;
        self.multiply(&layer.contract)
    }

    /// The logits, and the tokens that follow from them.
    fn choose(&self) -> Result<(), Error> {
        let Network { embedding: weight, width: inputs, vocabulary: outputs, table, .. } = self.network;
        let (weight, inputs, outputs) = (*weight, *inputs, *outputs);
        let Addresses { input: x, logits: out, .. } = self.at;
        let room = self.network.rows_max;
        self.queue.multiply(Product { weight, x, out, rows: self.rows, room, inputs, outputs })?;
        let arguments = [
            self.at.rows.into(),
            self.at.positions.into(),
            self.at.logits.into(),
            self.at.suppressed.into(),
            outputs.into(),
            table.end_of_text.into(),
            table.timestamp_begin.into(),
            table.initial_timestamp_max.into(),
            table.no_speech.into(),
            self.network.text_positions.into(),
            self.at.tries.into(),
            NODES_MAX.into(),
            self.at.gains.into(),
            self.at.states.into(),
            self.at.outcomes.into(),
        ];
        self.queue.launch(Kernel::Choose, [self.rows, 1, 1], &arguments)
    }
}
