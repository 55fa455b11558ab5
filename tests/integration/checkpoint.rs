//! A tiny Whisper with random weights, written in both layouts that are read.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

const WIDTH: usize = 128;
const HEADS: usize = 2;
const LAYERS: usize = 2;
const BANDS: usize = 80;
const AUDIO_POSITIONS: usize = 1500;
const TEXT_POSITIONS: usize = 448;
/// 256 bytes, then the special tokens, then 1501 timestamps.
const SPECIALS: [&str; 9] = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
];
pub const VOCABULARY: usize = 256 + SPECIALS.len() + 1501;

struct Tensor {
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// Adds a tensor: name, shape, range, centre.
type Add<'a> = dyn FnMut(String, &[usize], f32, f32) + 'a;

/// Weights by their transformers name.
pub struct Checkpoint(BTreeMap<String, Tensor>);

impl Checkpoint {
    /// The same seed gives the same weights.
    pub fn random(seed: u64) -> Self {
        let mut state = seed;
        let mut uniform = move || {
            // SplitMix64 (Steele, Lea and Flood, 2014).
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize], scale: f32, offset: f32| {
            let values = (0..shape.iter().product()).map(|_| uniform() * scale + offset).collect();
            tensors.insert(name, Tensor { shape: shape.to_vec(), values });
        };
        let norm = |add: &mut Add, name: String| {
            add(format!("{name}.weight"), &[WIDTH], 0.2, 1.0);
            add(format!("{name}.bias"), &[WIDTH], 0.2, 0.0);
        };
        let linear = |add: &mut Add, name: String, out: usize, input: usize| {
            add(format!("{name}.weight"), &[out, input], 0.3, 0.0);
            // As in the real model, keys have no bias.
            if !name.ends_with("k_proj") {
                add(format!("{name}.bias"), &[out], 0.2, 0.0);
            }
        };
        add("encoder.conv1.weight".into(), &[WIDTH, BANDS, 3], 0.3, 0.0);
        add("encoder.conv1.bias".into(), &[WIDTH], 0.2, 0.0);
        add("encoder.conv2.weight".into(), &[WIDTH, WIDTH, 3], 0.3, 0.0);
        add("encoder.conv2.bias".into(), &[WIDTH], 0.2, 0.0);
        add("encoder.embed_positions.weight".into(), &[AUDIO_POSITIONS, WIDTH], 1.0, 0.0);
        add("decoder.embed_positions.weight".into(), &[TEXT_POSITIONS, WIDTH], 1.0, 0.0);
        add("decoder.embed_tokens.weight".into(), &[VOCABULARY, WIDTH], 1.0, 0.0);
        for side in ["encoder", "decoder"] {
            norm(&mut add, format!("{side}.layer_norm"));
            for layer in 0..LAYERS {
                let layer = format!("{side}.layers.{layer}");
                let mut attentions = vec!["self_attn"];
                if side == "decoder" {
                    attentions.push("encoder_attn");
                }
                for attention in attentions {
                    norm(&mut add, format!("{layer}.{attention}_layer_norm"));
                    for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                        linear(&mut add, format!("{layer}.{attention}.{projection}"), WIDTH, WIDTH);
                    }
                }
                norm(&mut add, format!("{layer}.final_layer_norm"));
                linear(&mut add, format!("{layer}.fc1"), 4 * WIDTH, WIDTH);
                linear(&mut add, format!("{layer}.fc2"), WIDTH, 4 * WIDTH);
            }
        }
        // Text likelier than the many timestamps together, so that the model talks.
        if let Some(embedding) = tensors.get_mut("decoder.embed_tokens.weight") {
            embedding.values[..256 * WIDTH].iter_mut().for_each(|value| *value *= 3.0);
        }
        Self(tensors)
    }

