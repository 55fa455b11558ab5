#!/usr/bin/env python3
"""Made speech whose words lie at known times: the synthetic voice of `./setup voice`, and how long it makes each symbol.

    spoken_words.py FOLDER [--sentences FILE] [--voices FILE…] [--takes 2] [--seed 1]

FOLDER gets WAV files of 40 to 60 s at 16 kHz, each with one voice, sentences in a random order and silence of 0.3 to
2.5 s between them; each again with pink noise 10 dB below; and `words.jsonl`, with a line for each file: `file`,
`condition` (clean or noise), `voice`, and `words` (text, start, end; in seconds).

A sentence is a line of `word[symbols]` with the punctuation after it; the symbols are Kokoro's, by misaki's dictionary.

Where a word lies is what the model says of itself: the durations that its predictor gives the symbols, in frames of 600
samples at 24 kHz, three frames earlier, with a space's half on either side. That is `KPipeline.join_timestamps` of
hexgrad/kokoro (Apache-2.0). Beside silence the signal decides, because the model stretches the symbols there: a word
ends where the level falls 40 dB below that of speech, and begins where it rises above it.

Needs onnx, onnxruntime, numpy, scipy and av.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from scipy.signal import resample_poly

from audio import RATE, write
from sounds import coloured, level

HERE = Path(__file__).parent
MODELS = HERE.parent / ".verbatim" / "models" / "kokoro"
SENTENCES = HERE / "spoken_words.txt"

VOICE_RATE = 24_000
FRAME = 600
EARLIER = 3  # Frames by which the signal runs ahead of the durations.
DURATIONS = "/encoder/Clip_output_0"  # The predictor's, rounded: a tensor within the graph.
HOP = VOICE_RATE // 200  # 5 ms
SILENCE = VOICE_RATE // 10  # A shorter silence is a part of speech: the closure of a stop.
# The noise, below speech. No room is silent.
DECIBELS = {"clean": 50, "noise": 10}


class Voice:
    """The model, in one voice."""

    def __init__(self, model: Path, styles: Path):
        graph = onnx.load(model)
        graph.graph.output.append(onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
        self.name = styles.stem
        self.styles = np.fromfile(styles, "<f4").reshape(510, 256)
        self.numbers = symbol_numbers()

    def speak(self, sentence: list[tuple[str, str, str]]) -> tuple[np.ndarray, list[list]]:
        """At 16 kHz, and the words' times in it. A sentence is made of words, their symbols, and punctuation."""
        symbols, ranges = "", []
        for _, sounds, punctuation in sentence:
            start = len(symbols) + (1 if symbols else 0)
            symbols += (" " if symbols else "") + sounds
            ranges.append((start, len(symbols)))
            symbols += punctuation
        tokens = np.array([[0, *(self.numbers[symbol] for symbol in symbols), 0]])
        inputs = {"tokens": tokens, "style": self.styles[len(symbols) - 1][None], "speed": np.ones(1, np.float32)}
        sound, durations = self.session.run(None, inputs)
        sound, frames = sound.ravel(), durations.ravel()[:len(symbols) + 2]
        if len(sound) != frames.sum() * FRAME:
            raise RuntimeError("these durations are not the sound's")
        ends = np.cumsum(frames)[:-1] - EARLIER  # Entry n: where symbol n begins.
        lengths = frames[1:]
        times = []
        for start, end in ranges:
            before = lengths[start - 1] / 2 if start and symbols[start - 1] == " " else 0.0
            after = lengths[end] / 2 if end < len(symbols) and symbols[end] == " " else 0.0
            times.append([(ends[start] - before) * FRAME, (ends[end] + after) * FRAME])
        beside_silence(sound, times)
        words = [[word, *(float(at) / VOICE_RATE for at in span)] for (word, _, _), span in zip(sentence, times)]
        return resample_poly(sound, RATE, VOICE_RATE), words


