#!/usr/bin/env python3
"""Conversations in which who speaks when is known, made from clips of single readers.

    conversations.py FOLDER MANIFEST... [--seed 1] [--scenes two-phone five-room] [--seconds 60 120] [--words FILE]

MANIFEST has a JSON object in each line: `file` (beside it), and who reads it: `reader`, else the name of a
synthetic voice in `source`, else a file name as LibriSpeech has it (READER-CHAPTER-NUMBER). Lines of which the
reader is not known are passed over. The readers of a conversation come from one kind of source, so that the
recording alone does not tell them apart. FILE has a clip's words with their times: `file`, and `words` as
[word, start, end].

FOLDER gets WAV files at 16 kHz, for each an RTTM file (pauses under 0.3 s belong to the turn, as do both
voices of an overlap), and a manifest: `scene`, `duration`, `speakers`, `overlap` (share of speech), `turns`
(speaker, start, end, the clip and where in it), `words` (word, start, end, speaker) where FILE has them. The
same seed and clips give the same audio.

Scenes: one to five readers, quiet, with noise, each in another place of a room, or on one telephone line.
`monologue` is one reader in a quiet room, as long as is asked, and is made only where it is named:
--scenes monologue --seconds 3600 3600. It has every clip of the reader many times where there are few.
"""

import argparse
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from audio import RATE, read, write
from sounds import coloured, level, repeated, telephone

PAUSE = 0.3  # A shorter pause does not end a turn in the truth.
CUT = 0.12  # A pause in which a clip can be cut without harm to a word.
LONGEST = 5.0  # Seconds; a phrase without such a pause is cut where it is quietest.
MARGIN = 0.05  # Around what is loud: the weak beginnings and ends of words.
FRAME = RATE // 100
LEAST = 10.0  # Seconds of speech that a reader must have,
SHARE = 0.3  # and the least share of what they say in a scene: the rest is said again.


@dataclass(frozen=True)
class Scene:
    readers: int
    overlap: float  # Share of turns that begin before the one before has ended.
    noise: float  # Decibels below speech.
    room: bool = False
    telephone: bool = False
    repeats: bool = False  # A reader may say the same over and over.


SCENES = {
    "one": Scene(1, 0, 25),
    "one-room": Scene(1, 0, 15, room=True),
    "two": Scene(2, 0.2, 25),
    "two-phone": Scene(2, 0.3, 20, telephone=True),
    "three-noise": Scene(3, 0.2, 10),
    "three-room": Scene(3, 0.3, 18, room=True),
    "four": Scene(4, 0.3, 20),
    "five-room": Scene(5, 0.25, 18, room=True),
    "monologue": Scene(1, 0, 25, room=True, repeats=True),
}


@dataclass(frozen=True)
class Clip:
    file: str
    sound: np.ndarray
    phrases: list[tuple[float, float]]
    words: list


def reader(row: dict) -> tuple[str, str] | None:
    """The kind of source, and who reads."""
    if "reader" in row:
        return row.get("group", "given"), str(row["reader"])
    if found := re.search(r"synthetic voice (\S+)", row.get("source", "")):
        return "synthetic", found[1]
    if found := re.search(r"(?:^|_)(\d+)-\d+-\d+\.", row["file"]):
        return "read", found[1]
    return None


def loud(sound: np.ndarray) -> list[tuple[float, float]]:
    """Stretches of speech in a clean clip, in seconds: 30 dB at most below its loud parts, and clear of its noise."""
    frames = sound[:len(sound) // FRAME * FRAME].reshape(-1, FRAME)
    power = np.convolve((frames**2).mean(1), np.ones(3) / 3, "same")
    decibels = 10 * np.log10(power + 1e-12)
    floor, top = np.percentile(decibels, [5, 95])
    above = decibels > max(top - 30, min(floor + 6, top - 12))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], above, [0]])))
    stretches = [(max(0, start / 100 - MARGIN), min(len(sound) / RATE, end / 100 + MARGIN))
                 for start, end in zip(edges[::2], edges[1::2])]
    phrases = [(start, end) for start, end in joined(stretches, CUT) if end - start >= 0.2]
    return [part for phrase in phrases for part in parted(phrase, np.convolve(power, np.ones(5), "same"))]


def parted(phrase: tuple[float, float], power: np.ndarray) -> list[tuple[float, float]]:
    start, end = phrase
    if end - start <= LONGEST:
        return [phrase]
    first, last = int((start + (end - start) / 3) * 100), int((end - (end - start) / 3) * 100)
    middle = (first + int(power[first:last].argmin()) + 0.5) / 100
    return parted((start, middle), power) + parted((middle, end), power)


