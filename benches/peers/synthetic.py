#!/usr/bin/env python3
"""The speed of PyTorch with random weights of a model's shape: the peers of `verbatim bench --synthetic`.

    synthetic.py --model large-v3 --tokens 100 [--device cuda] [--batches 8,16,32,64,128] [--kinds loop,transformers]
                 [--seconds 60] [--json FILE]

`transformers` is generate() as it is, `transformers-static` with a static cache and compiled
(mode="reduce-overhead", the leaderboard's recipe), `loop` a loop written for this: static caches, fused
projections, scaled-dot-product attention, and on CUDA a step as one graph that chooses the next token, too. All
decode greedily, exactly as many tokens as asked for; of a range of tokens a batch waits for its longest. Features
are there before the clock starts, which ours makes of samples. The best batch of each is the one to compare with.
Batches grow until one is slower by a tenth, does not fit in memory, or would not be done within --seconds (of each kind).
A line of JSON for each batch; the file gets all of them. The exit status is 77 if torch or transformers is not installed.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

try:
    import torch
    import torch.nn.functional as functional
except ImportError as error:
    print(f"torch is not installed: {error}")
    sys.exit(77)

# Name: width, layers of encoder and decoder, bands, vocabulary. As `Shape` in src/models/weights/random.rs.
SHAPES = {
    "tiny": (384, 4, 4, 80, 51865),
    "base": (512, 6, 6, 80, 51865),
    "small": (768, 12, 12, 80, 51865),
    "medium": (1024, 24, 24, 80, 51865),
    "large-v3": (1280, 32, 32, 128, 51866),
    "large-v3-turbo": (1280, 32, 4, 128, 51866),
}
WINDOW_SECONDS, FRAMES, AUDIO, TEXT, PROMPT = 30, 3000, 1500, 448, 4
END_OF_TEXT = 50257


def lengths(tokens: str, batch: int) -> list:
    """A batch's tokens: all the same, or evenly spread over a range."""
    low, _, high = tokens.partition("-")
    low, high = int(low), int(high or low)
    if batch == 1:
        return [(low + high) // 2]
    return [low + (high - low) * n // (batch - 1) for n in range(batch)]


class Loop:
    """The strongest plain loop: nothing is allocated or launched one by one in a step."""

    def __init__(self, shape: tuple, device: str, dtype: torch.dtype):
        self.width, encoder, decoder, self.bands, self.vocabulary = shape
        self.heads, self.device, self.dtype = self.width // 64, device, dtype
        width = self.width
        self.conv1, self.conv2 = self.random(width, self.bands, 3), self.random(width, width, 3)
        self.places, self.positions = self.random(AUDIO, width), self.random(TEXT, width)
        self.embedding = self.random(self.vocabulary, width)
        block = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width)}
        cross = {"query": (width, width), "key_value": (2 * width, width), "cross_out": (width, width)}
        self.encoder = [self.layer(block) for _ in range(encoder)]
        self.decoder = [self.layer(block | cross) for _ in range(decoder)]

    def random(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, device=self.device, dtype=self.dtype) * 0.02

    def layer(self, sizes: dict) -> dict:
        return {name: (self.random(*size), self.random(size[0])) for name, size in sizes.items()}

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (self.width,))

    def split(self, x: torch.Tensor, parts: int) -> list:
        """(batch, length, parts · d) to parts of (batch, heads, length, 64)."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, self.heads, 64).permute(2, 0, 3, 1, 4).unbind(0)

    def join(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], self.width)

    def feed_forward(self, layer: dict, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(functional.linear(self.norm(x), *layer["up"]))
        return x + functional.linear(hidden, *layer["down"])

    def encode(self, features: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(functional.conv1d(features, self.conv1, padding=1))
        x = functional.gelu(functional.conv1d(x, self.conv2, stride=2, padding=1)).transpose(1, 2) + self.places
        for layer in self.encoder:
            query, key, value = self.split(functional.linear(self.norm(x), *layer["qkv"]), 3)
            attended = functional.scaled_dot_product_attention(query, key, value)
            x = self.feed_forward(layer, x + functional.linear(self.join(attended), *layer["out"]))
        return self.norm(x)

    def prepare(self, batch: int) -> None:
        """Buffers, and on CUDA the graph of a step."""
        self.graph = self.text = self.audio = None
        if self.device == "cuda":
            # What the last batch held is room for this one.
            torch.cuda.empty_cache()
        cache = (len(self.decoder), 2, batch, self.heads)
        self.text = torch.zeros(*cache, TEXT, 64, device=self.device, dtype=self.dtype)
        self.audio = torch.zeros(*cache, AUDIO, 64, device=self.device, dtype=self.dtype)
        self.token = torch.zeros(batch, 1, dtype=torch.long, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.columns = torch.arange(TEXT, device=self.device)
        if self.device != "cuda":
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def fill(self, states: torch.Tensor) -> None:
        for index, layer in enumerate(self.decoder):
            for cache, made in zip(self.audio[index], self.split(functional.linear(states, *layer["key_value"]), 2)):
                cache.copy_(made)

    def step(self) -> None:
        """The token at `position` of every row, to the one after it."""
        x = self.embedding[self.token] + self.positions[self.position]
        seen = (self.columns <= self.position).view(1, 1, 1, TEXT)
        for index, layer in enumerate(self.decoder):
            query, key, value = self.split(functional.linear(self.norm(x), *layer["qkv"]), 3)
            keys, values = self.text[index]
            keys.index_copy_(2, self.position, key)
            values.index_copy_(2, self.position, value)
            attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=seen)
            x = x + functional.linear(self.join(attended), *layer["out"])
            (query,) = self.split(functional.linear(self.norm(x), *layer["query"]), 1)
            attended = functional.scaled_dot_product_attention(query, *self.audio[index])
            x = x + functional.linear(self.join(attended), *layer["cross_out"])
            x = self.feed_forward(layer, x)
        logits = functional.linear(self.norm(x), self.embedding)
        logits[..., END_OF_TEXT] = -torch.inf
        self.token.copy_(logits.argmax(-1))
        self.position += 1

    def run(self, features: torch.Tensor, tokens: int) -> None:
        batch = features.shape[0]
        if getattr(self, "batch", None) != batch:
            self.batch = batch
            self.prepare(batch)
        self.fill(self.encode(features))
        self.position.zero_()
        # A prompt token costs a step: four of a hundred.
        for _ in range(PROMPT - 1 + tokens):
            self.graph.replay() if self.graph else self.step()
        self.token.tolist()


class Transformers:
    def __init__(self, shape: tuple, device: str, dtype: torch.dtype, static: bool):
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        width, encoder, decoder, self.bands, vocabulary = shape
        config = WhisperConfig(
            vocab_size=vocabulary, num_mel_bins=self.bands, d_model=width, encoder_layers=encoder,
            decoder_layers=decoder, encoder_attention_heads=width // 64, decoder_attention_heads=width // 64,
            encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, attn_implementation="sdpa")
        # Random numbers are drawn on the device: a processor takes a quarter of a minute for the largest.
        with torch.device(device):
            model = WhisperForConditionalGeneration(config)
        self.model = model.to(device, dtype).eval()
        self.device, self.options = device, {}
        if static:
            self.options = {"cache_implementation": "static"}
            self.model.forward = torch.compile(self.model.forward, mode="reduce-overhead", fullgraph=True)

    def run(self, features: torch.Tensor, tokens: int) -> None:
        from transformers import GenerationMixin

        prompt = torch.full((features.shape[0], PROMPT), END_OF_TEXT + 1, device=self.device)
        # Whisper's own generate() asks a generation config for languages and timestamps, and ends in this one.
        GenerationMixin.generate(
            self.model, input_features=features, decoder_input_ids=prompt, do_sample=False, num_beams=1,
            min_new_tokens=tokens, max_new_tokens=tokens, eos_token_id=END_OF_TEXT, pad_token_id=0,
            **self.options)


KINDS = {
    "loop": Loop,
    "transformers": lambda *model: Transformers(*model, static=False),
    "transformers-static": lambda *model: Transformers(*model, static=True),
}


def measure(peer, kind: str, options: argparse.Namespace, batch: int) -> dict:
    dtype = getattr(torch, options.dtype)
    features = torch.randn(batch, peer.bands, FRAMES, device=options.device, dtype=dtype)
    of_batch = lengths(options.tokens, batch)
    times = []
    for _ in range(options.rounds + 1):
        begun = time.perf_counter()
        peer.run(features, max(of_batch))
        if options.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    # The first loads, compiles and captures.
    wall = sorted(times[1:])[len(times[1:]) // 2]
    return {"kind": kind, "model": options.model, "device": options.device, "dtype": options.dtype,
            "tokens": options.tokens, "batch": batch, "seconds": wall, "windows_per_second": batch / wall,
            "rtfx": WINDOW_SECONDS * batch / wall, "tokens_per_second": sum(of_batch) / wall}


def search(kind: str, options: argparse.Namespace, results: list) -> None:
    """The kind's batches, each appended to `results` and written at once."""
    begun, best, last = time.monotonic(), 0.0, 0.0
    with torch.inference_mode():
        peer = KINDS[kind](SHAPES[options.model], options.device, getattr(torch, options.dtype))
        for batch in map(int, options.batches.split(",")):
            # Twice the batch takes up to twice as long.
            if last and time.monotonic() - begun + 2 * last > options.seconds:
                print(f"{kind}: no time for a batch of {batch}", file=sys.stderr)
                return
            at = time.monotonic()
            try:
                result = measure(peer, kind, options, batch)
            except torch.OutOfMemoryError as error:
                print(f"{kind}, batch {batch}: {error}", file=sys.stderr)
                return
            last = time.monotonic() - at
            results.append(result)
            print(json.dumps(result), flush=True)
            write(options, results)
            if result["rtfx"] < 0.9 * best:
                return
            best = max(best, result["rtfx"])


def write(options: argparse.Namespace, results: list) -> None:
    if options.json:
        whole = options.json.with_name(options.json.name + ".part")
        whole.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1) + "\n")
        os.replace(whole, options.json)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="base")
    parser.add_argument("--tokens", default="100", help="a number, or a range such as 20-220")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--batches", default="1,8,16,32,64,128")
    parser.add_argument("--kinds", default="loop,transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for the batches of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results: list = []
    for kind in options.kinds.split(","):
        try:
            search(kind, options, results)
        except ImportError as error:
            print(f"{kind}: {error}")
            return 77
        if found := [result for result in results if result["kind"] == kind]:
            best = max(found, key=lambda result: result["rtfx"])
            print(f"{kind}: {best['rtfx']:.0f} times real time at its best batch, {best['batch']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
