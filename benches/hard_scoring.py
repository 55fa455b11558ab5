"""Scores of transcripts of hard clips: words wrong, sentences lost, voice that no word covers, words out of place.

A clip is a line of the manifest that benches/hard_audio.py writes: `sentences` has the text, language, `start`
and `end` of each sentence as it was laid down, and in `voice` the stretches of it that are loud enough to be
voice. Without `voice` or the words' times the scores that need them are absent.
"""

import difflib
import re
from dataclasses import dataclass, fields

import jiwer

from scoring import normal, out_of_order

# A word may lie so far outside its sentence, and so far from the voice it covers, in seconds.
LEEWAY = 0.3
# A shorter stretch of voice may be a breath or a click.
LEAST_VOICE = 0.6
# A word with a longer span was stretched over voice that has other words.
LONGEST_WORD = 2.0


@dataclass
class Score:
    words: int = 0
    deleted: int = 0
    inserted: int = 0
    substituted: int = 0
    sentences: int = 0
    lost: int = 0
    voice: float = 0.0
    uncovered: float = 0.0
    timed: int = 0
    outside: int = 0
    disorder: int = 0
    several: int = 0
    unnamed: int = 0

    def __add__(self, other: "Score") -> "Score":
        return Score(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def figures(self) -> dict:
        def percent(count):
            return 100 * count / self.words if self.words else None

        return {
            "wer": percent(self.wrong), "deleted": percent(self.deleted),
            # Where nothing was said, words and not a share of them.
            "inserted": percent(self.inserted) if self.words else self.inserted,
            "substituted": percent(self.substituted), "words": self.words,
            "lost": self.lost if self.words else None, "sentences": self.sentences,
            "uncovered": self.uncovered if self.voice and self.timed else None, "voice": self.voice,
            "outside": self.outside if self.timed else None,
            "disorder": self.disorder if self.timed else None,
            "unnamed": self.unnamed if self.several else None,
        }

    @property
    def wrong(self) -> int:
        return self.deleted + self.inserted + self.substituted


@dataclass(frozen=True)
class Lost:
    """A sentence of which more than half the words were not heard."""

    sentence: dict
    deleted: int
    words: int


def score(
    clip: dict, transcript: str, words: list | None = None, languages: list[str] | None = None,
) -> tuple[Score, list[Lost]]:
    """Of one clip, and the sentences it lost. `words`: lists of word, start, end; None where there are no times."""
    result = Score()
    lost = compare_words(clip, transcript, result)
    stretches = [stretch for sentence in clip["sentences"] for stretch in sentence.get("voice", [])]
    result.voice = sum(end - start for start, end in stretches)
    if words is not None:
        result.timed = 1
        result.disorder = out_of_order(words, clip["duration"])
        result.outside = len(words_outside(clip["sentences"], words))
        result.uncovered = sum(end - start for start, end in uncovered(stretches, words))
    spoken = {sentence["language"] for sentence in clip["sentences"]}
    if languages is not None and len(spoken) > 1:
        result.several = 1
        result.unnamed = int(not spoken <= set(languages))
    return result, lost


def compare_words(clip: dict, transcript: str, result: Score) -> list[Lost]:
    # Where the language changes, most is English, and only there are numbers written in two ways.
    language = "en" if clip["language"] == "multi" else clip["language"]
    sentences = [normal(sentence["text"], language).split() for sentence in clip["sentences"]]
    owners = [number for number, words in enumerate(sentences) for _ in words]
    heard = normal(transcript, language).split()
    result.words, result.sentences = len(owners), len(sentences)
    missing = [0] * len(sentences)
    if not owners:
        result.inserted = len(heard)
        return []
    if not heard:
        missing = [len(words) for words in sentences]
    else:
        said = " ".join(word for words in sentences for word in words)
        for chunk in jiwer.process_words(said, " ".join(heard)).alignments[0]:
            match chunk.type:
                case "delete":
                    for position in range(chunk.ref_start_idx, chunk.ref_end_idx):
                        missing[owners[position]] += 1
                case "insert":
                    result.inserted += chunk.hyp_end_idx - chunk.hyp_start_idx
                case "substitute":
                    result.substituted += chunk.hyp_end_idx - chunk.hyp_start_idx
    result.deleted = sum(missing)
    lost = [Lost(sentence, gone, len(words)) for sentence, words, gone in zip(clip["sentences"], sentences, missing)
            if 2 * gone > len(words)]
    result.lost = len(lost)
    return lost


def bare(text: str) -> str:
    return re.sub(r"\W", "", text.lower())


def words_outside(sentences: list[dict], words: list) -> list:
    """Words that lie in no sentence, or that were said in others than the one where they lie."""
    said = [(bare(word), number) for number, sentence in enumerate(sentences) for word in sentence["text"].split()]
    heard = [bare(word[0]) for word in words]
    matcher = difflib.SequenceMatcher(None, [word for word, _ in said], heard, autojunk=False)
    # One word alone may match another sentence's by chance.
    matched = {j + offset for _, j, size in matcher.get_matching_blocks() if size > 1 for offset in range(size)}
    outside = []
    for position, (_, start, end) in enumerate(words):
        inside = {number for number, sentence in enumerate(sentences)
                  if sentence["start"] - LEEWAY <= start and end <= sentence["end"] + LEEWAY}
        owners = {number for word, number in said if word == heard[position]}
        if not inside or position in matched and not inside & owners:
            outside.append(words[position])
    return outside


def uncovered(stretches: list, words: list) -> list[tuple[float, float]]:
    """Parts of at least LEAST_VOICE of the stretches of voice that no word, widened by LEEWAY, covers."""
    gaps = []
    covers = sorted((start - LEEWAY, min(end, start + LONGEST_WORD) + LEEWAY) for _, start, end in words)
    for begin, finish in stretches:
        at = begin
        for start, end in covers + [(finish, finish)]:
            if min(start, finish) - at >= LEAST_VOICE:
                gaps.append((at, min(start, finish)))
            at = max(at, end)
    return gaps
