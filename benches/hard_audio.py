#!/usr/bin/env python3
"""Hard clips whose words are known, and sounds without speech, made from clips of clean speech.

    hard_audio.py MANIFEST FOLDER [--seed 1] [--clips 3]

MANIFEST has a JSON object in each line: `file` (beside it), `text`, `language`; lines of a `kind` other than
`truth` are passed over. FOLDER gets WAV files at 16 kHz and a manifest of its own. A clip's line there has
`condition`, `language` ("multi" where it changes), `text`, `duration`, and in `sentences` where each was
laid: `text`, `language`, `start`, `end`, and in `voice` the stretches within 30 dB of its loudest moment. The
same seed and clips give the same audio.

Conditions: clean, to compare with; hold, a sentence on both sides of 30 s of steady room noise; twice, each
sentence said again; quiet, sentences 16 dB down between loud ones; jingle, music before, between, after and
faintly under speech; room, an echo; pink, noise; phone, its band and mu-law; babble, a crowd; languages, English
that goes over into another language and back; sounds.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from audio import RATE, read, write
from sounds import band, coloured, level, repeated, telephone, without_speech

LEAST_PAUSE = 0.3  # A shorter pause does not part two stretches of voice.
# Languages without spaces are scored letter by letter: not together with English words.
WITHOUT_SPACES = {"ja", "zh", "th", "lo", "my", "yue"}
# Long enough for a sentence, short enough that several fit into a window of 30 s.
SHORTEST, LONGEST = 1.5, 20.0


@dataclass(frozen=True)
class Sentence:
    text: str
    language: str
    sound: np.ndarray
    voice: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> float:
        return len(self.sound) / RATE


def voiced(sound: np.ndarray, below: float = 30.0) -> tuple[tuple[float, float], ...]:
    """Stretches, in seconds, within so many decibels of the loudest 20 ms."""
    size = RATE // 50
    frames = sound[:len(sound) // size * size].reshape(-1, size)
    loudness = np.sqrt((frames**2).mean(1))
    stretches: list[list[float]] = []
    for number in np.flatnonzero(loudness > loudness.max() * 10 ** (-below / 20)):
        start, end = number / 50, (number + 1) / 50
        if stretches and start - stretches[-1][1] <= LEAST_PAUSE:
            stretches[-1][1] = end
        else:
            stretches.append([start, end])
    return tuple((start, end) for start, end in stretches if end - start >= 0.1)


class Scene:
    """Sentences and other sounds, one after the other."""

    def __init__(self):
        self.parts: list[np.ndarray] = []
        self.sentences: list[dict] = []
        self.length = 0

    def play(self, sound: np.ndarray) -> None:
        self.parts.append(sound)
        self.length += len(sound)

    def wait(self, seconds: float) -> None:
        self.play(np.zeros(int(seconds * RATE)))

    def say(self, sentence: Sentence, decibels: float = 0.0) -> None:
        at = self.length / RATE
        self.sentences.append({
            "text": sentence.text, "language": sentence.language, "start": round(at, 3),
            "end": round(at + sentence.seconds, 3),
            "voice": [[round(at + start, 2), round(at + end, 2)] for start, end in sentence.voice]})
        self.play(sentence.sound * 10 ** (decibels / 20))

    def sound(self) -> np.ndarray:
        return np.concatenate(self.parts)


class Maker:
    """One scene. It has no sentence twice by chance where there are enough of them."""

    def __init__(self, sentences: list[Sentence], seed: list[int]):
        self.chance = np.random.default_rng(seed)
        self.english = [sentence for sentence in sentences if sentence.language == "en"]
        self.others = [sentence for sentence in sentences
                       if sentence.language not in {"en"} | WITHOUT_SPACES and sentence.seconds >= 3]

    def choose(self, count: int) -> list[Sentence]:
        """English sentences."""
        orders = -(-count // len(self.english))
        chosen = [self.english[i] for _ in range(orders) for i in self.chance.permutation(len(self.english))]
        return chosen[:count]

    def spoken(self, pause: float = 1.2, sentences: list[Sentence] | None = None) -> Scene:
        scene = Scene()
        scene.wait(pause)
        for sentence in sentences or self.choose(5):
            scene.say(sentence)
            scene.wait(pause)
        return scene

    def under(self, scene: Scene, noise: np.ndarray, decibels: float) -> tuple[Scene, np.ndarray]:
        """With a sound that many decibels below speech."""
        return scene, scene.sound() + 0.1 * 10 ** (-decibels / 20) * repeated(noise, scene.length)

    def clean(self):
        scene = self.spoken()
        return scene, scene.sound()

    def hold(self):
        first, second = self.choose(2)
        scene = Scene()
        for sentence in (first, first, second):
            scene.say(sentence)
            scene.wait(30)
        # Steady, and 24 dB below the voice.
        return self.under(scene, coloured(self.chance, 60 * RATE, 0.5), 24)

    def twice(self):
        # Short ones share a window with their repeats and with their neighbours.
        short = sorted(self.choose(8), key=lambda sentence: sentence.seconds)
        scene = Scene()
        for sentence in (short[0], short[5], short[1], short[2]):
            scene.say(sentence)
            scene.wait(1.5)
            scene.say(sentence)
            scene.wait(4)
        return scene, scene.sound()

    def quiet(self):
        scene = Scene()
        for number, sentence in enumerate(self.choose(5)):
            scene.wait(0.8)
            scene.say(sentence, -16 if number % 2 else 0)
        scene.wait(0.8)
        return scene, scene.sound() + 2e-4 * self.chance.standard_normal(scene.length)

    def jingle(self):
        first, last, *middle = sorted(self.choose(5), key=lambda sentence: sentence.seconds)
        loud = self.chance.choice([0.05, 0.1, 0.25])
        scene = Scene()
        for sentences in ([first], middle, [last]):
            # Whoever speaks begins as the music ends.
            scene.play(loud * band(self.chance, int(self.chance.integers(2, 7)) * RATE))
            for sentence in sentences:
                scene.say(sentence)
                scene.wait(0.25)
        scene.play(loud * band(self.chance, 5 * RATE))
        # It goes on faintly under what is said.
        return self.under(scene, band(self.chance, 60 * RATE), 14)

    def room(self):
        scene = self.spoken()
        size = int(0.9 * RATE)
        echo = self.chance.standard_normal(size) * np.exp(-np.arange(size) / (0.13 * RATE))
        echo[0] = 6
        length = scene.length + size
        far = np.fft.irfft(np.fft.rfft(scene.sound(), length) * np.fft.rfft(echo, length), length)
        return scene, level(far[:scene.length], 0.06)

    def pink(self):
        return self.under(self.spoken(), coloured(self.chance, 60 * RATE, 0.5), 5)

    def babble(self):
        sentences = self.choose(11)
        crowd = sum(repeated(np.roll(sentence.sound, number * 7919), 60 * RATE)
                    for number, sentence in enumerate(sentences[5:]))
        return self.under(self.spoken(sentences=sentences[:5]), level(crowd, 1.0), 5)

    def phone(self):
        scene = self.spoken()
        return scene, telephone(self.chance, scene.sound())

    def languages(self):
        if not self.others:
            return None
        other = self.others[self.chance.integers(len(self.others))]
        alike = [sentence for sentence in self.others if sentence.language == other.language]
        scene = Scene()
        before, between, *after = self.choose(4)
        for sentence in [before, between, other, *alike[:3], other, *after]:
            scene.say(sentence)
            scene.wait(0.8)
        return scene, scene.sound()


CONDITIONS = ["clean", "hold", "twice", "quiet", "jingle", "room", "pink", "phone", "babble", "languages"]


def load(manifest: Path) -> list[Sentence]:
    sentences = []
    for line in manifest.read_text().splitlines():
        row = json.loads(line) if line.strip() else {}
        if row.get("kind", "truth") != "truth" or not row.get("text"):
            continue
        sound = level(read(manifest.parent / row["file"]), 0.1)
        if SHORTEST <= len(sound) / RATE <= LONGEST:
            sentences.append(Sentence(row["text"], row["language"], sound, voiced(sound)))
    return sentences


def make(sentences: list[Sentence], folder: Path, seed: int, clips: int = 3) -> list[dict]:
    """The lines of the manifest; what lies in the folder already is written again."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for place, condition in enumerate(CONDITIONS):
        for number in range(clips):
            # Each scene has a seed of its own: a change to one condition leaves the others as they are.
            maker = Maker(sentences, [seed, place, number])
            made = getattr(maker, condition)()
            if made is None:
                continue
            scene, sound = made
            name = f"{condition}_{number}.wav"
            write(folder / name, sound)
            lines.append({
                "file": name, "kind": "truth", "condition": condition,
                "language": "multi" if condition == "languages" else "en",
                "text": " ".join(sentence["text"] for sentence in scene.sentences),
                "duration": round(len(sound) / RATE, 3), "sentences": scene.sentences})
    for name, sound in without_speech(np.random.default_rng(seed)):
        write(folder / f"sound_{name}.wav", sound)
        lines.append({"file": f"sound_{name}.wav", "kind": "empty", "condition": "sounds", "language": "en", "text": "",
                      "duration": round(len(sound) / RATE, 3), "sentences": []})
    (folder / "manifest.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clips", type=int, default=3, help="of each condition")
    options = parser.parse_args()
    sentences = load(options.manifest)
    if sum(sentence.language == "en" for sentence in sentences) < 8:
        parser.error(f"fewer than eight English sentences of {SHORTEST:g} to {LONGEST:g} s in the manifest")
    lines = make(sentences, options.folder, options.seed, options.clips)
    print(f"{len(lines)} files, {sum(line['duration'] for line in lines):.0f} s in {options.folder}")


if __name__ == "__main__":
    main()
