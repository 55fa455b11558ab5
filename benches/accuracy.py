#!/usr/bin/env python3
"""Every clip of a test set through the HTTP door of a running server, and how well it was heard.

The manifest has a JSON object in each line: `file` (beside the manifest), `kind`, `duration`, `language`,
and `text` (what was said) or `peer` (what a reference implementation with the same weights heard). Kinds:
truth, truth-long: words wrong against `text`; agreement: words that differ from `peer`; empty: nothing is
said, so every word is invented. peer_words.jsonl beside it, where it is there, has the reference's times:
`file`, `words` as lists of word, start, end.

With --hard SEED... hard clips are made from the clips of kind truth instead (benches/hard_audio.py) and heard over
POST, over the live path and by peers; benches/hard.py explains the table. `--bounds all.deleted=1.5 sounds.inserted=0`
then limit what POST may get wrong.

With --calibration it also says how well the confidences of words tell the share of them that is right (expected
calibration error), and fits the constants of src/models/whisper/confidence.rs to the answers.

Needs jiwer and whisper-normalizer, for --calibration numpy, and for hard clips numpy, av and websockets (benches/peers/requirements.txt).
"""

import argparse
import json
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import calibration
import hard
from door import Door, percentile
from scoring import error_rate, out_of_order, read_lines, time_differences

MEASURES = {
    "wer": "truth, English: words wrong, %",
    "wer_long": "truth-long, English: words wrong, %",
    "wer_other": "truth, other languages: words wrong, %",
    "differing": "agreement: words that differ from the reference, %",
    "differing_all": "all kinds but empty: words that differ from the reference, %",
    "time_median": "word times against the reference: median, s",
    "time_p95": "word times against the reference: 95th percentile, s",
    "invented": "empty: words invented",
    "disorder": "words whose times are out of order",
    "failed": "clips that were not answered with 200",
}


def measure(clips: list[dict], answers: dict, reference: dict) -> dict:
    heard = {name: answer.alternative()["transcript"] for name, answer in answers.items() if answer.status == 200}

    def rate(kinds, truth, english=None):
        chosen = [clip for clip in clips if clip["kind"] in kinds and clip["file"] in heard and clip.get(truth)
                  and english in (None, clip["language"] == "en")]
        value = error_rate([(clip[truth], heard[clip["file"]], clip["language"]) for clip in chosen])
        return None if value is None else round(100 * value, 3)

    differences, disorder, invented = [], 0, 0
    for clip in clips:
        if (name := clip["file"]) not in heard:
            continue
        words = answers[name].words()
        disorder += out_of_order(words, clip["duration"])
        differences += time_differences(reference.get(name, []), words)
        if clip["kind"] == "empty":
            invented += len(heard[name].split())
    spoken = {clip["kind"] for clip in clips} - {"empty"}
    return {
        "wer": rate({"truth"}, "text", True),
        "wer_long": rate({"truth-long"}, "text", True),
        "wer_other": rate({"truth"}, "text", False),
        "differing": rate({"agreement"}, "peer"),
        "differing_all": rate(spoken, "peer"),
        "time_median": round(percentile(differences, 0.5), 3) if differences else None,
        "time_p95": round(percentile(differences, 0.95), 3) if differences else None,
        "invented": invented,
        "disorder": disorder,
        "failed": sum(answer.status != 200 for answer in answers.values()),
    }


