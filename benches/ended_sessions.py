#!/usr/bin/env python3
"""Voice sessions that have ended: what they leave in the server's memory, on its disk, and to its next start.

Starts so many sessions, each with a document of 100 kB, every hundredth with one of 1 MB; joins each over
its WebSocket, reads the welcome, and leaves. A session ends a second after that. After every thousand, once the
last one has ended, memory and the files of `sts.sqlite3` are measured; at the end the server is started again on
the same state. Flat is: no more than `--most` MiB above the memory after the first thousand, also after the restart.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.parse
from collections import Counter
from pathlib import Path

from callers import REFUSED, Client, judged, show, upgrade
from door import memory_mib, serving
from idle_streams import frame, messages

LARGE_EVERY = 100
MARKS = 10
ENDED_WITHIN = 60.0
SETTINGS = {
    "VERBATIM_LOG__LEVEL": "warn",
    "VERBATIM_STS__REJOIN_SECONDS": "1",
    # A greeting would be spoken to everyone.
    "VERBATIM_STS__SPEECH__EMBEDDED": "none",
}


def prose(size: int) -> str:
    """Sentences of made-up words, about as many different ones as in a language."""
    chance = random.Random(1)
    words = ["".join(chance.choices("bdfgklmnprstvz", k=2)) + chance.choice("aeiou") + chance.choice("lmnrst")
             for _ in range(5000)]
    text = ""
    while len(text) < size:
        text += " ".join(chance.choices(words, k=12)).capitalize() + ".\n"
    return text[:size]


class Sessions:
    def __init__(self, served, sizes: tuple[int, int]):
        self.served = served
        self.texts = [json.dumps(prose(size)) for size in sizes]
        self.statuses, self.sent, self.last = Counter(), 0, None

    async def act(self, client: Client, body: str):
        return await client.ask("/STS/interactiveAgent", body.encode(), "application/json")

    async def one(self, client: Client, number: int) -> None:
        text = self.texts[number % LARGE_EVERY == 0]
        # No two are alike.
        body = (f'{{"action": "start", "documents": [{{"title": "Handbook {number}", "type": "text", '
                f'"content": {text[:1]}Number {number}. {text[1:]}}}]}}')
        while (answer := await self.act(client, body)).status in REFUSED:
            self.statuses[f"start: {answer.status}"] += 1
            await asyncio.sleep(answer.retry_after or 1.0)
        self.statuses[f"start: {answer.status}"] += 1
        if answer.status != 200:
            return
        self.sent += len(body)
        session = json.loads(answer.body)
        address = urllib.parse.urlsplit(session["websocket_url"])
        joined, reader, writer = await upgrade(self.served, f"{address.path}?{address.query}", None)
        self.statuses[f"join: {joined.status}"] += 1
        if writer is not None:
            try:
                await anext(messages(reader))
                writer.write(frame(8, (1000).to_bytes(2)))
                # Up to the server's own goodbye: then it knows that the room is empty.
                async for _ in messages(reader):
                    pass
            except (OSError, asyncio.IncompleteReadError, StopAsyncIteration):
                self.statuses["join: broke"] += 1
            writer.close()
        self.last = session["session_id"]

    async def some(self, numbers: range, at_once: int) -> None:
        waiting = iter(numbers)

        async def caller() -> None:
            client = Client(self.served, self.served.door.key)
            for number in waiting:
                await self.one(client, number)
            client.close()

        await asyncio.gather(*(caller() for _ in range(at_once)))

    async def status(self) -> str:
        """The state of the last session: `ended`, or `404` once it is no longer kept."""
        client = Client(self.served, self.served.door.key)
        answer = await self.act(client, json.dumps({"action": "status", "session_id": self.last}))
        client.close()
        return json.loads(answer.body)["status"] if answer.status == 200 else str(answer.status)

    async def all_ended(self) -> None:
        until = time.monotonic() + ENDED_WITHIN
        while (status := await self.status()) not in ("ended", "404"):
            if time.monotonic() > until:
                print(f"the last session is still {status}", file=sys.stderr)
                return
            await asyncio.sleep(0.2)


def disk_mib(state: Path) -> float:
    return sum(file.stat().st_size for file in state.glob("sts.sqlite3*")) / 2**20


async def run(options, served, state: Path) -> list[dict]:
    sessions, marks = Sessions(served, (options.document, options.large_document)), []
    # Memory that the first session allocates for all others doesn't count.
    await sessions.some(range(1, 1 + options.at_once), options.at_once)
    await sessions.all_ended()
    marks.append({"sessions": options.at_once, "memory_mib": memory_mib(served.pid), "disk_mib": disk_mib(state)})
    show("a first few", marks[0])
    step = max(1, options.sessions // MARKS)
    for done in range(0, options.sessions, step):
        began = time.monotonic()
        await sessions.some(range(done, min(done + step, options.sessions)), options.at_once)
        await sessions.all_ended()
        marks.append({"sessions": min(done + step, options.sessions), "memory_mib": memory_mib(served.pid),
                      "disk_mib": disk_mib(state), "sent_mib": sessions.sent / 2**20,
                      "took_s": time.monotonic() - began})
        print("  ".join(f"{name} {value:.1f}" for name, value in marks[-1].items()), flush=True)
    show("statuses", sessions.statuses)
    return marks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to load")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--sessions", type=int, default=10_000, help="measured after every tenth of them")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--document", type=int, default=100_000, metavar="BYTES")
    parser.add_argument("--large-document", type=int, default=1_000_000, metavar="BYTES")
    parser.add_argument("--most", type=float, default=32.0, help="MiB above the memory after the first tenth")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    arguments = options.server_arguments.split()
    with tempfile.TemporaryDirectory(prefix="verbatim-bench-") as folder:
        state = Path(folder)
        with serving(options.binary, *arguments, settings=SETTINGS, state=state) as served:
            marks = asyncio.run(run(options, served, state))
        began = time.monotonic()
        with serving(options.binary, *arguments, settings=SETTINGS, state=state) as served:
            started, restarted = time.monotonic() - began, memory_mib(served.pid)
        after = {"memory_mib": restarted, "start_s": started, "disk_mib": disk_mib(state)}
    show("started again", after)
    first, last = marks[1]["memory_mib"], marks[-1]["memory_mib"]
    met = judged([
        ("memory after the last above that after the first tenth, MiB", last - first, options.most),
        ("memory after a restart above that after the first tenth, MiB", restarted - first, options.most),
    ])
    if options.json:
        options.json.write_text(json.dumps({"marks": marks, "started_again": after}, indent=1))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
