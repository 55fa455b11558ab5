"""Scores of who spoke when. Needs pyannote.metrics.

der         time wrong, of all time that speakers speak, %: missed, false alarm and confusion; overlaps count
            (DiarizationErrorRate of pyannote.metrics). In `der25` a quarter of a second on both sides of each border
            of the truth is left out, as in NIST's evaluations; that is a collar of 0.5 s in pyannote's terms.
counts      files in which the number of speakers is wrong, %
words       words with the wrong speaker, of those whose middle lies where exactly one speaks, %; the speakers are matched
            one to one so that the fewest are wrong
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate
from scipy.optimize import linear_sum_assignment

Turn = tuple[float, float, str]  # Start, end, speaker.
Word = tuple[float, float, str | None]

COLLARS = {"": 0.0, "25": 0.5}
PARTS = {"confusion": "confusion", "missed": "missed detection", "false_alarm": "false alarm"}
LONGEST_PAUSE = 0.5  # Between words of one turn.


@dataclass
class Sums:
    """Of one or several files."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    files: int = 0
    wrong_counts: int = 0
    words: int = 0
    wrong_words: int = 0
    audio: float = 0.0
    cpu: float | None = None

    def __add__(self, other: "Sums") -> "Sums":
        total = Sums(defaultdict(float, self.seconds), self.files + other.files,
                     self.wrong_counts + other.wrong_counts, self.words + other.words,
                     self.wrong_words + other.wrong_words, self.audio + other.audio)
        for name, value in other.seconds.items():
            total.seconds[name] += value
        if self.cpu is not None or other.cpu is not None:
            total.cpu = (self.cpu or 0) + (other.cpu or 0)
        return total

    def figures(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for suffix in COLLARS:
            total = self.seconds["total" + suffix]
            shares = {part + suffix: 100 * self.seconds[part + suffix] / total if total else None for part in PARTS}
            found["der" + suffix] = sum(shares.values()) if total else None
            found |= shares
        found["counts"] = 100 * self.wrong_counts / self.files if self.files else None
        found["words"] = 100 * self.wrong_words / self.words if self.words else None
        found["cpu"] = 1000 * self.cpu / self.audio if self.cpu is not None and self.audio else None
        return found


def read_rttm(text: str) -> list[Turn]:
    lines = [line.split() for line in text.splitlines()]
    return [(float(row[3]), float(row[3]) + float(row[4]), row[7]) for row in lines if row[:1] == ["SPEAKER"]]


def score(truth: list[Turn], turns: list[Turn], words: list[Word], duration: float) -> Sums:
    """Of one file. `words` may be empty."""
    sums = Sums(files=1, audio=duration)
    for suffix, collar in COLLARS.items():
        metric = DiarizationErrorRate(collar=collar, skip_overlap=False)
        parts = metric(annotation(truth), annotation(turns), uem=Timeline([Segment(0, duration)]), detailed=True)
        sums.seconds["total" + suffix] += parts["total"]
        for name, theirs in PARTS.items():
            sums.seconds[name + suffix] += parts[theirs]
    sums.wrong_counts = int(len({turn[2] for turn in turns}) != len({turn[2] for turn in truth}))
    sums.words, sums.wrong_words = words_wrong(truth, words)
    return sums


def annotation(turns: list[Turn]) -> Annotation:
    found = Annotation()
    for number, (start, end, speaker) in enumerate(turns):
        if end - start > 0.001:
            found[Segment(start, end), number] = speaker
    return found


def words_wrong(truth: list[Turn], words: list[Word]) -> tuple[int, int]:
    """Words whose speaker is known for certain, and those of them with another."""
    pairs = []
    for start, end, speaker in words:
        middle = (start + end) / 2
        speaking = {turn[2] for turn in truth if turn[0] <= middle < turn[1]}
        if len(speaking) == 1:
            pairs.append((speaking.pop(), speaker))
    spoken, heard = sorted({pair[0] for pair in pairs}), sorted({pair[1] for pair in pairs if pair[1] is not None})
    counts = np.array([[pairs.count((one, other)) for other in heard] for one in spoken]).reshape(len(spoken), len(heard))
    right = int(counts[linear_sum_assignment(counts, maximize=True)].sum())
    return len(pairs), len(pairs) - right


def turns_of(words: list[Word]) -> list[Turn]:
    """Words of one speaker without a long pause between them, for a system that gives words alone."""
    turns: list[Turn] = []
    for start, end, speaker in words:
        if speaker is None:
            continue
        if turns and turns[-1][2] == speaker and start - turns[-1][1] <= LONGEST_PAUSE:
            turns[-1] = turns[-1][0], max(end, turns[-1][1]), speaker
        else:
            turns.append((start, end, speaker))
    return turns
