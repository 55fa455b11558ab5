#!/usr/bin/env python3
"""Slow uploads and slow downloads of one organisation, and what another one beside them feels of it.

A sends 10 MB each on 2,000 connections at 4.5 kB/s, and names 500 URLs of a host that drips, half of them 4 bytes
and half 5 kB in a second. That host is this script, on loopback. B sends a clip, and the URL of a clip on a quick
host, one after the other: before, meanwhile and afterwards; what is meanwhile is compared with the mean of both, as
machines are not the same from minute to minute. A's that are refused or cut come back after `--again` seconds, or
later if Retry-After says so, and are counted each time.

Measured: how long B waits for its answers, refusals included, its statuses, the server's memory, and how long
each slow one was kept. Needs some 6,000 open files, here and in the server.
"""

import argparse
import asyncio
import json
import socket
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from callers import (Client, Strain, Watched, concluded, open_files, patiently, read_head, show, spread,
                     told_wait, two_tenants)
from door import memory_mib, percentile

BODY_BYTES = 10_000_000
DRIPS = (4, 5_000)
# In one second each connection gets its bytes once; they are spread over so many moments.
MOMENTS = 50
# A request that B has sent in time is waited for so much longer.
LAST_SECONDS = 30.0


class Kept:
    """How long slow connections of each kind were kept, and how they ended."""

    def __init__(self):
        self.ends, self.seconds = defaultdict(Counter), defaultdict(list)

    def end(self, kind: str, how, seconds: float) -> None:
        self.ends[kind][how] += 1
        self.seconds[kind].append(seconds)

    def figures(self) -> dict:
        return {kind: {"ends": dict(self.ends[kind]),
                       "kept_p50_longest_s": [round(percentile(self.seconds[kind], part), 2) for part in (0.5, 1)]}
                for kind in sorted(self.ends)}


class Upload(asyncio.Protocol):
    """One slow request: its head at once, of its body what `send` is given."""

    def __init__(self, served, number: int, kept: Kept):
        self.kept, self.transport, self.began, self.again = kept, None, 0.0, None
        self.head = (f"POST /v1/listen?tag=slow-{number} HTTP/1.1\r\nHost: {served.door.host}:{served.door.port}\r\n"
                     f"Authorization: Bearer {served.door.key}\r\nContent-Type: application/octet-stream\r\n"
                     f"Content-Length: {BODY_BYTES}\r\n\r\n").encode()
        self.over: asyncio.Future = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport, self.began = transport, time.monotonic()
        transport.write(self.head)

    def send(self, piece: bytes) -> None:
        if self.transport is not None:
            self.transport.write(piece)

    def data_received(self, data: bytes) -> None:
        if head := read_head(data):
            self.end(head[0], told_wait(head[1]))

    def connection_lost(self, error) -> None:
        self.end("closed")

    def end(self, how, again: float | None = None) -> None:
        if not self.over.done():
            self.kept.end("upload", how, time.monotonic() - self.began)
            self.over.set_result(again)
            self.transport.abort()
            self.transport = None


class Host(asyncio.Protocol):
    """A host of audio: `/4/n` drips four bytes in a second; without a rate it is the clip, at once."""

    def __init__(self, clip: bytes, dripping: set, kept: Kept):
        self.clip, self.dripping, self.kept, self.rate = clip, dripping, kept, 0

    def connection_made(self, transport) -> None:
        self.transport, self.began = transport, time.monotonic()

    def data_received(self, data: bytes) -> None:
        if self.rate or b"\r\n\r\n" not in data:
            return
        rate = data.split(b" ", 2)[1].split(b"/")[1]
        if rate.isdigit():
            self.rate = int(rate)
            self.dripping.add(self)
        length = BODY_BYTES if self.rate else len(self.clip)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: audio/flac\r\nContent-Length: {length}\r\n\r\n"
        self.transport.write(head.encode())
        if not self.rate:
            self.transport.write(self.clip)

    def drip(self) -> None:
        self.transport.write(self.clip[:self.rate].ljust(self.rate, b"\0"))

    def connection_lost(self, error) -> None:
        if self.rate:
            self.dripping.discard(self)
            self.kept.end(f"fetch of {self.rate} B/s", "closed", time.monotonic() - self.began)


async def in_moments(items, do) -> None:
    """Does it with each of what `items()` has, once in a second, spread over the second."""
    due = time.monotonic()
    while True:
        for moment in range(MOMENTS):
            for item in list(items())[moment::MOMENTS]:
                do(item)
            due += 1 / MOMENTS
            await asyncio.sleep(max(0.0, due - time.monotonic()))


