#!/usr/bin/env python3
"""Files over HTTP, more of them than the server can take, and live streams: a server under load, on loopback.

    load.py --binary VERBATIM --json FILE [--seconds 10] [--callers 1 16 128] [--streams 100 200 400] -- SERVE ARGUMENTS …

Starts `verbatim serve` with the arguments. The sound is made here (voice.py): a clip of 10 s, with words asked for.
Every phase is written to FILE as soon as it ends. The standard library alone.
"""

import argparse
import asyncio
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from door import Door, memory_mib, percentile, serving
from overload import offer
from record import write
from streams import crowd
from voice import RATE, as_wave, clip

QUIET = {"VERBATIM_LOG__LEVEL": "warn"}


def closed_loop(door: Door, audio: bytes, callers: int, stop: threading.Event, answers: list) -> list:
    """Threads of callers that send the next request as soon as the last is answered; started."""

    def ask() -> None:
        while not stop.is_set():
            answer = door.listen(audio, words=True, language="en")
            answers.append((answer.status, answer.seconds))
            if answer.status != 200:
                stop.wait(0.1)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    return threads


def files(door: Door, audio: bytes, callers: int, seconds: float, clip_seconds: float) -> dict:
    stop, answers, began = threading.Event(), [], time.monotonic()
    threads = closed_loop(door, audio, callers, stop, answers)
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    return {"callers": callers, "seconds": took} | answered(answers, took, clip_seconds)


def answered(answers: list, took: float, clip_seconds: float) -> dict:
    times = [seconds for status, seconds in answers if status == 200]
    return {
        "requests_per_second": len(times) / took, "rtfx": len(times) * clip_seconds / took,
        "statuses": dict(Counter(status for status, _ in answers)),
        "p50_seconds": percentile(times, 0.5), "p95_seconds": percentile(times, 0.95),
        "p99_seconds": percentile(times, 0.99),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--callers", type=int, nargs="*", default=[1, 16, 128])
    parser.add_argument("--streams", type=int, nargs="*", default=[100, 200, 400])
    parser.add_argument("arguments", nargs="*", help="of `verbatim serve`")
    options = parser.parse_args()
    sound, ends = clip()
    audio, clip_seconds = as_wave(sound), len(sound) / 2 / RATE
    report = {"server": options.arguments, "clip_seconds": clip_seconds, "files": [], "overload": None, "live": []}
    failed = []
    with serving(options.binary, *options.arguments, settings=QUIET) as served:
        warm = served.door.listen(audio, words=True, language="en")
        if warm.status != 200:
            print(f"the first request: {warm.status} {warm.body[:500]!r}", file=sys.stderr)
            return 1
        report["memory_mib_before"] = memory_mib(served.pid)
        for callers in options.callers:
            report["files"].append(files(served.door, audio, callers, options.seconds, clip_seconds))
            write(options.json, report)
            if set(report["files"][-1]["statuses"]) - {200, 429, 503}:
                failed.append(f"{callers} callers: {report['files'][-1]['statuses']}")
        able = max((of["requests_per_second"] for of in report["files"]), default=0.0)
        if able:
            report["overload"] = offer(served.door, audio, 2 * able, options.seconds, "poisson")
            report["overload"]["to_capacity"] = report["overload"]["goodput_per_s"] / able
            write(options.json, report)
            # Live streams begin on an idle server.
            served.door.listen_patiently(audio, language="en")
        for count in options.streams:
            report["live"].append(asyncio.run(crowd(served, sound, ends, count, options.seconds + 4)))
            write(options.json, report)
            heard = report["live"][-1]
            if heard["broken"] or not heard["words"]:
                failed.append(f"{count} streams: {heard}")
        report["memory_mib_after"] = memory_mib(served.pid)
        report["memory_mib_peak"] = memory_mib(served.pid, "VmHWM")
    write(options.json, report)
    for problem in failed:
        print(problem, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
