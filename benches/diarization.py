#!/usr/bin/env python3
"""Who spoke when, by Verbatim and by peers, against the truth.

    diarization.py SET... [--binary VERBATIM] [--peers senko prototype=FILE] [--rttm NAME=FOLDER]

SET is NAME=FOLDER,... or FOLDER: folders with a manifest.jsonl whose lines of kind `diarization` have `file` and
`rttm`; benches/conversations.py makes some. Verbatim's server is started with --binary (then its processor time is
measured), or is there already (--server, --key). Measured are, in the order of the tables:

turns     `verbatim transcribe --diarize --format rttm`, with --binary alone
POST      the speakers of words; turns are words of one speaker without a long pause
live      the same over the live path, as fast as the server takes it (--pace 1: in real time)
NAME      RTTM files in FOLDER, named as the clips
peers     benches/peers/diarizer.py

speaker_scoring.py explains the columns; `cpu` is milliseconds of processor time for each second of audio: of peers all,
of POST what it takes more than without speakers, of `turns` all with transcription. --bounds turns.made.der25=9.5

Needs pyannote.metrics, and what live.py needs (benches/peers/requirements.txt).
"""

import argparse
import asyncio
import json
import os
import resource
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import websockets

import live
from audio import samples
from door import Door, serving
from peer_process import Peer, start_peers
from scoring import read_lines
from speaker_scoring import Sums, Turn, Word, read_rttm, score, turns_of

DIARIZER = Path(__file__).parent / "peers" / "diarizer.py"
COLUMNS = ["der", "confusion", "missed", "false_alarm", "der25", "confusion25", "counts", "words", "cpu"]


@dataclass(frozen=True)
class Clip:
    set: str
    path: Path
    duration: float
    truth: list[Turn]
    language: str


@dataclass
class Heard:
    turns: list[Turn] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    cpu: float | None = None
    failure: str | None = None


def clips_of(sets: list[str]) -> list[Clip]:
    found = []
    for text in sets:
        name, _, folders = text.rpartition("=")
        for folder in map(Path, folders.split(",")):
            for row in read_lines(folder / "manifest.jsonl"):
                if row.get("kind") == "diarization":
                    found.append(Clip(name or folder.name, folder / row["file"], row["duration"],
                                      read_rttm((folder / row["rttm"]).read_text()), row.get("language", "en")))
    return found


def processor_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def labelled(words: list[dict]) -> list[Word]:
    return [(word["start"], word["end"], str(word["speaker"]) if "speaker" in word else None) for word in words]


def over_post(door: Door, clips: list[Clip], pid: int | None) -> list[Heard]:
    def listen(clip: Clip, diarize: bool):
        before = processor_seconds(pid) if pid else 0.0
        answer, _ = door.listen_patiently(clip.path.read_bytes(), words=True, language=clip.language, diarize=diarize)
        return answer, processor_seconds(pid) - before if pid else 0.0

    answers = []
    for clip in clips:
        answer, cpu = listen(clip, True)
        if answer.status != 200:
            answers.append(Heard(failure=f"{answer.status} {answer.body[:200].decode(errors='replace')}"))
            continue
        words = labelled(answer.alternative().get("words", []))
        answers.append(Heard(turns_of(words), words, cpu - listen(clip, False)[1] if pid else None))
    return answers


def over_live(server: str, key: str, clips: list[Clip], pace: float) -> list[Heard]:
    options = SimpleNamespace(server=server, key=key, chunk_ms=100, silence=1.0, pace=pace, refused=0,
                              query="interim_results=false&diarize=true")

    async def listen(clip: Clip) -> Heard:
        try:
            heard = await live.patiently(options, samples(clip.path), clip.language)
        except (OSError, websockets.WebSocketException) as error:
            return Heard(failure=repr(error))
        words = [(start, end, speaker) for (_, start, end), speaker in zip(heard.words, heard.speakers)]
        return Heard(turns_of(words), words, failure="; ".join(heard.problems) or None)

    async def all_of_them():
        places = asyncio.Semaphore(4 if pace else 1)

        async def one(clip: Clip) -> Heard:
            async with places:
                return await listen(clip)

        return await asyncio.gather(*map(one, clips))

    return asyncio.run(all_of_them())


