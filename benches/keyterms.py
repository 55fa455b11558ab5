#!/usr/bin/env python3
"""What `keyterm` does to the terms that are said, and to all other words.

Starts a server and sends each clip of a folder three times: without terms, with the terms that are said in it,
and with those of all clips. Told are, for each way: how many of the terms are found in the transcripts; the
words wrong in clips whose words are known (`text` in the folder's manifest.jsonl); and, of clips in which no
term is said, the words that differ from what was heard without terms. Needs jiwer and whisper-normalizer.
"""

import argparse
import json
import sys
from pathlib import Path

import jiwer

from door import serving
from scoring import error_rate, normal, read_lines

WAYS = ("none", "its own", "all")


def holds(text: str, term: str) -> bool:
    return f" {normal(term, 'en')} " in f" {normal(text, 'en')} "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speech", type=Path, help="a folder with clips and their manifest.jsonl")
    parser.add_argument("--binary", required=True, help="the verbatim to try")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--terms", type=Path, default=Path(__file__).with_suffix(".jsonl"), metavar="FILE",
                        help="what is said where: an object a line, with `file` and `terms`")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="write all transcripts to this file")
    options = parser.parse_args()

    said = {row["file"]: row["terms"] for row in read_lines(options.terms)}
    every = list(dict.fromkeys(term for terms in said.values() for term in terms))
    rows = [row for row in read_lines(options.speech / "manifest.jsonl")
            if row.get("language") == "en" and row.get("duration", 0) < 60]
    heard: dict[str, dict[str, str]] = {way: {} for way in WAYS}
    settings = {"VERBATIM_ENGINE__MAX_WAIT_SECONDS": "3600", "VERBATIM_LOG__LEVEL": "warn"}
    with serving(options.binary, *options.server_arguments.split(), settings=settings) as served:
        for row in rows:
            file = row["file"]
            audio = (options.speech / file).read_bytes()
            for way, terms in zip(WAYS, ((), said.get(file, ()), every)):
                answer, _ = served.door.listen_patiently(audio, language="en", keyterms=terms)
                if answer.status != 200:
                    print(f"{file}: {answer.status} {answer.body[:200]}", file=sys.stderr)
                    return 1
                heard[way][file] = answer.alternative()["transcript"]

    known = [row for row in rows if row.get("text")]
    others = [row["file"] for row in rows if row["file"] not in said]
    print(f"{len(rows)} clips, {len(every)} terms; {len(known)} clips have known words, {len(others)} none of the terms")
    for way in WAYS:
        found = sum(holds(heard[way][file], term) for file, terms in said.items() for term in terms)
        wrong = error_rate([(row["text"], heard[way][row["file"]], "en") for row in known])
        before, after = ([normal(heard[which][file], "en") for file in others] for which in ("none", way))
        changed = jiwer.process_words(before, after)
        differ = changed.substitutions + changed.deletions + changed.insertions
        print(f"terms given: {way:<8} found {found} of {sum(map(len, said.values()))}; words wrong "
              f"{100 * (wrong or 0):.2f} %; elsewhere {differ} of {sum(len(text.split()) for text in before)} differ")
    if options.texts:
        lines = ({"file": row["file"], **{way: heard[way][row["file"]] for way in WAYS}} for row in rows)
        options.texts.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
