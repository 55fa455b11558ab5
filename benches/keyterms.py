#!/usr/bin/env python3
"""Whether `keyterm` and `keywords` bring out the terms that are said, and what they do to all other words.

Starts a server and sends each clip of a folder without terms, then with terms:

- those that are said in it, and those of all clips, as key terms and as keywords of weight 2 and 10: how many are
  found in the transcripts, and, where the manifest has `text`, how many words are wrong;
- a word that is heard in it, and one that is heard in other clips alone, at each weight; and a hundred words of all
  clips as key terms: in how many clips other words change. Negative weights count where the word is not heard.

Needs jiwer and whisper-normalizer.
"""

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from door import Door, serving
from scoring import error_rate, normal, read_lines

# Name of a way to tell terms, and how it tells one.
WAYS = {"keyterm": None, "keywords=…:2": 2, "keywords=…:10": 10}
WEIGHTS = (0.5, 1, 2, 5, 10, -1, -10)


def holds(text: str, term: str) -> bool:
    return f" {normal(term, 'en')} " in f" {normal(text, 'en')} "


class Listener:
    """Transcripts of clips in English, each with the terms it is given."""

    def __init__(self, door: Door, folder: Path):
        self.door, self.folder = door, folder

    def hear(self, file: str, terms: list[str], weight: float | None = None) -> str:
        """`weight` None: as key terms."""
        asked = {"keyterms": terms} if weight is None else {"keywords": [f"{term}:{weight:g}" for term in terms]}
        answer, _ = self.door.listen_patiently((self.folder / file).read_bytes(), language="en", **asked)
        if answer.status != 200:
            raise SystemExit(f"{file}: {answer.status} {answer.body[:200]!r}")
        return answer.alternative()["transcript"]


def hits(listener: Listener, pool: ThreadPoolExecutor, rows: list[dict], said: dict[str, list[str]]) -> None:
    every = list(dict.fromkeys(term for terms in said.values() for term in terms))
    known = [row for row in rows if row.get("text")]
    spoken = sum(map(len, said.values()))

    def report(name: str, heard: dict[str, str]) -> None:
        found = sum(holds(heard[file], term) for file, terms in said.items() for term in terms)
        wrong = error_rate([(row["text"], heard[row["file"]], "en") for row in known])
        print(f"{name:<32} found {found} of {spoken}; words wrong {100 * (wrong or 0):.2f} %")

    files = [row["file"] for row in rows]
    report("without terms", dict(zip(files, pool.map(lambda file: listener.hear(file, []), files))))
    for name, weight in WAYS.items():
        own = pool.map(lambda file: listener.hear(file, said.get(file, []), weight), files)
        report(f"{name}, of its own", dict(zip(files, own)))
        report(f"{name}, of all", dict(zip(files, pool.map(lambda file: listener.hear(file, every, weight), files))))


def harm(listener: Listener, pool: ThreadPoolExecutor, files: list[str], seed: int) -> None:
    draw = random.Random(seed)
    heard = {file: normal(text, "en").split()
             for file, text in zip(files, pool.map(lambda file: listener.hear(file, []), files))}
    vocabulary = sorted({word for words in heard.values() for word in words if len(word) > 1})
    tries = []
    for file, words in heard.items():
        if not words:
            continue
        own, other = draw.choice(words), draw.choice([word for word in vocabulary if word not in words])
        tries += [(f"a word heard, {weight:g}", file, [own], weight) for weight in WEIGHTS if weight > 0]
        tries += [(f"a word not heard, {weight:g}", file, [other], weight) for weight in WEIGHTS]
        tries.append(("a hundred words", file, draw.sample(vocabulary, min(100, len(vocabulary))), None))
    texts = pool.map(lambda one: listener.hear(one[1], one[2], one[3]), tries)
    changed: dict[str, list[str]] = {}
    for (name, file, terms, _), text in zip(tries, texts):
        lists = changed.setdefault(name, [])
        if normal(text, "en").split() != heard[file]:
            lists.append(f"{file} with {terms[0] if len(terms) == 1 else name}: {text}")
    for name, lists in changed.items():
        of = sum(one[0] == name for one in tries)
        print(f"{name:<32} {len(lists)} of {of} clips are heard otherwise")
        for line in lists:
            print(f"    {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speech", type=Path, help="a folder with clips and their manifest.jsonl")
    parser.add_argument("--binary", required=True, help="the verbatim to try")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--terms", type=Path, default=Path(__file__).with_suffix(".jsonl"), metavar="FILE",
                        help="what is said where: an object a line, with `file` and `terms`")
    parser.add_argument("--seed", type=int, default=1, help="of the words drawn (default: 1)")
    options = parser.parse_args()

    rows = [row for row in read_lines(options.speech / "manifest.jsonl")
            if row.get("language") == "en" and row.get("duration", 0) < 60]
    files = [row["file"] for row in rows]
    said = {row["file"]: row["terms"] for row in read_lines(options.terms) if row["file"] in files}
    settings = {"VERBATIM_ENGINE__MAX_WAIT_SECONDS": "3600", "VERBATIM_LOG__LEVEL": "warn"}
    with (serving(options.binary, *options.server_arguments.split(), settings=settings) as served,
          ThreadPoolExecutor(4) as pool):
        listener = Listener(served.door, options.speech)
        hits(listener, pool, rows, said)
        harm(listener, pool, files, options.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
