#!/usr/bin/env python3
"""A server under a steady load of files and live streams, and what becomes of its memory.

    soak.py --binary VERBATIM --json FILE [--seconds 300] [--callers 32] [--streams 100] [--gpu 0] -- SERVE ARGUMENTS …

Memory of the process is sampled from /proc, that of the GPU by nvidia-smi (`--gpu`: its index). The slope is that of the
least squares over all samples but those of the first quarter, in MiB a minute. The standard library alone.
"""

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

from door import memory_mib, serving
from load import QUIET, answered, closed_loop
from record import write
from streams import crowd
from voice import RATE, as_wave, clip

PERIOD_SECONDS = 2.0


def gpu_mib(index: int) -> float | None:
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(query, capture_output=True, text=True, timeout=10).stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def slope(samples: list) -> float | None:
    """MiB a minute, of pairs of seconds and MiB."""
    kept = [(at, mib) for at, mib in samples[len(samples) // 4:] if mib is not None]
    if len(kept) < 3:
        return None
    mean_at, mean = (sum(column) / len(kept) for column in zip(*kept))
    spread = sum((at - mean_at) ** 2 for at, _ in kept)
    return 60 * sum((at - mean_at) * (mib - mean) for at, mib in kept) / spread


def quarters(samples: list) -> list:
    return [samples[(len(samples) - 1) * part // 4][1] for part in range(5)] if samples else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--gpu", type=int, metavar="INDEX")
    parser.add_argument("arguments", nargs="*", help="of `verbatim serve`")
    options = parser.parse_args()
    sound, ends = clip()
    audio, clip_seconds = as_wave(sound), len(sound) / 2 / RATE
    stop, answers, resident, device = threading.Event(), [], [], []
    with serving(options.binary, *options.arguments, settings=QUIET) as served:
        served.door.listen(audio, words=True, language="en")
        began = time.monotonic()
        live: dict = {}

        def report() -> dict:
            took = time.monotonic() - began
            return {
                "server": options.arguments, "seconds": took, "callers": options.callers,
                "files": answered(list(answers), took, clip_seconds), "live": live,
                "resident_mib": quarters(resident), "resident_slope_mib_per_minute": slope(resident),
                "gpu_mib": quarters(device), "gpu_slope_mib_per_minute": slope(device),
            }

        def sample() -> None:
            while True:
                at = time.monotonic() - began
                resident.append((at, memory_mib(served.pid)))
                if options.gpu is not None:
                    device.append((at, gpu_mib(options.gpu)))
                write(options.json, report())
                if stop.wait(min(PERIOD_SECONDS, options.seconds / 8)):
                    return

        threads = [threading.Thread(target=sample, daemon=True)]
        threads[0].start()
        threads += closed_loop(served.door, audio, options.callers, stop, answers)
        live.update(asyncio.run(crowd(served, sound, ends, options.streams, options.seconds)))
        stop.set()
        for thread in threads:
            thread.join()
        whole = report()
    write(options.json, whole)
    others = set(whole["files"]["statuses"]) - {200, 429, 503}
    if others or live["broken"] or not live["words"]:
        print(f"statuses {whole['files']['statuses']}, streams {live}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