    pub fn write_hugging_face(&self, folder: &Path) {
        write_tokenizer(folder);
        write_json(
            &folder.join("config.json"),
            &json!({"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS,
                    "suppress_tokens": unreadable()}),
        );
        let bytes: BTreeMap<String, (Vec<usize>, Vec<u8>)> = self
            .0
            .iter()
            .map(|(name, tensor)| {
                (format!("model.{name}"), (tensor.shape.clone(), little_endian(&tensor.values)))
            })
            .collect();
        let views = bytes.iter().map(|(name, (shape, bytes))| {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
            (name.as_str(), view.expect("the bytes fit the shape"))
        });
        safetensors::serialize_to_file(views, None, &folder.join("model.safetensors")).expect("written");
    }

    /// `int8`: matrices of the layers are quantised by row, as CTranslate2's converter does.
    pub fn write_ctranslate2(&self, folder: &Path, int8: bool) {
        write_tokenizer(folder);
        write_json(&folder.join("config.json"), &json!({"suppress_ids": unreadable()}));
        let mut variables: Vec<Variable> = Vec::new();
        let mut put = |name: &str, tensor: &Tensor| variables.push(Variable::f32(name, tensor));
        put("encoder/position_encodings/encodings", &self.0["encoder.embed_positions.weight"]);
        put("decoder/position_encodings/encodings", &self.0["decoder.embed_positions.weight"]);
        put("decoder/embeddings/weight", &self.0["decoder.embed_tokens.weight"]);
        for conv in ["conv1", "conv2"] {
            for part in ["weight", "bias"] {
                put(&format!("encoder/{conv}/{part}"), &self.0[&format!("encoder.{conv}.{part}")]);
            }
        }
        let mut put_norm = |name: &str, source: &str| {
            put(&format!("{name}/gamma"), &self.0[&format!("{source}.weight")]);
            put(&format!("{name}/beta"), &self.0[&format!("{source}.bias")]);
        };
        for side in ["encoder", "decoder"] {
            put_norm(&format!("{side}/layer_norm"), &format!("{side}.layer_norm"));
            for layer in 0..LAYERS {
                let (to, from) = (format!("{side}/layer_{layer}"), format!("{side}.layers.{layer}"));
                put_norm(&format!("{to}/self_attention/layer_norm"), &format!("{from}.self_attn_layer_norm"));
                put_norm(&format!("{to}/ffn/layer_norm"), &format!("{from}.final_layer_norm"));
                if side == "decoder" {
                    put_norm(
                        &format!("{to}/attention/layer_norm"),
                        &format!("{from}.encoder_attn_layer_norm"),
                    );
                }
            }
        }
        for side in ["encoder", "decoder"] {
            for layer in 0..LAYERS {
                let (to, from) = (format!("{side}/layer_{layer}"), format!("{side}.layers.{layer}"));
                let mut linears = vec![
                    ("self_attention/linear_0", "self_attn", &["q_proj", "k_proj", "v_proj"][..]),
                    ("self_attention/linear_1", "self_attn", &["out_proj"]),
                    ("ffn/linear_0", "", &["fc1"]),
                    ("ffn/linear_1", "", &["fc2"]),
                ];
                if side == "decoder" {
                    linears.extend([
                        ("attention/linear_0", "encoder_attn", &["q_proj"][..]),
                        ("attention/linear_1", "encoder_attn", &["k_proj", "v_proj"]),
                        ("attention/linear_2", "encoder_attn", &["out_proj"]),
                    ]);
                }
                for (name, block, parts) in linears {
                    let (weight, bias) = self.fused(&format!("{from}.{block}"), parts);
                    let name = format!("{to}/{name}");
                    variables.push(Variable::f32(&format!("{name}/bias"), &bias));
                    if int8 {
                        variables.extend(Variable::int8(&format!("{name}/weight"), &weight));
                    } else {
                        variables.push(Variable::f32(&format!("{name}/weight"), &weight));
                    }
                }
            }
            variables.push(Variable {
                name: format!("{side}/num_heads"),
                shape: vec![],
                kind: 2,
                data: (HEADS as i16).to_le_bytes().to_vec(),
            });
        }
        write_model_bin(&folder.join("model.bin"), &variables);
    }

