#!/usr/bin/env python3
"""This server and its peers on one machine: same weights, clips and threads, in turns.

Every system is loaded once: the server as `verbatim serve` on a free loopback port, each peer as a process
that answers over a pipe (benches/peers/peer.py). Rounds go A B C, B C A and so on; figures are medians over
the rounds. Scenarios: `one`, clips of 5 to 15 s one after the other; `many`, 16 at a time, over all clips
of less than a minute with speech; `long`, the files of four minutes and more, one by one.

RTFx: seconds of audio in a second. CPU: seconds of audio in a second of processor time, which hardly
depends on what else the machine does. The manifest is that of benches/accuracy.py.
"""

import argparse
import itertools
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from door import Served, memory_mib, percentile, serving
from peer_process import Peer, start_peers
from scoring import error_rate, read_lines

DEFAULT_PEERS = ["faster-whisper-f32", "faster-whisper-f32-batched", "faster-whisper-int8",
                 "faster-whisper-int8-batched", "faster-whisper-int8-workers"]
MANY = 16


class Ours:
    def __init__(self, served: Served):
        self.door, self.pid = served.door, served.pid

    def transcribe(self, file: Path, language: str) -> str:
        answer = self.door.listen(file.read_bytes(), language=language)
        if answer.status != 200:
            raise RuntimeError(f"{file.name}: {answer.status} {answer.body[:200]}")
        return answer.alternative()["transcript"]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(system, clips: list[dict], folder: Path, concurrency: int) -> dict:
    def one(clip):
        began = time.monotonic()
        text = system.transcribe(folder / clip["file"], clip["language"])
        return time.monotonic() - began, text

    spent, began = cpu_seconds(system.pid), time.monotonic()
    with ThreadPoolExecutor(concurrency) as pool:
        results = list(pool.map(one, clips))
    wall, spent = time.monotonic() - began, cpu_seconds(system.pid) - spent
    audio = sum(clip["duration"] for clip in clips)
    spoken = [(clip["text"], text, "en") for clip, (_, text) in zip(clips, results)
              if clip.get("text") and clip["language"] == "en"]
    latencies = [seconds for seconds, _ in results]
    return {"rtfx": audio / wall, "cpu": audio / max(spent, 0.01), "p50": percentile(latencies, 0.5),
            "p95": percentile(latencies, 0.95), "wer": error_rate(spoken)}


def scenarios(clips: list[dict], chosen: list[str], limit: int | None) -> dict:
    spoken = [clip for clip in clips if clip["kind"] != "empty"]
    all_of = {
        "one": (1, [clip for clip in spoken if 5 <= clip["duration"] <= 15][:24]),
        "many": (MANY, [clip for clip in spoken if clip["duration"] < 60]),
        "long": (1, [clip for clip in spoken if clip["duration"] >= 240]),
    }
    return {name: (count, clips[:limit]) for name, (count, clips) in all_of.items() if name in chosen and clips}


def start(options, stack: ExitStack) -> dict:
    systems = {}
    for kind in options.compute_types if options.binary else []:
        # A wait that is never too long: here nothing is to be refused.
        served = stack.enter_context(serving(
            options.binary, "--model", str(options.model), "--threads", str(options.threads),
            "--compute-type", kind, timeout=900, settings={"VERBATIM_ENGINE__MAX_WAIT_SECONDS": "3600"}))
        systems[f"verbatim {kind}"] = Ours(served)
    systems |= start_peers(options.peers, options.peers_python, options.model, options.threads, stack)[0]
    return systems


def summarise(rounds: dict, systems: dict) -> list[dict]:
    """A row for each scenario and system; ratios are to the best peer of the scenario."""
    rows = []
    for scenario, by_system in rounds.items():
        rows_here = []
        for name, runs in by_system.items():
            row = {"scenario": scenario, "system": name, "rounds": len(runs)}
            for figure in ("rtfx", "cpu", "p50", "p95"):
                row[figure] = median(run[figure] for run in runs)
            row["wer"] = runs[-1]["wer"]
            row["spread"] = [min(run["rtfx"] for run in runs), max(run["rtfx"] for run in runs)]
            row["rss_mib"] = memory_mib(systems[name].pid, "VmHWM")
            rows_here.append(row)
        peers = [row for row in rows_here if isinstance(systems[row["system"]], Peer)]
        for row in rows_here:
            if peers:
                row["to_best"] = row["rtfx"] / max(peer["rtfx"] for peer in peers)
                row["cpu_to_best"] = row["cpu"] / max(peer["cpu"] for peer in peers)
        rows += rows_here
    return rows


HEADINGS = ["scenario", "system", "RTFx", "least-most", "to best peer", "RTFx of CPU", "to best peer", "p50 s",
            "p95 s", "WER %", "peak MiB"]


def cells(row: dict) -> list[str]:
    ratio = [f"{row[name]:.2f}" if name in row else "-" for name in ("to_best", "cpu_to_best")]
    wer = "-" if row["wer"] is None else f"{100 * row['wer']:.2f}"
    return [row["scenario"], row["system"], f"{row['rtfx']:.1f}", "{:.1f}-{:.1f}".format(*row["spread"]), ratio[0],
            f"{row['cpu']:.1f}", ratio[1], f"{row['p50']:.2f}", f"{row['p95']:.2f}", wer, f"{row['rss_mib']:.0f}"]


def table(rows: list[dict], markdown: bool) -> str:
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    texts = [[text.ljust(width) for text, width in zip(line, widths)] for line in lines]
    if not markdown:
        return "\n".join("  ".join(text) for text in texts)
    texts.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(text) + " |" for text in texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the verbatim to measure; without it, the peers alone")
    parser.add_argument("--model", required=True, type=Path, help="CTranslate2 folder, for all that read it")
    parser.add_argument("--manifest", required=True, type=Path)
    parser.add_argument("--compute-types", nargs="*", default=["f32", "bf16", "int8"])
    parser.add_argument("--peers", nargs="*", default=DEFAULT_PEERS, metavar="KIND[=MODEL]",
                        help="kinds of benches/peers/peer.py; MODEL where one reads another format")
    parser.add_argument("--peers-python", default=sys.executable, help="an interpreter that has the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenarios", nargs="+", default=["one", "many", "long"], choices=["one", "many", "long"])
    parser.add_argument("--limit", type=int, metavar="N", help="the first N clips of each scenario")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()

    work = scenarios(read_lines(options.manifest), options.scenarios, options.limit)
    with ExitStack() as stack:
        systems = start(options, stack)
        names = list(systems)
        folder = options.manifest.parent
        rounds = {scenario: {name: [] for name in names} for scenario in work}
        for system in systems.values():
            run(system, next(iter(work.values()))[1][:2], folder, 1)  # Warm.
        for number, (scenario, (concurrency, clips)) in itertools.product(range(options.rounds), work.items()):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                figures = run(systems[name], clips, folder, concurrency)
                rounds[scenario][name].append(figures)
                print(f"round {number + 1} {scenario} {name}: {figures['rtfx']:.1f}x", file=sys.stderr, flush=True)
        rows = summarise(rounds, systems)
        versions = {name: system.version for name, system in systems.items() if isinstance(system, Peer)}
    print(table(rows, options.markdown))
    print()
    for scenario, (concurrency, clips) in work.items():
        print(f"{scenario}: {len(clips)} clips, {sum(clip['duration'] for clip in clips):.0f} s, {concurrency} at a time")
    print("; ".join(sorted(set(versions.values()))), f"; {options.threads} threads; load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "rounds": rounds, "versions": versions}, indent=1))


if __name__ == "__main__":
    main()
