#!/usr/bin/env python3
"""How far the times of words are from where they were said, in speech that `spoken_words.py` made.

    word_boundaries.py FOLDER --server URL --key KEY [--live] [--faster-whisper MODEL…]

Only words that were recognised as they were said count. In the table, in milliseconds:

start, end  median and 95th percentile of the distance between the word's true start or end and the one given
late        median of given minus true: how much too late
200         % of starts and ends that are more than 200 ms off
missed      % of words that were said and not recognised
overlaps    words that begin before the one before them ends
inversions  words that end before they begin, or begin before the one before them begins

With --live also over `wss /v1/listen`, as fast as the server takes it. With --faster-whisper the same files go to that
package in this process (`word_timestamps`, greedy, f32), with each MODEL: a name or a folder. With --stable-ts also to
stable-ts, with the weights of FILE (openai.pt of peers/convert.py) and the alignment heads of NAME, as in `base=openai.pt`.

With --pocketsphinx the words of POST are aligned once more by an acoustic model of phones, as WhisperX does with another one:
PocketSphinx, whose package holds its English model. A phrase with a word that its dictionary lacks has no times then.

Needs what live.py needs.
"""

import argparse
import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import live
from audio import RATE, samples
from door import Door, percentile
from scoring import matched

Words = list[tuple[str, float, float]]
# Phrases end at pauses of so many seconds, and are aligned with so many around them.
PAUSE, AROUND = 0.25, 0.15
HEADINGS = ["start", "p95", "late", "end", "p95", "late", "200", "missed", "overlaps", "inversions"]