def joined(stretches: list[tuple[float, float]], pause: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in stretches:
        if found and start - found[-1][1] < pause:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def load(manifests: list[Path], words: Path | None) -> dict[str, dict[str, list[Clip]]]:
    """Clips by kind of source and reader."""
    lines = words.read_text().splitlines() if words else []
    timed = {row["file"]: [word[:3] for word in row["words"]] for row in map(json.loads, lines)}
    groups: dict[str, dict[str, list[Clip]]] = defaultdict(lambda: defaultdict(list))
    for manifest in manifests:
        for row in map(json.loads, manifest.read_text().splitlines()):
            if (who := reader(row)) and row.get("kind", "truth") in ("truth", "agreement"):
                sound = level(read(manifest.parent / row["file"]), 0.05)
                clip = Clip(row["file"], sound, loud(sound), timed.get(row["file"], []))
                groups[who[0]][who[1]].append(clip)

    enough = {group: {name: clips for name, clips in readers.items() if speech({name: clips}) >= LEAST}
              for group, readers in groups.items()}
    return {group: readers for group, readers in enough.items() if readers}


def speech(readers: dict[str, list[Clip]]) -> float:
    """Seconds of it."""
    return sum(end - start for clips in readers.values() for clip in clips for start, end in clip.phrases)


class Reader:
    """One reader's turns: phrases that follow each other in a clip; all clips once, then again in another order."""

    def __init__(self, name: str, clips: list[Clip], chance: np.random.Generator):
        self.name, self.clips, self.chance = name, clips, chance
        self.waiting: list[Clip] = []
        self.clip, self.phrases = clips[0], []
        self.gain = 10 ** (chance.uniform(-4, 3) / 20)
        self.echo = echo(chance)
        self.until = 0.0

    def turn(self, seconds: float) -> tuple[Clip, list[tuple[float, float]]]:
        if not self.phrases:
            self.waiting = self.waiting or [self.clips[i] for i in self.chance.permutation(len(self.clips))]
            self.clip = self.waiting.pop()
            self.phrases = list(self.clip.phrases)
        taken = [self.phrases.pop(0)]
        while self.phrases and self.phrases[0][1] - taken[0][0] <= seconds:
            taken.append(self.phrases.pop(0))
        return self.clip, taken


def echo(chance: np.random.Generator) -> np.ndarray:
    """From a place of one's own in a room: the direct sound, then noise that falls by 60 dB in 0.2 to 0.5 s."""
    size = int(chance.uniform(0.2, 0.5) * RATE)
    tail = chance.uniform(0.04, 0.12) * chance.standard_normal(size) * np.exp(-6.9 * np.arange(size) / size)
    tail[0] = 1
    return tail / np.sqrt((tail**2).sum())


class Conversation:
    def __init__(self, scene: Scene, readers: dict[str, list[Clip]], seconds: float, chance: np.random.Generator):
        self.scene, self.chance = scene, chance
        self.sound = np.zeros(int((seconds + 60) * RATE))
        self.turns: list[dict] = []
        self.words: list[list] = []
        names = sorted(readers)
        chosen = [names[i] for i in chance.permutation(len(names))[:scene.readers]]
        self.readers = [Reader(name, readers[name], chance) for name in chosen]
        self.end, self.last = 0.5, None
        # Each speaks at least once.
        order = list(self.readers)
        while self.end < seconds:
            self.next(order.pop() if order else self.other() if chance.random() < 0.92 else self.last)
        self.sound = self.sound[:int((self.end + 0.8) * RATE)]
        self.surroundings()

    def other(self) -> Reader:
        others = [one for one in self.readers if one is not self.last] or self.readers
        return others[self.chance.integers(len(others))]

    def next(self, who: Reader) -> None:
        clip, phrases = who.turn(np.clip(self.chance.lognormal(1.2, 0.8), 0.8, 12))
        length = phrases[-1][1] - phrases[0][0]
        start = self.end + np.clip(self.chance.exponential(0.4), 0.05, 1.5)
        if self.last not in (None, who) and self.chance.random() < self.scene.overlap:
            if length < 1.5 and self.turns[-1]["end"] - self.turns[-1]["start"] > length + 1:
                # A word thrown in while another goes on.
                start = self.end - length - self.chance.uniform(0.3, 0.9)
            else:
                before = self.turns[-1]["end"] - self.turns[-1]["start"]
                start = self.end - self.chance.uniform(0.3, 1.8) * min(1, before / 2, length / 2)
        # Nobody talks over themselves.
        self.say(who, clip, phrases, max(0.3, who.until + 0.1, start))
        self.last = who

    def say(self, who: Reader, clip: Clip, phrases: list[tuple[float, float]], start: float) -> None:
        first, last = phrases[0][0], phrases[-1][1]
        sound = who.gain * clip.sound[int(first * RATE):int(last * RATE)]
        if self.scene.room:
            length = len(sound) + len(who.echo)
            sound = np.fft.irfft(np.fft.rfft(sound, length) * np.fft.rfft(who.echo, length), length)
        at = round(start * RATE)
        self.sound[at:at + len(sound)] += sound
        for a, b in joined(phrases, PAUSE):
            self.turns.append({"speaker": who.name, "start": round(start + a - first, 3), "end": round(start + b - first, 3),
                               "clip": clip.file, "from": round(a, 3), "to": round(b, 3)})
        self.words += [[word, round(start + a - first, 3), round(start + b - first, 3), who.name]
                       for word, a, b in clip.words if first <= (a + b) / 2 <= last]
        who.until = start + last - first
        self.end = max(self.end, who.until)

    def surroundings(self) -> None:
        noise = repeated(coloured(self.chance, 60 * RATE, self.chance.choice([0.4, 0.5, 0.7])), len(self.sound))
        spoken = np.sqrt((self.sound**2).mean())
        self.sound = self.sound + spoken * 10 ** (-self.scene.noise / 20) * noise
        self.sound *= self.chance.uniform(0.2, 0.6) / np.abs(self.sound).max()
        if self.scene.telephone:
            self.sound = telephone(self.chance, self.sound)

    def overlap(self) -> float:
        """Share of the time of speech in which two or more speak."""
        count = np.zeros(len(self.sound) // FRAME + 1)
        for turn in self.turns:
            count[int(turn["start"] * 100):int(turn["end"] * 100)] += 1
        return float((count > 1).sum() / (count > 0).sum())


def rttm(name: str, turns: list[dict]) -> str:
    """NIST's Rich Transcription Time Marked format (RT-09 evaluation plan, appendix A)."""
    return "".join(f"SPEAKER {name} 1 {turn['start']:.3f} {turn['end'] - turn['start']:.3f} <NA> <NA> "
                   f"{turn['speaker']} <NA> <NA>\n" for turn in turns)


def make(groups: dict, folder: Path, seed: int, scenes: list[str], seconds: tuple[float, float]) -> list[dict]:
    """The lines of the manifest; what lies in the folder already is written again."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name in scenes:
        # Each scene has a seed of its own: another choice of scenes leaves it as it is.
        chance = np.random.default_rng([seed, list(SCENES).index(name)])
        scene = SCENES[name]
        least = 0 if scene.repeats else SHARE * sum(seconds) / 2 / scene.readers
        rich = {group: {name: clips for name, clips in readers.items() if speech({name: clips}) >= least}
                for group, readers in sorted(groups.items())}
        able = {group: speech(groups[group]) for group, readers in rich.items() if len(readers) >= scene.readers}
        if not able:
            continue
        group = str(chance.choice(list(able), p=np.array(list(able.values())) / sum(able.values())))
        made = Conversation(scene, rich[group], chance.uniform(*seconds), chance)
        made.turns.sort(key=lambda turn: (turn["start"], turn["end"]))
        made.words.sort(key=lambda word: word[1])
        write(folder / f"{name}.wav", made.sound)
        (folder / f"{name}.rttm").write_text(rttm(name, made.turns))
        lines.append({
            "file": f"{name}.wav", "kind": "diarization", "scene": name, "seed": seed, "group": group, "language": "en",
            "duration": round(len(made.sound) / RATE, 3), "sample_rate": RATE, "rttm": f"{name}.rttm",
            "speakers": len({turn["speaker"] for turn in made.turns}), "overlap": round(made.overlap(), 3),
            "turns": made.turns, "words": made.words})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "manifest.jsonl").write_text(text)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("manifests", type=Path, nargs="+", metavar="MANIFEST")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=[name for name in SCENES if name != "monologue"])
    parser.add_argument("--seconds", type=float, nargs=2, default=(60, 120), metavar=("LEAST", "MOST"))
    parser.add_argument("--words", type=Path, metavar="FILE")
    options = parser.parse_args()
    groups = load(options.manifests, options.words)
    if not groups:
        parser.error(f"no reader with {LEAST:g} s of speech in the manifests")
    for line in make(groups, options.folder, options.seed, options.scenes, options.seconds):
        print(f"{line['file']:<16} {line['duration']:6.1f} s, {line['speakers']} {line['group']} readers, "
              f"{len(line['turns'])} turns, overlap {100 * line['overlap']:.0f} %")


if __name__ == "__main__":
    main()
