#!/usr/bin/env python3
"""A CTranslate2 Whisper folder in the formats that the other peers read, so that all have the same weights.

    convert.py FOLDER TARGET     writes TARGET/openai.pt, TARGET/ggml.bin and the folder TARGET/transformers

Needs torch, openai-whisper (for its filters and vocabulary) and transformers. The multilingual models only.
"""

import argparse
import base64
import json
import struct
from pathlib import Path

import numpy as np

TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
GGML_MAGIC, GGML_F32, GGML_F16 = 0x67676D6C, 0, 1


def read_ctranslate2(file: Path) -> dict[str, np.ndarray]:
    """Variables of `model.bin`, binary version 6 (CTranslate2 python/ctranslate2/specs/model_spec.py)."""
    data, at = file.read_bytes(), 0

    def take(form: str):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text() -> str:
        return take(f"{take('H')}s").rstrip(b"\0").decode()

    if take("I") != 6:
        raise ValueError("not binary version 6")
    text(), take("I")
    variables = {}
    for _ in range(take("I")):
        name, shape = text(), [take("I") for _ in range(take("B"))]
        kind, size = take("BI")
        variables[name] = np.frombuffer(data, TYPES[kind], offset=at, count=size // TYPES[kind]().itemsize)
        variables[name] = variables[name].reshape(shape)
        at += size
    return variables


def openai_names(source: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same, named and cut as in openai/whisper's model.py."""
    found = {}

    def norm(theirs: str, ours: str) -> None:
        found[f"{ours}.weight"], found[f"{ours}.bias"] = source[f"{theirs}/gamma"], source[f"{theirs}/beta"]

    def linear(theirs: str, *ours: str) -> None:
        """Linears that CTranslate2 keeps as one; keys have no bias."""
        for kind in ("weight", "bias"):
            for name, part in zip(ours, np.split(source[f"{theirs}/{kind}"], len(ours))):
                if not (kind == "bias" and name.endswith(".key")):
                    found[f"{name}.{kind}"] = part

    def attention(theirs: str, ours: str, crossing: bool) -> None:
        norm(f"{theirs}/layer_norm", f"{ours}_ln")
        if crossing:
            linear(f"{theirs}/linear_0", f"{ours}.query")
            linear(f"{theirs}/linear_1", f"{ours}.key", f"{ours}.value")
        else:
            linear(f"{theirs}/linear_0", f"{ours}.query", f"{ours}.key", f"{ours}.value")
        linear(f"{theirs}/linear_{2 if crossing else 1}", f"{ours}.out")

    for side in ("encoder", "decoder"):
        found[f"{side}.positional_embedding"] = source[f"{side}/position_encodings/encodings"]
        norm(f"{side}/layer_norm", "encoder.ln_post" if side == "encoder" else "decoder.ln")
        layer = 0
        while f"{side}/layer_{layer}/ffn/linear_0/weight" in source:
            theirs, ours = f"{side}/layer_{layer}", f"{side}.blocks.{layer}"
            attention(f"{theirs}/self_attention", f"{ours}.attn", False)
            if side == "decoder":
                attention(f"{theirs}/attention", f"{ours}.cross_attn", True)
            norm(f"{theirs}/ffn/layer_norm", f"{ours}.mlp_ln")
            linear(f"{theirs}/ffn/linear_0", f"{ours}.mlp.0")
            linear(f"{theirs}/ffn/linear_1", f"{ours}.mlp.2")
            layer += 1
    for number in (1, 2):
        linear(f"encoder/conv{number}", f"encoder.conv{number}")
    found["decoder.token_embedding.weight"] = source["decoder/embeddings/weight"]
    return found


def dimensions(weights: dict[str, np.ndarray]) -> dict[str, int]:
    def layers(side: str) -> int:
        return len({name.split(".")[2] for name in weights if name.startswith(f"{side}.blocks.")})

    width = weights["encoder.positional_embedding"].shape[1]
    sizes = {"state": width, "head": width // 64}
    return ({"n_mels": weights["encoder.conv1.weight"].shape[1],
             "n_vocab": weights["decoder.token_embedding.weight"].shape[0],
             "n_audio_ctx": weights["encoder.positional_embedding"].shape[0], "n_audio_layer": layers("encoder"),
             "n_text_ctx": weights["decoder.positional_embedding"].shape[0], "n_text_layer": layers("decoder")}
            | {f"n_{side}_{name}": size for side in ("audio", "text") for name, size in sizes.items()})


def write_openai(weights, sizes, target: Path) -> None:
    import torch

    state = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()}
    torch.save({"dims": sizes, "model_state_dict": state}, target)


def write_ggml(weights, sizes, target: Path) -> None:
    """The layout of whisper.cpp's models/convert-pt-to-ggml.py, weights f16."""
    import whisper

    assets = Path(whisper.__file__).parent / "assets"
    filters = np.load(assets / "mel_filters.npz")[f"mel_{sizes['n_mels']}"].astype(np.float32)
    tokens = [base64.b64decode(line.split()[0]) for line in (assets / "multilingual.tiktoken").read_bytes().splitlines()
              if line.strip()]
    order = ("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx",
             "n_text_state", "n_text_head", "n_text_layer", "n_mels")
    with target.open("wb") as out:
        out.write(struct.pack("<12i", GGML_MAGIC, *(sizes[name] for name in order), GGML_F16))
        out.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        out.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            out.write(struct.pack("<i", len(token)) + token)
        for name, value in weights.items():
            if name in ("encoder.conv1.bias", "encoder.conv2.bias"):
                value = value.reshape(-1, 1)
            precise = value.ndim < 2 or name.endswith((".positional_embedding", "conv1.bias", "conv2.bias"))
            encoded = name.encode()
            out.write(struct.pack("<3i", value.ndim, len(encoded), GGML_F32 if precise else GGML_F16))
            out.write(struct.pack(f"<{value.ndim}i", *reversed(value.shape)) + encoded)
            out.write(np.ascontiguousarray(value, np.float32 if precise else np.float16).tobytes())


RENAMED = [("token_embedding.", "embed_tokens."), ("positional_embedding", "embed_positions.weight"),
           ("blocks.", "layers."), ("cross_attn_ln", "encoder_attn_layer_norm"), ("cross_attn.", "encoder_attn."),
           ("mlp_ln", "final_layer_norm"), ("mlp.0", "fc1"), ("mlp.2", "fc2"), ("ln_post", "layer_norm"),
           ("decoder.ln.", "decoder.layer_norm."), (".attn_ln", ".self_attn_layer_norm"), (".attn.", ".self_attn."),
           (".query.", ".q_proj."), (".key.", ".k_proj."), (".value.", ".v_proj."), (".out.", ".out_proj.")]


def write_transformers(weights, sizes, folder: Path, target: Path) -> None:
    import torch
    from transformers import (GenerationConfig, WhisperConfig, WhisperFeatureExtractor,
                              WhisperForConditionalGeneration, WhisperProcessor, WhisperTokenizerFast)

    state = {}
    for name, value in weights.items():
        for old, new in RENAMED:
            name = name.replace(old, new)
        state["model." + name] = torch.from_numpy(np.array(value, np.float32))
    state["proj_out.weight"] = state["model.decoder.embed_tokens.weight"]
    config = WhisperConfig(
        vocab_size=sizes["n_vocab"], num_mel_bins=sizes["n_mels"], d_model=sizes["n_audio_state"],
        encoder_layers=sizes["n_audio_layer"], decoder_layers=sizes["n_text_layer"],
        encoder_attention_heads=sizes["n_audio_head"], decoder_attention_heads=sizes["n_text_head"],
        encoder_ffn_dim=4 * sizes["n_audio_state"], decoder_ffn_dim=4 * sizes["n_text_state"],
        bos_token_id=50257, eos_token_id=50257, pad_token_id=50257, decoder_start_token_id=50258)
    model = WhisperForConditionalGeneration(config)
    model.load_state_dict(state)
    tokenizer = WhisperTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokens, own = tokenizer.get_vocab(), json.loads((folder / "config.json").read_text())
    model.generation_config = GenerationConfig(
        decoder_start_token_id=50258, eos_token_id=50257, pad_token_id=50257, bos_token_id=50257,
        no_timestamps_token_id=tokens["<|notimestamps|>"], prev_sot_token_id=tokens["<|startofprev|>"],
        task_to_id={task: tokens[f"<|{task}|>"] for task in ("transcribe", "translate")},
        lang_to_id={token: number for token, number in tokens.items() if number in own["lang_ids"]},
        suppress_tokens=own["suppress_ids"], begin_suppress_tokens=own["suppress_ids_begin"],
        is_multilingual=True, max_initial_timestamp_index=50, max_length=sizes["n_text_ctx"],
        return_timestamps=False)
    model.save_pretrained(target)
    WhisperProcessor(WhisperFeatureExtractor(feature_size=sizes["n_mels"]), tokenizer).save_pretrained(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    weights = openai_names(read_ctranslate2(options.folder / "model.bin"))
    sizes = dimensions(weights)
    write_openai(weights, sizes, options.target / "openai.pt")
    write_ggml(weights, sizes, options.target / "ggml.bin")
    write_transformers(weights, sizes, options.folder, options.target / "transformers")


if __name__ == "__main__":
    main()
