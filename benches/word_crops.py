#!/usr/bin/env python3
"""Word times without true ones: speech is cut out by them, and whoever hears the cut must hear the same words.

    word_crops.py FOLDER --server URL --key KEY [--words 3] [--faster-whisper MODEL…] [--stable-ts NAME=FILE…]

FOLDER is one of `spoken_words.py`, whose true times are measured as well, or of any manifest of clips (see accuracy.py). Each system
times the words; so many in a row are cut out from the start of the first to the end of the last, put between silences of 0.5 s, and
heard by `POST /v1/listen` of the same server, whatever system the times are from. A time that lies too far inside of a word takes
a sound from it, and one too far outside adds one of its neighbour. In the table:

wrong        words wrong, % of those that were cut out
first, last  % of cuts whose first, or last, word is not heard as such
longer       % of cuts in which more words are heard than were cut out
cuts         cuts

A cut is harder to hear than a sentence: compare rows, not with other tables. The measure is that of
PalabraAI/forced-aligners-bench.

Needs what word_boundaries.py needs.
"""

import argparse
import io
import json
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jiwer
import numpy

from audio import RATE, read
from door import Door
from scoring import normal, read_lines
from word_boundaries import Words, faster_whisper, over_live, over_post, stable_ts

SILENCE = numpy.zeros(RATE // 2)


def wav(sound: numpy.ndarray) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(RATE)
        written.writeframes(numpy.round(sound * 32_767).astype("<i2").tobytes())
    return file.getvalue()


def cuts(sound: numpy.ndarray, words: Words, count: int) -> list[tuple[str, bytes]]:
    """The text and the sound of each `count` words in a row."""
    found = []
    for at in range(0, len(words) - count + 1, count):
        row = words[at:at + count]
        text = normal(" ".join(word for word, _, _ in row), "en")
        part = sound[int(row[0][1] * RATE):int(row[-1][2] * RATE)]
        # Words on both sides of a pause tell nothing about its length, and numbers are written in many ways.
        pauses = any(after[1] - before[2] > 0.3 for before, after in zip(row, row[1:]))
        if len(text.split()) == count and not pauses and not any(letter.isdigit() for letter in text) and len(part):
            found.append((text, wav(numpy.concatenate([SILENCE, part, SILENCE]))))
    return found


def figures(cut: list[tuple[str, bytes]], door: Door) -> list[float]:
    def hear(sound: bytes) -> str:
        answer, _ = door.listen_patiently(sound, language="en")
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.body[:200].decode(errors='replace')}")
        return normal(answer.alternative()["transcript"], "en")

    with ThreadPoolExecutor(2) as pool:
        heard = list(pool.map(hear, (sound for _, sound in cut)))
    pairs = [(text.split(), words.split()) for (text, _), words in zip(cut, heard)]
    wrong = jiwer.wer([text for text, _ in cut], heard)
    share = [sum(miss) / max(1, len(pairs)) for miss in (
        [text[:1] != words[:1] for text, words in pairs],
        [text[-1:] != words[-1:] for text, words in pairs],
        [len(words) > len(text) for text, words in pairs],
    )]
    return [round(100 * value, 1) for value in (wrong, *share)] + [len(cut)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--key", required=True)
    parser.add_argument("--words", type=int, default=3, help="in a cut")
    parser.add_argument("--kinds", nargs="+", default=["truth"], help="of the manifest")
    parser.add_argument("--clips", type=int, help="no more than so many")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--faster-whisper", nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--stable-ts", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--threads", type=int, default=2, help="of faster-whisper and stable-ts")
    options = parser.parse_args()
    known = options.folder / "words.jsonl"
    if known.exists():
        files = read_lines(known)
    else:
        rows = read_lines(options.folder / "manifest.jsonl")
        files = [row for row in rows if row["kind"] in options.kinds and row["language"] == "en"]
    files = files[:options.clips]
    systems = {"true times": None} if known.exists() else {}
    systems["POST"] = over_post(options)
    if options.live:
        systems["live"] = over_live(options)
    systems |= {f"faster-whisper {Path(model).name}": faster_whisper(model, options.threads)
                for model in options.faster_whisper}
    systems |= {f"stable-ts {model.partition('=')[0]}": stable_ts(model, options.threads) for model in options.stable_ts}
    door = Door(options.server, options.key)
    headings = ["wrong", "first", "last", "longer", "cuts"]
    print(f"{'':<28}" + "".join(f"{heading:>9}" for heading in headings))
    conditions = sorted({file.get("condition", "") for file in files})
    for name, hear in systems.items():
        for condition in conditions:
            cut = []
            for file in files:
                if file.get("condition", "") != condition:
                    continue
                path = options.folder / file["file"]
                words = hear(path) if hear else [tuple(word) for word in file["words"]]
                cut += cuts(read(path), words, options.words)
            row = figures(cut, door)
            print(f"{name + (', ' + condition) * bool(condition):<28}" + "".join(f"{value:>9}" for value in row), flush=True)


if __name__ == "__main__":
    main()
