"""Scores of transcripts: words wrong, times off. Needs jiwer and whisper-normalizer."""

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import jiwer
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

ENGLISH = EnglishTextNormalizer()
# Languages without spaces are compared letter by letter.
LETTERS = {"ja", "zh", "th", "lo", "my", "yue"}
OTHER = {letters: BasicTextNormalizer(split_letters=letters) for letters in (False, True)}


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def normal(text: str, language: str) -> str:
    return (ENGLISH if language == "en" else OTHER[language in LETTERS])(text).strip()


def error_rate(pairs: list[tuple[str, str, str]]) -> float | None:
    """Word errors over all words together, of (reference, hypothesis, language)."""
    normalised = [(normal(r, language), normal(h, language)) for r, h, language in pairs]
    normalised = [pair for pair in normalised if pair[0]]
    if not normalised:
        return None
    return jiwer.wer([r for r, _ in normalised], [h for _, h in normalised])


def matched(reference: list, words: list) -> Iterator[tuple]:
    """Pairs of the words that both have. Items begin with the word."""
    bare = [[re.sub(r"\W", "", item[0].lower()) for item in items] for items in (reference, words)]
    for i, j, size in difflib.SequenceMatcher(None, *bare, autojunk=False).get_matching_blocks():
        yield from zip(reference[i:i + size], words[j:j + size])


def time_differences(reference: list, words: list) -> list[float]:
    """Seconds between the starts, and the ends, of the words that both have. Items: word, start, end."""
    return [abs(a[at] - b[at]) for a, b in matched(reference, words) for at in (1, 2)]


def out_of_order(words: list, duration: float) -> int:
    """Words that end before they start, start before an earlier one does, or lie outside the audio."""
    wrong, before = 0, 0.0
    for _, start, end in words:
        wrong += not (before <= start <= end <= duration + 0.05)
        before = max(before, start)
    return wrong