class Attack:
    def __init__(self, options, served, kept: Kept, drip_port: int):
        self.options, self.served, self.kept, self.drip_port = options, served, kept, drip_port
        self.gate, self.uploads, self.tasks = asyncio.Semaphore(64), {}, []

    def begin(self, dripping: set) -> None:
        piece = bytes(self.options.rate)
        works = [self.upload(number) for number in range(self.options.uploads)]
        works += [self.download(number) for number in range(self.options.downloads)]
        works += [in_moments(self.uploads.values, lambda upload: upload.send(piece)),
                  in_moments(lambda: dripping, Host.drip)]
        self.tasks = [asyncio.create_task(work) for work in works]

    async def upload(self, number: int) -> None:
        door, loop = self.served.door, asyncio.get_running_loop()
        while True:
            upload, again = Upload(self.served, number, self.kept), None
            try:
                async with self.gate:
                    await loop.create_connection(lambda: upload, door.host, door.port)
                self.uploads[number] = upload
                again = await upload.over
            except OSError as error:
                self.kept.end("upload", repr(error), 0.0)
            self.uploads.pop(number, None)
            await asyncio.sleep(max(again or 0.0, self.options.again))

    async def download(self, number: int) -> None:
        client, rate = Client(self.served, self.served.door.key), DRIPS[number % len(DRIPS)]
        body = json.dumps({"url": f"http://127.0.0.1:{self.drip_port}/{rate}/{number}"}).encode()
        while True:
            answer = await client.ask(f"/v1/listen?tag=drip-{number}", body, "application/json")
            self.kept.end(f"request of {rate} B/s", answer.status, answer.seconds)
            await asyncio.sleep(max(answer.retry_after or 0.0, self.options.again))

    async def end(self) -> dict:
        """How many are still kept at the end."""
        left = {"uploads": len(self.uploads), "longest_upload_s":
                max((time.monotonic() - upload.began for upload in self.uploads.values()), default=0.0)}
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for upload in list(self.uploads.values()):
            upload.transport.abort()
        return left


async def normal(client: Client, clip: bytes, url: str, seconds: float) -> dict:
    """B: a clip, a URL, and so on."""
    until, statuses, body = time.monotonic() + seconds, Counter(), json.dumps({"url": url}).encode()
    ways = {
        "file": lambda: client.listen(clip, language="en", tag="b"),
        "url": lambda: client.ask("/v1/listen?language=en&tag=b-url", body, "application/json"),
    }
    took = {way: [] for way in ways}
    # Each way has been tried at the end, even where one takes all the time.
    while time.monotonic() < until or not all(took.values()):
        for way, ask in ways.items():
            last = max(until, time.monotonic()) + LAST_SECONDS
            took[way].append(await patiently(ask, statuses, last))
    return {"statuses": dict(statuses), **spread("file", took["file"]), **spread("url", took["url"])}


async def run(options, served, key: str, listening: list) -> dict:
    clip, kept, dripping = options.clip.read_bytes(), Kept(), set()
    loop, client, results = asyncio.get_running_loop(), Client(served, key), {}
    hosts = [await loop.create_server(lambda: Host(clip, dripping, kept), sock=sock) for sock in listening]
    quick, slow = (sock.getsockname()[1] for sock in listening)
    url = f"http://127.0.0.1:{quick}/clip"

    async def measure(name: str) -> None:
        async with Strain() as strain, Watched(served.pid, 0.25) as watched:
            figures = await normal(client, clip, url, options.seconds)
        results[name] = {**figures, **strain.figures(), "server_cores": watched.cores,
                         "memory_before_peak_mib": [watched.before_mib, watched.peak_mib]}
        show(name, results[name])

    await normal(client, clip, url, 5.0)
    await measure("before")
    attack = Attack(options, served, kept, slow)
    attack.begin(dripping)
    await asyncio.sleep(options.settle)
    await measure("meanwhile")
    results["still_kept"] = await attack.end()
    await asyncio.sleep(options.settle)
    results["kept"] = kept.figures()
    show("the slow ones", results["kept"] | results["still_kept"])
    await measure("afterwards")
    results["memory_after_mib"] = memory_mib(served.pid)
    for host in hosts:
        host.close()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to load")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--clip", required=True, type=Path, help="a few seconds of speech")
    parser.add_argument("--uploads", type=int, default=2000)
    parser.add_argument("--downloads", type=int, default=500)
    parser.add_argument("--rate", type=int, default=4500, help="of an upload, bytes a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of B before, meanwhile and afterwards")
    parser.add_argument("--settle", type=float, default=15.0, help="seconds before and after the slow ones")
    parser.add_argument("--again", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    open_files(2 * (options.uploads + 2 * options.downloads) + 500)
    listening = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    hosts = ",".join(f"127.0.0.1:{sock.getsockname()[1]}" for sock in listening)
    settings = {"VERBATIM_LOG__LEVEL": "warn", "VERBATIM_FETCH__ALLOW": hosts}
    with two_tenants(options.binary, *options.server_arguments.split(), settings=settings) as (served, key):
        results = asyncio.run(run(options, served, key, listening))
    goals = []
    for name in ("file_p50_s", "file_p99_s", "url_p50_s", "url_p99_s"):
        calm = (results["before"][name] + results["afterwards"][name]) / 2
        goals.append((f"B's {name} meanwhile to otherwise", results["meanwhile"][name] / calm, 1.1))
    statuses = results["meanwhile"]["statuses"]
    goals.append(("B's refusals and failures", sum(statuses.values()) - statuses.get(200, 0), 0))
    return concluded(results, goals, options.json)


if __name__ == "__main__":
    sys.exit(main())
