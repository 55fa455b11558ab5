#!/usr/bin/env python3
"""More work than the server can do, offered without waiting for it (open loop), on loopback.

Starts a server and sends one clip over and over: first as fast as `--callers` can who wait for their
answers, which is its capacity; then at 80 % of that; then at `--times` that; then its capacity once more, as
machines are not the same from minute to minute: what is compared with it is compared with the mean of both.
Callers come as those do who know nothing of each other, a Poisson process (`--arrivals even`: at even
distances). A refused caller goes away. Of the refused, every twentieth comes back once, when it was told to:
whether Retry-After was true is whether it was then taken. The server knows who comes back by what it asks; as
all send the same clip here, a tag makes the callers differ.
"""

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from door import Answer, Door, memory_mib, percentile, serving

# Requests open at the same time: a bound on threads here, not on the load. Reaching it is reported.
OPEN_MOST = 1024
COMING_BACK = 20


def capacity(door: Door, audio: bytes, callers: int, seconds: float) -> float:
    """Requests answered in a second while so many ask without a pause."""
    until, done = time.monotonic() + seconds, []

    def ask() -> None:
        while time.monotonic() < until:
            answer = door.listen(audio, language="en")
            if answer.status == 200:
                done.append(time.monotonic())
            else:
                time.sleep(0.1)

    began = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        for _ in range(callers):
            pool.submit(ask)
    # All that was asked is answered: no answer is half counted.
    return len(done) / (time.monotonic() - began)


def arrivals(rate: float, seconds: float, kind: str) -> list[float]:
    """When callers come, in seconds; the same at every call."""
    if kind == "even":
        return [number / rate for number in range(int(rate * seconds))]
    chance, at, times = random.Random(1), 0.0, []
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    return times


def offer(door: Door, audio: bytes, rate: float, seconds: float, kind: str) -> dict:
    """`rate` requests in a second, whatever comes back."""
    answers, returns, unsent = [], [], 0
    room = threading.Semaphore(OPEN_MOST)

    def send(number: int, kept: list) -> Answer:
        answer = door.listen(audio, language="en", tag=f"caller-{number}")
        kept.append((time.monotonic(), answer))
        return answer

    def ask(number: int) -> None:
        try:
            answer = send(number, answers)
            if answer.status == 503 and answer.retry_after and number % COMING_BACK == 0:
                time.sleep(answer.retry_after)
                send(number, returns)
        finally:
            room.release()

    began = time.monotonic()
    with ThreadPoolExecutor(OPEN_MOST) as pool:
        for number, at in enumerate(arrivals(rate, seconds, kind)):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if room.acquire(blocking=False):
                pool.submit(ask, number)
            else:
                unsent += 1
    both = answers + returns
    taken = [answer.seconds for _, answer in both if answer.status == 200]
    refused = [answer for _, answer in answers if answer.status == 503]
    # Goodput is counted while the load lasts; what is left in the queue at the end comes on top.
    in_time = sum(answer.status == 200 and at <= began + seconds for at, answer in both)
    waits = [answer.retry_after for answer in refused if answer.retry_after]
    return {
        "offered_per_s": rate,
        "statuses": dict(Counter(answer.status for _, answer in both)),
        "unsent": unsent,
        "goodput_per_s": in_time / seconds,
        "accepted_p50_s": percentile(taken, 0.5),
        "accepted_p99_s": percentile(taken, 0.99),
        "refused_p50_s": percentile([answer.seconds for answer in refused], 0.5),
        "refused_p99_s": percentile([answer.seconds for answer in refused], 0.99),
        "refused_without_retry_after": len(refused) - len(waits),
        "retry_after_p50_s": percentile(waits, 0.5),
        "came_back": len(returns),
        "taken_when_back": sum(answer.status == 200 for _, answer in returns),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to load")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--clip", required=True, type=Path, help="a few seconds of speech")
    parser.add_argument("--callers", type=int, default=16, help="who wait, to find the capacity")
    parser.add_argument("--times", type=float, default=4.0, help="the load, in capacities")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each of the two loads")
    parser.add_argument("--arrivals", choices=("poisson", "even"), default="poisson")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--max-wait", type=float, metavar="SECONDS",
                        help="engine.max_wait_seconds of the two loads; the capacity is found with the default")
    options = parser.parse_args()

    audio = options.clip.read_bytes()
    arguments = options.server_arguments.split()
    settings = {"VERBATIM_LOG__LEVEL": "warn"}

    def able_now() -> float:
        with serving(options.binary, *arguments, settings=settings) as served:
            served.door.listen(audio, language="en")
            found = capacity(served.door, audio, options.callers, min(30.0, options.seconds))
        print(f"capacity with {options.callers} callers: {found:.2f} requests/s", flush=True)
        return found

    able = able_now()
    if not able:
        print("nothing was answered", file=sys.stderr)
        return 1
    bound = {}
    if options.max_wait is not None:
        bound["VERBATIM_ENGINE__MAX_WAIT_SECONDS"] = str(options.max_wait)
    with serving(options.binary, *arguments, settings=settings | bound) as served:
        # It has to know how fast it is before it can tell what is too much.
        for _ in range(8):
            served.door.listen(audio, language="en")
        memory = [memory_mib(served.pid)]
        loads = []
        for name, times in (("at 80 %", 0.8), (f"at {options.times:g} times", options.times)):
            loads.append(offer(served.door, audio, times * able, options.seconds, options.arrivals))
            memory.append(memory_mib(served.pid))
            print(f"\n{name}:")
            for figure, value in loads[-1].items():
                print(f"  {figure:<28} {value if isinstance(value, (dict, int)) else format(value, '.3f')}", flush=True)
    print()
    capacities = [able, able_now()]
    calm, storm = loads
    ratios = {
        "goodput to capacity": storm["goodput_per_s"] / (sum(capacities) / 2),
        "accepted p99 to p99 at 80 %": storm["accepted_p99_s"] / calm["accepted_p99_s"],
        "other statuses": sum(count for status, count in storm["statuses"].items() if status not in (200, 503)),
    }
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")
    print("memory, MiB, before, after 80 %, after the load:", ", ".join(f"{value:.0f}" for value in memory))
    results = {"capacities_per_s": capacities, "calm": calm, "storm": storm, "ratios": ratios, "memory_mib": memory}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
