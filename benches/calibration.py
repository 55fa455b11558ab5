"""How well confidences of words tell the share of them that is right, and the constants that would tell it better.

Needs jiwer, whisper-normalizer and numpy.
"""

import difflib
import re
from collections import Counter, defaultdict
from pathlib import Path

import jiwer
import numpy as np

from scoring import normal

CONSTANTS = Path(__file__).resolve().parent.parent / "src/models/whisper/confidence.rs"
BINS = 15
EXTREME = 1e-4


def judged(truth: str, words: list[dict], language: str) -> list[tuple[float, bool]]:
    """Confidences of words, and whether each is right.

    Words that the normaliser joins with others, such as the parts of a number, are left out.
    """
    said = normal(truth, language)
    heard = normal(" ".join(word["word"] for word in words), language).split()
    if not said or not heard:
        return []
    right = np.zeros(len(heard), bool)
    for chunk in jiwer.process_words(said, " ".join(heard)).alignments[0]:
        if chunk.type == "equal":
            right[chunk.hyp_start_idx:chunk.hyp_end_idx] = True
    pieces = [(piece, index) for index, word in enumerate(words) for piece in normal(word["word"], language).split()]
    found = defaultdict(list)
    matcher = difflib.SequenceMatcher(None, [piece for piece, _ in pieces], heard, autojunk=False)
    for i, j, size in matcher.get_matching_blocks():
        for (_, index), verdict in zip(pieces[i:i + size], right[j:j + size]):
            found[index].append(verdict)
    counts = Counter(index for _, index in pieces)
    return [(words[index]["confidence"], all(verdicts)) for index, verdicts in found.items()
            if len(verdicts) == counts[index]]


def logit(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, EXTREME, 1 - EXTREME)
    return np.log(clipped / (1 - clipped))


def expected_error(confidences: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error: the mean distance of confidence and share of right words, over bins, in %."""
    bins = np.minimum((confidences * BINS).astype(int), BINS - 1)
    distances = (abs(confidences[bins == n].sum() - right[bins == n].sum()) for n in range(BINS))
    return 100 * sum(distances) / len(right)


def ranking(confidences: np.ndarray, right: np.ndarray) -> float:
    """AUROC: how often a right word has more confidence than a wrong one; half of the time if it means nothing."""
    order, wrong = np.sort(confidences[~right]), confidences[right]
    if not len(order) or not len(wrong):
        return float("nan")
    below, up_to = (np.searchsorted(order, wrong, side) for side in ("left", "right"))
    return float((below + up_to).sum() / 2 / len(order) / len(wrong))


def fitted(confidences: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the logit (Platt scaling) that are likeliest, by Newton's method."""
    inputs = np.stack([logit(confidences), np.ones(len(right))], 1)
    weights = np.array([1.0, 0.0])
    for _ in range(50):
        share = 1 / (1 + np.exp(-inputs @ weights))
        curvature = inputs.T @ (inputs * (share * (1 - share))[:, None]) + 1e-9 * np.eye(2)
        weights -= np.linalg.solve(curvature, inputs.T @ (share - right))
    return float(weights[0]), float(weights[1])


def report(groups: dict[str, list[tuple[float, bool]]]) -> str:
    """A table of `groups`, then of all, and the constants for src/models/whisper/confidence.rs."""
    rows = [row for group in groups.values() for row in group]
    if len({right for _, right in rows}) < 2:
        return "calibration: too few words"
    slope, offset = fitted(*columns(rows))
    lines = [f"{'calibration':<14} {'words':>6} {'right, %':>8} {'ECE, %':>7} {'refitted':>8} {'AUROC':>6}"]
    for name, group in [*groups.items(), ("all", rows)]:
        if not group:
            continue
        confidences, right = columns(group)
        again = 1 / (1 + np.exp(-(slope * logit(confidences) + offset)))
        lines.append(f"{name:<14} {len(group):>6} {100 * right.mean():>8.2f} {expected_error(confidences, right):>7.2f} "
                     f"{expected_error(again, right):>8.2f} {ranking(confidences, right):>6.3f}")
    source = CONSTANTS.read_text()
    before = [float(re.search(rf"const {name}: f32 = ([-\d.]+);", source)[1]) for name in ("SLOPE", "OFFSET")]
    lines.append(f"refitted: SLOPE {slope * before[0]:.3f}, OFFSET {slope * before[1] + offset:.3f}")
    return "\n".join(lines)


def columns(rows: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([confidence for confidence, _ in rows]), np.array([right for _, right in rows], bool)