def beside_silence(sound: np.ndarray, times: list[list[float]]) -> None:
    """Moves the times beside silence to its edges."""
    hops = sound[:len(sound) // HOP * HOP].reshape(-1, HOP)
    loudness = np.sqrt((hops**2).mean(1))
    is_silent = loudness < np.percentile(loudness, 95) / 100
    edges = np.flatnonzero(np.diff(np.concatenate([[0], is_silent, [0]]))).reshape(-1, 2) * HOP
    for start, end in edges.tolist():
        if start == 0:
            times[0][0] = float(end)
        elif end == len(hops) * HOP:
            times[-1][1] = float(start)
        elif end - start >= SILENCE:
            for before, after in zip(times, times[1:]):
                if before[1] - SILENCE < end and start < after[0] + SILENCE:
                    before[1], after[0] = float(start), float(end)
                    break


def symbol_numbers() -> dict[str, int]:
    """As the server has them."""
    source = (HERE.parent / "src" / "speech" / "kokoro.rs").read_text()
    table = source[source.index("const SYMBOLS:"):]
    found = re.findall(r"\('(?:\\u\{(\w+)\}|(.))', (\d+)\)", table[:table.index("];")])
    return {chr(int(code, 16)) if code else symbol: int(number) for code, symbol, number in found}


def read_sentences(path: Path) -> list[list[tuple[str, str, str]]]:
    lines = path.read_text().splitlines()
    return [re.findall(r"([^\s\[]+)\[([^\]]+)\](\S*)", line) for line in lines if line.strip()]


def make(folder: Path, sentences: Path, voices: list[Path], takes: int, seed: int) -> list[dict]:
    """The files that do not exist yet, and the lines of all."""
    manifest = folder / "words.jsonl"
    if manifest.is_file():
        return [json.loads(line) for line in manifest.read_text().splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    said, lines = read_sentences(sentences), []
    for number, styles in enumerate(voices):
        voice = Voice(styles.parent / "model.onnx" if (styles.parent / "model.onnx").is_file()
                      else MODELS / "model.onnx", styles)
        spoken = [voice.speak(sentence) for sentence in said]
        chance = np.random.default_rng([seed, number])
        files: list[tuple[list, list]] = []
        for _ in range(takes):
            parts, words, length = [], [], 0
            for index in chance.permutation(len(spoken)):
                silence = np.zeros(int(chance.uniform(0.3, 2.5) * RATE))
                sound, times = spoken[index]
                parts += [silence, sound]
                at = (length + len(silence)) / RATE
                words += [[word, at + start, at + end] for word, start, end in times]
                length += len(silence) + len(sound)
                if length > 45 * RATE:
                    files.append((parts, words))
                    parts, words, length = [], [], 0
            if length > 20 * RATE:
                files.append((parts, words))
        for take, (parts, words) in enumerate(files):
            sound = np.concatenate([*parts, np.zeros(RATE // 2)])
            sound = sound * (0.25 / np.abs(sound).max())
            loud = np.sqrt((sound[np.abs(sound) > 0.001]**2).mean())
            noise = coloured(chance, len(sound), 0.5)
            for condition, decibels in DECIBELS.items():
                name = f"{voice.name}-{take}-{condition}.wav"
                write(folder / name, sound + level(noise, loud * 10 ** (-decibels / 20)))
                rounded = [[word, round(start, 4), round(end, 4)] for word, start, end in words]
                lines.append({"file": name, "condition": condition, "voice": voice.name, "words": rounded})
    manifest.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    add_options(parser)
    options = parser.parse_args()
    make(options.folder, options.sentences, voices(options), options.takes, options.seed)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentences", type=Path, default=SENTENCES)
    parser.add_argument("--voices", type=Path, nargs="+", help="files of Kokoro's; without, those of ./setup voice")
    parser.add_argument("--takes", type=int, default=2, help="of all sentences, in each voice")
    parser.add_argument("--seed", type=int, default=1)


def voices(options) -> list[Path]:
    return options.voices or sorted(MODELS.glob("*.bin"))


if __name__ == "__main__":
    main()