    fn fused(&self, block: &str, parts: &[&str]) -> (Tensor, Tensor) {
        let mut weight = Tensor { shape: vec![0, 0], values: Vec::new() };
        let mut bias = Tensor { shape: vec![0], values: Vec::new() };
        for part in parts {
            let prefix = format!("{}.{part}", block.trim_end_matches('.'));
            let source = &self.0[&format!("{prefix}.weight")];
            let outputs = source.shape[0];
            weight.shape = vec![weight.shape[0] + outputs, source.shape[1]];
            weight.values.extend(&source.values);
            bias.shape[0] += outputs;
            match self.0.get(&format!("{prefix}.bias")) {
                Some(tensor) => bias.values.extend(&tensor.values),
                None => bias.values.extend(std::iter::repeat_n(0.0, outputs)),
            }
        }
        (weight, bias)
    }
}

struct Variable {
    name: String,
    shape: Vec<usize>,
    kind: u8,
    data: Vec<u8>,
}

impl Variable {
    fn f32(name: &str, tensor: &Tensor) -> Self {
        Self { name: name.into(), shape: tensor.shape.clone(), kind: 0, data: little_endian(&tensor.values) }
    }

    /// The quantised matrix and its scale: value = int8 / scale.
    fn int8(name: &str, tensor: &Tensor) -> [Self; 2] {
        let mut scales = Vec::new();
        let mut data = Vec::new();
        for row in tensor.values.chunks_exact(tensor.shape[1]) {
            let scale = 127.0 / row.iter().fold(0.0f32, |max, value| max.max(value.abs()));
            data.extend(row.iter().map(|value| (value * scale).round() as i8 as u8));
            scales.push(scale);
        }
        let scale = Tensor { shape: vec![scales.len()], values: scales };
        [
            Self { name: name.into(), shape: tensor.shape.clone(), kind: 1, data },
            Self::f32(&format!("{name}_scale"), &scale),
        ]
    }
}

fn write_model_bin(path: &Path, variables: &[Variable]) {
    let mut bytes = Vec::new();
    let string = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u16 + 1).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.push(0);
    };
    bytes.extend(6u32.to_le_bytes());
    string(&mut bytes, "WhisperSpec");
    bytes.extend(3u32.to_le_bytes());
    bytes.extend((variables.len() as u32).to_le_bytes());
    for variable in variables {
        string(&mut bytes, &variable.name);
        bytes.push(variable.shape.len() as u8);
        variable.shape.iter().for_each(|&length| bytes.extend((length as u32).to_le_bytes()));
        bytes.push(variable.kind);
        bytes.extend((variable.data.len() as u32).to_le_bytes());
        bytes.extend(&variable.data);
    }
    bytes.extend(1u32.to_le_bytes());
    string(&mut bytes, "decoder/projection/weight");
    string(&mut bytes, "decoder/embeddings/weight");
    std::fs::write(path, bytes).expect("written");
}

/// All byte tokens except lower-case letters and the space: the remaining ones read as text.
fn unreadable() -> Vec<u8> {
    (0..=u8::MAX).filter(|byte| !matches!(byte, b'a'..=b'z' | b' ')).collect()
}

fn write_tokenizer(folder: &Path) {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = '\u{100}'..;
    let vocabulary: serde_json::Map<String, serde_json::Value> = (0..=u8::MAX)
        .map(|byte| {
            let stand_in = if printable(&byte) { char::from(byte) } else { others.next().expect("endless") };
            (stand_in.to_string(), json!(byte))
        })
        .collect();
    let added: Vec<_> = SPECIALS
        .iter()
        .enumerate()
        .map(|(index, content)| {
            json!({"id": 256 + index, "content": content, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    write_json(
        &folder.join("tokenizer.json"),
        &json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
                "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
                "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                          "end_of_word_suffix": null, "fuse_unk": false, "vocab": vocabulary, "merges": []}}),
    );
}

fn write_json(path: &Path, value: &serde_json::Value) {
    std::fs::write(path, value.to_string()).expect("written");
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