def over_transcribe(binary: str, arguments: list[str], clips: list[Clip]) -> list[Heard]:
    """One process for each file, as a file's name is that of its output."""
    heard = []
    for clip in clips:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [binary, "transcribe", *arguments, "--diarize", "--format", "rttm", "--language", clip.language]
        done = subprocess.run([*command, str(clip.path)], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        failure = done.stderr.strip()[-200:] if done.returncode else None
        heard.append(Heard(read_rttm(done.stdout), cpu=cpu, failure=failure))
    return heard


def of_files(folder: Path, clips: list[Clip]) -> list[Heard]:
    """FOLDER/SET/NAME.rttm of a set's folder, or FOLDER/NAME.rttm."""
    heard = []
    for clip in clips:
        places = [folder / clip.path.parent.name / f"{clip.path.stem}.rttm", folder / f"{clip.path.stem}.rttm"]
        there = next((place for place in places if place.is_file()), None)
        heard.append(Heard(read_rttm(there.read_text())) if there else Heard(failure=f"no {places[0]}"))
    return heard


def over_peer(peer: Peer, clips: list[Clip]) -> list[Heard]:
    heard = []
    for clip in clips:
        try:
            answer = peer.ask({"file": str(clip.path)})
        except (RuntimeError, TimeoutError) as error:
            heard.append(Heard(failure=str(error)))
        else:
            heard.append(Heard([(start, end, speaker) for start, end, speaker in answer["turns"]], cpu=answer["cpu"]))
    return heard


def measured(clips: list[Clip], answers: list[Heard]) -> tuple[dict[str, Sums], list[Sums]]:
    each, sets = [], {}
    for clip, heard in zip(clips, answers):
        one = score(clip.truth, heard.turns, heard.words, clip.duration)
        one.cpu = heard.cpu
        each.append(one)
        sets[clip.set] = sets.get(clip.set, Sums()) + one
    if len(sets) > 1:
        sets["all"] = sum(sets.values(), Sums())
    return sets, each


def table(system: str, sets: dict[str, Sums]) -> str:
    lines = [["set"] + COLUMNS]
    for name, sums in sets.items():
        row = sums.figures()
        texts = ["-" if row[column] is None else f"{row[column]:.2f}" for column in COLUMNS]
        texts[COLUMNS.index("counts")] = f"{sums.wrong_counts}/{sums.files}"
        lines.append([name] + texts)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join([system] + ["  ".join(text.rjust(width) if at else text.ljust(width)
                                           for at, (text, width) in enumerate(zip(line, widths))) for line in lines])


def show(clips: list[Clip], answers: list[Heard], each: list[Sums]) -> None:
    """Each file, in a line."""
    for clip, heard, one in zip(clips, answers, each):
        row = one.figures()
        print(f"  {clip.set}/{clip.path.name:<24} der {row['der']:6.2f}  der25 {row['der25']:6.2f}  "
              f"confusion {row['confusion']:6.2f}  speakers {len({turn[2] for turn in heard.turns})} of "
              f"{len({turn[2] for turn in clip.truth})}" + (f"  words {row['words']:.2f}" if one.words else ""))


def bounds_broken(bounds: list[tuple[str, float]], figures: dict[str, dict[str, dict]]) -> list[str]:
    """`SYSTEM.SET.FIGURE` above its bound; a figure without a value is within none."""
    broken = []
    for name, limit in bounds:
        system, group, figure = name.split(".")
        value = figures.get(system, {}).get(group, {}).get(figure)
        if value is None or value > limit:
            broken.append(f"{name} is {'absent' if value is None else format(value, '.2f')}, at most {limit:g}")
    return broken


def bound(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    if name.count(".") != 2:
        raise argparse.ArgumentTypeError("not SYSTEM.SET.FIGURE=MOST")
    return name, float(limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="SET")
    parser.add_argument("--binary", metavar="VERBATIM")
    parser.add_argument("--arguments", type=shlex.split, default="--model base", help="of the program, with --binary")
    parser.add_argument("--server", metavar="URL")
    parser.add_argument("--key")
    parser.add_argument("--systems", nargs="+", choices=["turns", "POST", "live"], default=["turns", "POST", "live"])
    parser.add_argument("--pace", type=float, default=0.0, help="of the live path; 1: real time")
    parser.add_argument("--rttm", nargs="+", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--peers", nargs="+", default=[], metavar="KIND[=FILE]")
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--threads", type=int, default=2, help="of each peer")
    parser.add_argument("--show", action="store_true", help="each file")
    parser.add_argument("--bounds", nargs="+", type=bound, default=[], metavar="SYSTEM.SET.FIGURE=MOST")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clips = clips_of(options.sets)
    print(f"{len(clips)} files, {sum(clip.duration for clip in clips):.0f} s", file=sys.stderr, flush=True)
    figures, failures, answers_of = {}, [], {}

    def take(name: str, answers: list[Heard], began: float) -> None:
        sets, each = measured(clips, answers)
        figures[name.split(" ")[0]] = {group: sums.figures() for group, sums in sets.items()}
        answers_of[name] = {str(clip.path): vars(heard) for clip, heard in zip(clips, answers)}
        failures.extend(f"{name}, {clip.path}: {heard.failure}" for clip, heard in zip(clips, answers) if heard.failure)
        print(table(f"{name}, took {time.monotonic() - began:.0f} s", sets))
        if options.show:
            show(clips, answers, each)
        print(flush=True)

    def run(name: str, hear, *given) -> None:
        began = time.monotonic()
        take(name, hear(*given), began)

    with ExitStack() as stack:
        if options.binary and "turns" in options.systems:
            run("turns", over_transcribe, options.binary, options.arguments, clips)
        server, key, pid = options.server, options.key, None
        if options.binary and not server and {"POST", "live"} & set(options.systems):
            served = stack.enter_context(serving(options.binary, *options.arguments))
            server, key, pid = served.url, served.door.key, served.pid
        if server and "POST" in options.systems:
            run("POST", over_post, Door(server, key), clips, pid)
        if server and "live" in options.systems:
            run("live", over_live, server, key, clips, options.pace)
        for text in options.rttm:
            name, _, folder = text.partition("=")
            run(name, of_files, Path(folder), clips)
        for kind in options.peers:
            # One at a time: each has the machine to itself.
            with ExitStack() as alone:
                peers, absent = start_peers([kind], options.peers_python, None, options.threads, alone, DIARIZER)
                for name, peer in peers.items():
                    run(f"{name} ({peer.version})", over_peer, peer, clips)
                for name, reason in absent.items():
                    print(f"absent: {name}: {reason}\n")
    broken = bounds_broken(options.bounds, figures)
    for line in failures:
        print(line, file=sys.stderr)
    for line in broken:
        print("BROKEN: " + line)
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "broken": broken, "answers": answers_of}))
    return 1 if broken or failures else 0


if __name__ == "__main__":
    sys.exit(main())