@dataclass
class Errors:
    """Given minus true, in seconds."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    said: int = 0
    overlaps: int = 0
    inversions: int = 0

    def add(self, true: Words, given: Words) -> None:
        self.said += len(true)
        for (_, start, end), (_, given_start, given_end) in matched(true, given):
            self.starts.append(given_start - start)
            self.ends.append(given_end - end)
        self.inversions += sum(end < start for _, start, end in given)
        for (_, before, until), (_, start, _) in zip(given, given[1:]):
            # A time has a millisecond, or the rounding of one.
            self.overlaps += start < until - 0.0015
            self.inversions += start < before

    def figures(self) -> list[float]:
        row = []
        for errors in (self.starts, self.ends):
            distances = [abs(error) for error in errors]
            row += [1000 * percentile(distances, 0.5), 1000 * percentile(distances, 0.95), 1000 * percentile(errors, 0.5)]
        far = sum(abs(error) > 0.2 for error in self.starts + self.ends)
        row += [100 * far / max(1, 2 * len(self.starts)), 100 * (1 - len(self.starts) / max(1, self.said))]
        return [*(round(value, 1) for value in row), self.overlaps, self.inversions]


def over_post(options) -> Callable[[Path], Words]:
    door = Door(options.server, options.key)

    def hear(path: Path) -> Words:
        answer, _ = door.listen_patiently(path.read_bytes(), words=True, language="en")
        if answer.status != 200:
            raise RuntimeError(f"{path.name}: {answer.status} {answer.body[:200].decode(errors='replace')}")
        return answer.words()

    return hear


def over_live(options) -> Callable[[Path], Words]:
    asked = SimpleNamespace(server=options.server, key=options.key, chunk_ms=100, silence=1.0, pace=0, refused=0,
                            query="interim_results=false")
    return lambda path: asyncio.run(live.patiently(asked, samples(path), "en")).words


def faster_whisper(model: str, threads: int) -> Callable[[Path], Words]:
    from faster_whisper import WhisperModel

    loaded = WhisperModel(model, device="cpu", compute_type="float32", cpu_threads=threads)

    def hear(path: Path) -> Words:
        segments, _ = loaded.transcribe(str(path), language="en", beam_size=1, temperature=0.0, word_timestamps=True,
                                        condition_on_previous_text=False)
        return [(word.word, word.start, word.end) for segment in segments for word in segment.words]

    return hear


def stable_ts(model: str, threads: int) -> Callable[[Path], Words]:
    import stable_whisper
    import torch
    import whisper

    torch.set_num_threads(threads)
    name, _, file = model.partition("=")
    loaded = stable_whisper.load_model(file, device="cpu")
    loaded.set_alignment_heads(whisper._ALIGNMENT_HEADS[name])

    def hear(path: Path) -> Words:
        result = loaded.transcribe(str(path), language="en", temperature=0.0, condition_on_previous_text=False,
                                   fp16=False, verbose=None)
        return [(word.word, word.start, word.end) for segment in result.segments for word in segment.words]

    return hear


def pocketsphinx(transcribe: Callable[[Path], Words]) -> Callable[[Path], Words]:
    """The words of `transcribe`, aligned phrase by phrase."""
    from pocketsphinx import Decoder

    decoder = Decoder(samprate=RATE, bestpath=False, loglevel="FATAL")

    def aligned(phrase: Words, sound: bytes) -> Words:
        names = [re.sub(r"[^a-z']", "", word.lower()) for word, _, _ in phrase]
        if any(not name or decoder.lookup_word(name) is None for name in names):
            return []
        begin, end = max(0.0, phrase[0][1] - AROUND), phrase[-1][2] + AROUND
        decoder.set_align_text(" ".join(names))
        decoder.start_utt()
        decoder.process_raw(sound[2 * int(begin * RATE):2 * int(end * RATE)], full_utt=True)
        decoder.end_utt()
        found = [each for each in decoder.seg() or [] if re.sub(r"\(\d+\)$", "", each.word) in names]
        if len(found) != len(phrase):
            return []
        return [(word, begin + each.start_frame / 100, begin + (each.end_frame + 1) / 100)
                for (word, _, _), each in zip(phrase, found)]

    def hear(path: Path) -> Words:
        sound, words = samples(path), transcribe(path)
        starts = [at for at in range(len(words)) if at == 0 or words[at][1] - words[at - 1][2] > PAUSE]
        phrases = [words[at:until] for at, until in zip(starts, [*starts[1:], len(words)])]
        return [word for phrase in phrases for word in aligned(phrase, sound)]

    return hear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of spoken_words.py")
    parser.add_argument("--server", metavar="URL")
    parser.add_argument("--key")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--faster-whisper", nargs="*", default=[], metavar="MODEL")
    parser.add_argument("--stable-ts", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--pocketsphinx", action="store_true", help="needs --server")
    parser.add_argument("--threads", type=int, default=2, help="of faster-whisper and stable-ts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the words of all")
    options = parser.parse_args()
    files = [json.loads(line) for line in (options.folder / "words.jsonl").read_text().splitlines()]
    systems = {}
    if options.server:
        systems["POST"] = over_post(options)
        if options.live:
            systems["live"] = over_live(options)
        if options.pocketsphinx:
            systems["POST, PocketSphinx"] = pocketsphinx(over_post(options))
    systems |= {f"faster-whisper {Path(model).name}": faster_whisper(model, options.threads)
                for model in options.faster_whisper}
    systems |= {f"stable-ts {model.partition('=')[0]}": stable_ts(model, options.threads) for model in options.stable_ts}
    print(f"{'':<28}" + "".join(f"{heading:>11}" for heading in HEADINGS))
    heard = {}
    for name, hear in systems.items():
        given = heard[name] = {file["file"]: hear(options.folder / file["file"]) for file in files}
        for condition in sorted({file["condition"] for file in files}):
            errors = Errors()
            for file in files:
                if file["condition"] == condition:
                    errors.add(file["words"], given[file["file"]])
            print(f"{name + ', ' + condition:<28}" + "".join(f"{value:>11}" for value in errors.figures()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(heard))


if __name__ == "__main__":
    main()
