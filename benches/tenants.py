#!/usr/bin/env python3
"""Two organisations on one server: A with 180 callers who ask without a pause, B with one.

B: how long until an answer, refusals included, first with A silent and then beside A. A: statuses, how long a
refusal takes, and whether Retry-After was true. Refused callers of A come back after Retry-After, or with
`--impatient` after 50 ms. One caller in twenty finds out when there was room: once refused it asks four times a
second or faster until the server takes it, and that time is compared with the Retry-After of its first refusal.
With `--impatient`, another one in twenty obeys Retry-After.

Then, with small maxima: A opens live streams, starts voice sessions and submits jobs until the server refuses, and
B asks for one of each.

Use a short clip in a small file: the client's work slows the server, as both share a machine.
"""

import argparse
import asyncio
import json
import math
import socket
import sys
import time
from collections import Counter
from pathlib import Path

from callers import REFUSED, Client, Strain, Watched, concluded, patiently, show, spread, two_tenants, upgrade
from door import percentile

IMPATIENT_SECONDS = 0.05
# One in so many of A's callers measures whether Retry-After is true, and another one obeys it.
SAMPLED = 20
SMALL = 10
# A request that B has sent in time is waited for so much longer.
LAST_SECONDS = 60.0


class Crowd:
    """A's callers, and what they saw."""

    def __init__(self, served, audio: bytes, impatient: bool):
        self.served, self.audio, self.impatient = served, audio, impatient
        self.statuses, self.refusals, self.waits = Counter(), [], []
        self.returned, self.taken, self.truths, self.seeking, self.without_wait = 0, 0, [], 0, 0
        self.full = asyncio.Event()

    async def ask(self, client: Client, number: int):
        answer = await client.listen(self.audio, language="en", tag=f"a-{number}")
        self.statuses[answer.status] += 1
        if answer.status in REFUSED:
            self.full.set()
            self.refusals.append(answer.seconds)
            if answer.retry_after is None:
                self.without_wait += 1
            else:
                self.waits.append(answer.retry_after)
        elif answer.status != 200:
            await asyncio.sleep(0.1)
        return answer

    async def call(self, number: int) -> None:
        client = Client(self.served, self.served.door.key)
        obeys = not self.impatient or number % SAMPLED == 1
        was_told = False
        while True:
            answer = await self.ask(client, number)
            if was_told:
                self.returned += 1
                self.taken += answer.status == 200
            was_told = False
            if answer.status not in REFUSED:
                continue
            told = answer.retry_after or 1.0
            if number % SAMPLED == 0:
                await self.find_out(client, number, told)
            elif obeys:
                was_told = answer.retry_after is not None
                await asyncio.sleep(told)
            else:
                await asyncio.sleep(IMPATIENT_SECONDS)

    async def find_out(self, client: Client, number: int, told: float) -> None:
        """When there is room: by asking all the time, up to three times as long as was told."""
        began = time.monotonic()
        self.seeking += 1
        while True:
            await asyncio.sleep(min(0.25, told / 20))
            asked = time.monotonic() - began
            answer = await self.ask(client, number)
            if answer.status not in REFUSED or asked > 3 * told + 5:
                break
        self.seeking -= 1
        self.truths.append((told, asked))

    def figures(self) -> dict:
        near = [abs(told - truth) <= 0.3 * truth for told, truth in self.truths]
        # The header tells whole seconds.
        rounded = [abs(told - truth) <= max(1.0, 0.3 * truth) for told, truth in self.truths]
        ratios = [told / truth for told, truth in self.truths]
        return {
            "statuses": dict(self.statuses),
            **spread("refused", self.refusals),
            "refused_without_retry_after": self.without_wait,
            "retry_after_least_median_most_s": [percentile(self.waits, part) for part in (0.0, 0.5, 1.0)],
            "came_back_as_told": self.returned,
            "taken_when_back": self.taken,
            # Those that were still asking at the end had been told to wait for longer than the run went on.
            "compared_with_the_truth": len(ratios),
            "not_compared": self.seeking,
            "told_to_true_p5_p50_p95": [round(percentile(ratios, part), 2) for part in (0.05, 0.5, 0.95)],
            "within_30_percent": sum(near),
            "within_30_percent_or_a_second": sum(rounded),
        }


async def one_caller(client: Client, audio: bytes, seconds: float, statuses: Counter) -> list[float]:
    """B: one request after the other."""
    until, took = time.monotonic() + seconds, []
    while time.monotonic() < until:
        took.append(await patiently(lambda: client.listen(audio, language="en", tag="b"), statuses,
                                    until + LAST_SECONDS))
    return took


