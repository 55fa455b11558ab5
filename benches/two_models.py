#!/usr/bin/env python3
"""Two models in one server: what each loses to the other, in wall time and in processor time.

    benches/two_models.py --binary target/release/verbatim --clips FOLDER --models base,tiny.en

Starts a server with both (`models.serve`) and gives each the same clips by `--callers` callers who wait for their answers,
`--rounds` times: the first model alone, the second alone, then both at once, in an order that changes from round to round.
Told are, for each round and in the median: the wall and processor seconds of the two alone added up, those of both at
once, and for each model how much longer its work took beside the other, and its median time to answer. With fair turns at
the device, the model with less work takes twice as long as alone, and the other as long as both alone. Run it on a quiet
machine.
"""

import argparse
import os
import statistics
import sys
import threading
import time
from pathlib import Path

from door import Door, percentile, serving


class Work:
    """All clips, once, by one model."""

    def __init__(self, door: Door, model: str, clips: list[bytes], callers: int):
        self.door, self.model, self.callers = door, model, callers
        self.left, self.lock = list(clips), threading.Lock()
        self.latencies, self.failures, self.seconds = [], [], 0.0

    def run(self):
        began = time.monotonic()
        threads = [threading.Thread(target=self.call) for _ in range(self.callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.monotonic() - began

    def call(self):
        while True:
            with self.lock:
                if not self.left:
                    return
                clip = self.left.pop()
            answer, _ = self.door.listen_patiently(clip, model=self.model)
            if answer.status == 200:
                self.latencies.append(answer.seconds)
            else:
                self.failures.append((answer.status, answer.body[:200]))


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(pid: int, works: list[Work]) -> tuple[float, float]:
    """Wall and processor seconds of all of them at once."""
    before, began = processor_seconds(pid), time.monotonic()
    threads = [threading.Thread(target=work.run) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began, processor_seconds(pid) - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to measure")
    parser.add_argument("--clips", required=True, type=Path, help="a folder of audio files")
    parser.add_argument("--models", default="base,tiny.en", help="two, the default first")
    parser.add_argument("--callers", type=int, default=4, help="of each model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=40, help="clips in a round")
    options = parser.parse_args()
    names = options.models.split(",")
    files = sorted(path for path in options.clips.iterdir() if path.suffix in {".wav", ".flac", ".mp3", ".ogg"})
    clips = [path.read_bytes() for path in files[:options.most]]
    if len(names) != 2 or not clips:
        parser.error("two models, and a folder with audio")
    settings = {"VERBATIM_MODELS__SERVE": names[1], "VERBATIM_LOG__LEVEL": "warn",
                "VERBATIM_ENGINE__MAX_WAIT_SECONDS": "600"}
    failed, walls, costs = 0, [], []
    with serving(options.binary, "--model", names[0], settings=settings) as served:
        def work(name: str) -> Work:
            return Work(served.door, name, clips, options.callers)
        # Both are loaded, and their speed is known.
        measured(served.pid, [Work(served.door, name, clips[:4], 1) for name in names])
        for number in range(options.rounds):
            alone, both = [work(name) for name in names], [work(name) for name in names]
            runs = [[alone[0]], [alone[1]], both]
            runs = runs[number % 3:] + runs[:number % 3]
            took = {id(run[0]): measured(served.pid, run) for run in runs}
            apart = [sum(times) for times in zip(took[id(alone[0])], took[id(alone[1])])]
            together = took[id(both[0])]
            walls.append(together[0] / apart[0])
            costs.append(together[1] / apart[1])
            print(f"round {number + 1}: one after the other {apart[0]:.1f} s wall, {apart[1]:.1f} s processor; "
                  f"both at once {together[0]:.1f} s ({walls[-1]:.2f}), {together[1]:.1f} s ({costs[-1]:.2f})")
            for one, other in zip(alone, both):
                p50 = [percentile(run.latencies, 0.5) for run in (one, other)]
                print(f"  {one.model}: alone {one.seconds:.1f} s, p50 {p50[0] * 1e3:.0f} ms; beside the other "
                      f"{other.seconds:.1f} s ({other.seconds / one.seconds:.2f}), p50 {p50[1] * 1e3:.0f} ms")
                for status, body in one.failures + other.failures:
                    failed += 1
                    print(f"  {one.model}: {status} {body!r}", file=sys.stderr)
    print(f"median of {options.rounds}: wall {statistics.median(walls):.3f}, processor {statistics.median(costs):.3f} "
          f"times that of one after the other; {len(clips)} clips, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
