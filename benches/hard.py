"""Hard clips (benches/hard_audio.py) through POST, the live path and peers, and how each heard them.

This is `benches/accuracy.py --hard SEEDS`. In the tables, for each condition:

wer, deleted, inserted, substituted  words wrong, % of those said
lost       sentences of which more than half the words are missing; one that was said twice counts twice
uncovered  seconds of voice, in runs of at least 0.6 s, that no word covers within 0.3 s; a word covers 2 s at most
outside    words that lie more than 0.3 s outside the sentences in which they were said
disorder   words whose times are out of order
unnamed    clips in several languages whose `languages` lack one of them
differing  words of the live path that differ from those of POST, %

The condition `sounds` has no words: there `inserted` is the number of words invented.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import websockets

import calibration
import hard_audio
import live
from audio import samples
from door import Door
from hard_scoring import LEEWAY, Score, score, uncovered, words_outside
from peer_process import Peer, start_peers
from scoring import error_rate

FIGURES = ["wer", "deleted", "inserted", "substituted", "lost", "uncovered", "outside", "disorder", "unnamed"]
POST, LIVE = "POST", "live"


@dataclass
class Heard:
    transcript: str
    words: list | None = None
    languages: list[str] | None = None
    failure: str | None = None
    confidences: list[float] | None = None


@dataclass
class Result:
    """One system's answers to all clips, and their scores."""

    answers: dict[str, Heard] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)

    def score(self, clips: list[tuple[Path, dict]]) -> None:
        for path, clip in clips:
            heard = self.answers[str(path)]
            self.scores[str(path)], _ = score(clip, heard.transcript, heard.words, heard.languages)

    def conditions(self, clips: list[tuple[Path, dict]]) -> dict[str, Score]:
        sums: dict[str, Score] = defaultdict(Score)
        for path, clip in clips:
            sums[clip["condition"]] += self.scores[str(path)]
        spoken = [value for name, value in sums.items() if name != "sounds"]
        return dict(sums) | {"all": sum(spoken, Score())}

    def failed(self) -> dict[str, str]:
        return {path: heard.failure for path, heard in self.answers.items() if heard.failure}


def over_post(door: Door, clips: list[tuple[Path, dict]], concurrency: int) -> dict[str, Heard]:
    def listen(item):
        path, clip = item
        answer, _ = door.listen_patiently(path.read_bytes(), words=True, language=clip["language"])
        if answer.status != 200:
            return Heard("", [], failure=f"{answer.status} {answer.body[:200].decode(errors='replace')}")
        alternative = answer.alternative()
        return Heard(alternative["transcript"], answer.words(), alternative.get("languages", []),
                     confidences=[word["confidence"] for word in alternative.get("words", [])])

    with ThreadPoolExecutor(concurrency) as pool:
        return {str(path): heard for (path, _), heard in zip(clips, pool.map(listen, clips))}


def over_live(server: str, key: str, clips: list[tuple[Path, dict]], concurrency: int) -> dict[str, Heard]:
    """As fast as the server takes it."""
    options = SimpleNamespace(server=server, key=key, chunk_ms=100, silence=1.0, pace=0, refused=0,
                              query="interim_results=false")
    answers = {}

    async def listen(path, clip, places):
        async with places:
            try:
                heard = await live.patiently(options, samples(path), clip["language"])
            except (OSError, websockets.WebSocketException) as error:
                answers[str(path)] = Heard("", [], failure=repr(error))
            else:
                problems = "; ".join(heard.problems) or None
                answers[str(path)] = Heard(heard.text.strip(), heard.words, failure=problems)

    async def all_of_them():
        places = asyncio.Semaphore(concurrency)
        await asyncio.gather(*(listen(path, clip, places) for path, clip in clips))

    asyncio.run(all_of_them())
    return answers


def over_peer(peer: Peer, clips: list[tuple[Path, dict]]) -> dict[str, Heard]:
    answers = {}
    for path, clip in clips:
        try:
            answers[str(path)] = Heard(peer.transcribe(path, clip["language"]))
        except (RuntimeError, TimeoutError) as error:
            answers[str(path)] = Heard("", failure=str(error))
    return answers


def differing(clips: list[tuple[Path, dict]], post: Result, other: Result) -> dict[str, float | None]:
    pairs = defaultdict(list)
    for path, clip in clips:
        language = "en" if clip["language"] == "multi" else clip["language"]
        pair = (post.answers[str(path)].transcript, other.answers[str(path)].transcript, language)
        for name in (clip["condition"], "all") if clip["condition"] != "sounds" else ():
            pairs[name].append(pair)
    return {name: 100 * (error_rate(texts) or 0) for name, texts in pairs.items()}


def figures(result: Result, clips: list[tuple[Path, dict]], compared: dict[str, float | None]) -> dict[str, dict]:
    return {condition: {name: value[name] for name in FIGURES + ["words", "sentences", "voice"]}
            | ({"differing": compared[condition]} if condition in compared else {})
            for condition, value in ((name, sums.figures()) for name, sums in result.conditions(clips).items())}


def table(system: str, measured: dict[str, dict]) -> str:
    names = FIGURES + (["differing"] if any("differing" in row for row in measured.values()) else [])
    lines = [["condition"] + names]
    for condition, row in measured.items():
        texts = []
        for name in names:
            value = row.get(name)
            text = "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
            texts.append(f"{text}/{row['sentences']}" if name == "lost" and row["sentences"] else text)
        lines.append([condition] + texts)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join([system] + ["  ".join(text.rjust(width) if at else text.ljust(width)
                                           for at, (text, width) in enumerate(zip(line, widths))) for line in lines])