async def crowded(options, served, key: str) -> dict:
    audio, client = options.clip.read_bytes(), Client(served, key)
    for _ in range(8):
        await client.listen(audio, language="en")
    statuses_alone, statuses = Counter(), Counter()
    alone = await one_caller(client, audio, options.seconds, statuses_alone)
    crowd = Crowd(served, audio, options.impatient)
    async with Strain() as strain, Watched(served.pid, 1.0) as watched:
        callers = [asyncio.create_task(crowd.call(number)) for number in range(options.callers)]
        try:
            async with asyncio.timeout(options.seconds / 2):
                await crowd.full.wait()
        except TimeoutError:
            print("A was never refused before B came: its callers fit in; see --max-wait", flush=True)
        beside = await one_caller(client, audio, options.seconds, statuses)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    return {
        "b_alone": {"statuses": dict(statuses_alone), **spread("answered", alone)},
        "b_beside_a": {"statuses": dict(statuses), **spread("answered", beside)},
        "a": crowd.figures(),
        "machine": {**strain.figures(), "memory_before_peak_mib": [watched.before_mib, watched.peak_mib]},
    }


async def hold(take) -> dict:
    """A takes until it is refused, up to twice what there is."""
    for held in range(2 * SMALL):
        answer = await take()
        if answer.status not in (200, 101):
            return {"a_holds": held, "a_then": answer.status, "a_told_s": answer.retry_after}
    return {"a_holds": 2 * SMALL, "a_then": None, "a_told_s": None}


async def resources(served, key: str, audio: bytes, silent: str) -> dict:
    a, b, found, open_streams = Client(served, served.door.key), Client(served, key), {}, []

    async def stream(by: str):
        answer, _, writer = await upgrade(served, "/v1/listen?encoding=linear16&sample_rate=16000", by)
        open_streams.append(writer)
        return answer

    found["live streams"] = await hold(lambda: stream(served.door.key))
    found["live streams"]["b"] = (await stream(key)).status
    for writer in filter(None, open_streams):
        writer.close()
    start, json_type = json.dumps({"action": "start"}).encode(), "application/json"
    found["voice sessions"] = await hold(lambda: a.ask("/STS/interactiveAgent", start, json_type))
    found["voice sessions"]["b"] = (await b.ask("/STS/interactiveAgent", start, json_type)).status
    found["waiting jobs"] = await hold(lambda: a.listen(audio, callback=silent))
    found["waiting jobs"]["b"] = (await b.listen(audio, callback=silent)).status
    return found


def shared(options) -> dict:
    arguments = options.server_arguments.split()
    settings = {"VERBATIM_LOG__LEVEL": "warn"}
    if options.max_wait is not None:
        settings["VERBATIM_ENGINE__MAX_WAIT_SECONDS"] = str(options.max_wait)
    results = {}
    if not options.only_resources:
        with two_tenants(options.binary, *arguments, settings=settings) as (served, key):
            results |= asyncio.run(crowded(options, served, key))
        for title, figures in results.items():
            show(title.replace("_", " "), figures)
    # Jobs are delivered to who never answers, and so wait.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings |= {"VERBATIM_LIVE__MAX_STREAMS": str(SMALL), "VERBATIM_JOBS__PENDING_MAX": str(SMALL),
                     "VERBATIM_STS__SESSIONS_MAX": str(SMALL), "VERBATIM_FETCH__ALLOW": address,
                     "VERBATIM_STS__SPEECH__EMBEDDED": "none"}
        with two_tenants(options.binary, *arguments, settings=settings) as (served, key):
            audio = options.clip.read_bytes()
            found = results["resources"] = asyncio.run(resources(served, key, audio, f"http://{address}/"))
    show(f"resources of which there are {SMALL}", found)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to load")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--clip", required=True, type=Path, help="a few seconds of speech")
    parser.add_argument("--callers", type=int, default=180, help="of A")
    parser.add_argument("--seconds", type=float, default=60.0, help="of B alone, and of B beside A")
    parser.add_argument("--impatient", action="store_true", help="A's callers come back after 50 ms regardless")
    parser.add_argument("--max-wait", type=float, metavar="SECONDS", help="engine.max_wait_seconds")
    parser.add_argument("--only-resources", action="store_true", help="streams, sessions and jobs alone")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    results = shared(options)
    goals = []
    if "a" in results:
        a, alone, beside = (results[name] for name in ("a", "b_alone", "b_beside_a"))
        compared, back = a["compared_with_the_truth"], a["came_back_as_told"]
        goals += [
            ("B's p99 beside A to its p99 alone", beside["answered_p99_s"] / alone["answered_p99_s"], 2.0),
            ("B's refusals and failures", sum(beside["statuses"].values()) - beside["statuses"].get(200, 0), 0),
            ("A's refusals, p99, s", a["refused_p99_s"], 0.05),
            ("Retry-After off by over 30 % and a second, part",
             1 - a["within_30_percent_or_a_second"] / compared if compared else math.nan, 0.1),
            ("came back as told and refused, part", 1 - a["taken_when_back"] / back if back else math.nan, 0.1),
        ]
    for name, found in results["resources"].items():
        goals.append((f"{name}: A refused with other than 429, or B refused",
                      (found["a_then"] != 429) + (found["a_told_s"] is None) + (found["b"] not in (200, 101)), 0))
    return concluded(results, goals, options.json)


if __name__ == "__main__":
    sys.exit(main())