def bound(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name not in MEASURES and name.partition(".")[2] not in hard.FIGURES:
        raise argparse.ArgumentTypeError(
            f"no such measure: {name}; there are {', '.join(MEASURES)}, and with --hard CONDITION.FIGURE")
    return name, float(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--key", required=True)
    parser.add_argument("--manifest", required=True, type=Path)
    parser.add_argument("--bounds", nargs="+", type=bound, default=[], metavar="NAME=MOST",
                        help="exit 1 when a measure is above: " + ", ".join(MEASURES))
    parser.add_argument("--detect", action="store_true", help="leave the language to the server")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--json", type=Path, metavar="FILE", help="figures and transcripts")
    parser.add_argument("--calibration", action="store_true", help="how well confidences tell right words")
    parser.add_argument("--show", action="store_true", help="print clips that differ from their reference")
    group = parser.add_argument_group("hard clips")
    group.add_argument("--hard", nargs="+", type=int, metavar="SEED", help="make hard clips with these seeds")
    group.add_argument("--folder", type=Path, help="where they are kept, and found again by another run")
    group.add_argument("--conditions", nargs="+", help="these alone; sounds is one")
    group.add_argument("--no-live", action="store_true", help="POST and peers alone")
    group.add_argument("--peers", nargs="*", default=[], metavar="KIND[=MODEL]",
                       help="kinds of benches/peers/peer.py, as in faster-whisper-f32 faster-whisper-f32-vad")
    group.add_argument("--peers-python", default=sys.executable, help="an interpreter that has the peers")
    group.add_argument("--model", type=Path, help="CTranslate2 folder, for the peers that read it")
    group.add_argument("--threads", type=int, default=2, help="of each peer")
    options = parser.parse_args()
    if unknown := [name for name, _ in options.bounds if ("." in name) != bool(options.hard)]:
        parser.error(f"{', '.join(unknown)}: CONDITION.FIGURE go with --hard, and nothing else does")
    if options.hard:
        return hard.run(options)

    clips = read_lines(options.manifest)
    folder = options.manifest.parent
    beside = folder / "peer_words.jsonl"
    reference = {line["file"]: line["words"] for line in read_lines(beside)} if beside.is_file() else {}
    door = Door(options.server, options.key)

    def listen(clip):
        language = None if options.detect else clip["language"]
        audio = (folder / clip["file"]).read_bytes()
        return door.listen_patiently(audio, words=True, language=language)

    with ThreadPoolExecutor(options.concurrency) as pool:
        heard = list(pool.map(listen, clips))
    answers = {clip["file"]: answer for clip, (answer, _) in zip(clips, heard)}
    if refused := sum(times for _, times in heard):
        print(f"{refused} refusals (503) were waited out as told", file=sys.stderr)

    for name, answer in answers.items():
        if answer.status != 200:
            print(f"{name}: {answer.status} {answer.body[:200].decode(errors='replace')}", file=sys.stderr)
    measured = measure(clips, answers, reference)
    width = max(map(len, MEASURES.values()))
    limits, broken = dict(options.bounds), []
    for name, words in MEASURES.items():
        value, limit = measured[name], limits.get(name)
        text = "-" if value is None else f"{value:g}"
        verdict = ""
        if limit is not None:
            # A measure without a value is within no bound.
            kept = value is not None and value <= limit
            verdict = f"  at most {limit:g}: {'kept' if kept else 'BROKEN'}"
            broken += [] if kept else [name]
        print(f"{words:<{width}}  {text:>8}  {name}{verdict}")
    if options.calibration:
        groups = defaultdict(list)
        for clip in clips:
            if clip.get("text") and answers[clip["file"]].status == 200:
                words = answers[clip["file"]].alternative().get("words", [])
                groups[clip["kind"]] += calibration.judged(clip["text"], words, clip["language"])
        print(calibration.report(groups))
    if options.show:
        show(clips, answers)
    if options.json:
        transcripts = {name: answer.alternative() for name, answer in answers.items() if answer.status == 200}
        options.json.write_text(json.dumps({"measures": measured, "broken": broken, "transcripts": transcripts}))
    return 1 if broken else 0


def show(clips: list[dict], answers: dict) -> None:
    for clip in clips:
        answer, truth = answers[clip["file"]], clip.get("peer") or clip.get("text") or ""
        if answer.status == 200 and truth:
            text = answer.alternative()["transcript"]
            wrong = error_rate([(truth, text, clip["language"])])
            if wrong:
                print(f"\n{clip['file']} ({clip['kind']}), {100 * wrong:.1f} %\n  wanted: {truth}\n  heard:  {text}")


if __name__ == "__main__":
    sys.exit(main())