def calibration_of(clips: list[tuple[Path, dict]], result: Result) -> str:
    """How well the confidences tell the share of right words, by condition."""
    groups = defaultdict(list)
    for path, clip in clips:
        heard = result.answers[str(path)]
        if clip["condition"] != "sounds" and heard.confidences:
            words = [{"word": word, "confidence": confidence}
                     for (word, _, _), confidence in zip(heard.words, heard.confidences)]
            language = "en" if clip["language"] == "multi" else clip["language"]
            groups[clip["condition"]] += calibration.judged(clip["text"], words, language)
    return calibration.report(groups)


def show(clips: list[tuple[Path, dict]], result: Result, count: int) -> None:
    """The files with most words wrong or out of place."""
    def badness(item):
        value = result.scores[str(item[0])]
        return value.wrong + value.outside

    for path, clip in sorted(clips, key=badness, reverse=True)[:count]:
        print("\n" + account(path, clip, result.answers[str(path)]))


def account(path: Path, clip: dict, heard: Heard) -> str:
    """One clip, sentence by sentence: what was said, and the words whose times lie there."""
    value, lost = score(clip, heard.transcript, heard.words, heard.languages)
    row = value.figures()
    lines = [f"{path}: " + ", ".join(f"{name} {row[name]:.3g}" for name in FIGURES if row[name])]
    if heard.words is None or not clip["sentences"]:
        return "\n".join(lines + [f"  heard: {heard.transcript}"])
    stretches = [stretch for sentence in clip["sentences"] for stretch in sentence.get("voice", [])]
    if gaps := uncovered(stretches, heard.words):
        lines.append("  voice without words: " + ", ".join(f"{start:.1f}-{end:.1f}" for start, end in gaps))
    if strays := words_outside(clip["sentences"], heard.words):
        named = (f"{word} {start:.2f}-{end:.2f}" for word, start, end in strays)
        lines.append("  words out of place: " + ", ".join(named))
    for sentence in clip["sentences"]:
        mark = "LOST " if any(one.sentence is sentence for one in lost) else ""
        inside = [word for word, start, end in heard.words
                  if sentence["start"] - LEEWAY <= (start + end) / 2 <= sentence["end"] + LEEWAY]
        lines.append(f"  {sentence['start']:.2f}-{sentence['end']:.2f} {mark}said: {sentence['text']}")
        lines.append(f"      heard: {' '.join(inside)}")
    return "\n".join(lines)


def bounds_broken(bounds: list[tuple[str, float]], measured: dict[str, dict]) -> list[str]:
    """`CONDITION.FIGURE` of POST that are above their bounds; a figure without a value is within none."""
    broken = []
    for name, limit in bounds:
        condition, _, figure = name.partition(".")
        value = measured.get(condition, {}).get(figure)
        if value is None or value > limit:
            broken.append(f"{name} is {'absent' if value is None else format(value, 'g')}, at most {limit:g}")
    return broken


def prepare(options: argparse.Namespace, folder: Path) -> list[tuple[Path, dict]]:
    """Clips of all seeds. What an earlier run has made is used again."""
    sentences, clips = None, []
    for seed in options.hard:
        place = folder / f"seed{seed}"
        manifest = place / "manifest.jsonl"
        if manifest.is_file():
            lines = [json.loads(line) for line in manifest.read_text().splitlines()]
        else:
            sentences = sentences or hard_audio.load(options.manifest)
            lines = hard_audio.make(sentences, place, seed)
        clips += [(place / line["file"], line) for line in lines
                  if options.conditions is None or line["condition"] in options.conditions]
    return clips


def run(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verbatim-hard-")))
        clips = prepare(options, folder)
        print(f"{len(clips)} files, {sum(clip['duration'] for _, clip in clips):.0f} s", file=sys.stderr, flush=True)
        results: dict[str, Result] = {}
        door = Door(options.server, options.key)
        results[POST] = Result(over_post(door, clips, options.concurrency))
        if not options.no_live:
            results[LIVE] = Result(over_live(options.server, options.key, clips, options.concurrency))
        peers, absent = start_peers(options.peers, options.peers_python, options.model, options.threads, stack)
        for name, peer in peers.items():
            results[f"{name} ({peer.version})"] = Result(over_peer(peer, clips))

        measured = {}
        for name, result in results.items():
            result.score(clips)
            compared = differing(clips, results[POST], result) if name == LIVE else {}
            measured[name] = figures(result, clips, compared)
            print(table(name, measured[name]) + "\n")
            for path, failure in result.failed().items():
                print(f"{name}, {path}: {failure}", file=sys.stderr)
        if options.calibration:
            print(calibration_of(clips, results[POST]) + "\n")
        for name, reason in absent.items():
            print(f"absent: {name}: {reason}")
        if options.show:
            show(clips, results[POST], 20)
    broken = bounds_broken(options.bounds, measured[POST])
    for line in broken:
        print("BROKEN: " + line)
    if options.json:
        options.json.write_text(json.dumps({
            "measures": measured, "absent": absent, "broken": broken,
            "transcripts": {name: {path: vars(heard) for path, heard in result.answers.items()}
                            for name, result in results.items()}}, ensure_ascii=False))
    return 1 if broken or results[POST].failed() else 0
