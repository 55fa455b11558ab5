"""Many clients in one process, for scripts that share a machine with the server that they load.

HTTP/1.1 by hand on asyncio's protocols: one system call to ask, one to hear the answer. `Strain` says how busy
and how late this process itself was, since by so much its figures may be too high. Standard library alone.
"""

import asyncio
import base64
import json
import os
import resource
import sys
import tempfile
import time
import urllib.parse
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from door import Answer, make_key, memory_mib, percentile, serving

REFUSED = (429, 503)


@contextmanager
def two_tenants(binary: str, *arguments: str, settings: dict | None = None):
    """A server that two organisations share: `served` with the key of one, and the key of the other."""
    with tempfile.TemporaryDirectory(prefix="verbatim-bench-") as folder:
        other = make_key(binary, folder, "b")
        with serving(binary, *arguments, settings=settings, state=Path(folder)) as served:
            yield served, other


def read_head(data: bytes) -> tuple[int, dict[str, str], int] | None:
    """Status, headers by their names in lower case, and where the body begins; None of half a head."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *fields = bytes(data[:end]).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return int(first.split(" ", 2)[1]), headers, end + 4


def told_wait(headers: dict[str, str]) -> float | None:
    return float(headers["retry-after"]) if "retry-after" in headers else None


class Client(asyncio.Protocol):
    """A client on one connection, which it keeps, and opens again where the server closed it. POSTs alone."""

    def __init__(self, served, key: str):
        self.host, self.port, self.key = served.door.host, served.door.port, key
        self.transport, self.heard, self.waiting, self.began = None, bytearray(), None, 0.0

    def connection_made(self, transport) -> None:
        self.transport, self.heard = transport, bytearray()

    def connection_lost(self, error) -> None:
        self.transport = None
        self.finish(None)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        while (head := read_head(self.heard)) and head[0] < 200:
            del self.heard[:head[2]]
        if head is None:
            return
        status, headers, start = head
        end = start + int(headers.get("content-length", 0))
        if len(self.heard) < end:
            return
        body, self.heard = bytes(self.heard[start:end]), self.heard[end:]
        if headers.get("connection", "").lower() == "close":
            self.close()
        self.finish(Answer(status, body, time.monotonic() - self.began, told_wait(headers)))

    def finish(self, answer: Answer | None) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(answer)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    async def ask(self, path: str, body: bytes, kind: str = "application/octet-stream") -> Answer:
        """A POST. Never raises for what the server does: status 0 where the connection broke."""
        head = (f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.key}\r\n"
                f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        loop, self.began = asyncio.get_running_loop(), time.monotonic()
        while True:
            was_open = self.transport is not None
            try:
                if not was_open:
                    await loop.create_connection(lambda: self, self.host, self.port)
                if self.transport is None:
                    raise ConnectionResetError("closed as soon as it was opened")
                self.waiting = loop.create_future()
                self.transport.write(head + body)
                answer = await self.waiting
            except asyncio.CancelledError:
                # The answer may still come, and is not that of the next request.
                self.close()
                raise
            except OSError as error:
                return Answer(0, repr(error).encode(), time.monotonic() - self.began)
            if answer is not None:
                return answer
            # A server may close a connection that stands idle just when it is used again.
            if not was_open:
                return Answer(0, b"the connection broke", time.monotonic() - self.began)

    async def listen(self, audio: bytes, **query: str) -> Answer:
        return await self.ask("/v1/listen" + (f"?{urllib.parse.urlencode(query)}" if query else ""), audio)


async def upgrade(served, path: str, key: str | None):
    """A WebSocket: the answer to its opening and, where that is 101, its two ends."""
    began = time.monotonic()
    reader, writer = await asyncio.open_connection(served.door.host, served.door.port, limit=1 << 16)
    authorization = f"Authorization: Token {key}\r\n" if key else ""
    writer.write((f"GET {path} HTTP/1.1\r\nHost: {served.door.host}:{served.door.port}\r\nConnection: Upgrade\r\n"
                  f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n{authorization}"
                  f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n").encode())
    status, headers, _ = read_head(await reader.readuntil(b"\r\n\r\n"))
    answer = Answer(status, b"", time.monotonic() - began, told_wait(headers))
    if status == 101:
        return answer, reader, writer
    writer.close()
    return answer, None, None


async def patiently(ask, statuses: Counter, until: float) -> float:
    """Asks until it is answered, and comes back a second after each refusal: how long that took in all.

    What is not answered by `until`, of `time.monotonic`, counts with the time up to there, as `unanswered`.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(max(0.0, until - began)):
            while (answer := await ask()).status != 200:
                statuses[answer.status] += 1
                await asyncio.sleep(min(1.0, answer.retry_after or 1.0))
            statuses[200] += 1
    except TimeoutError:
        statuses["unanswered"] += 1
    return time.monotonic() - began


class Strain:
    """How busy this process is (`share` of a core), and how late it does what is due (`late`, in seconds)."""

    async def __aenter__(self):
        self.late, self.share = [], 0.0
        self._began, self._busy = time.monotonic(), time.process_time()
        self._watch = asyncio.create_task(self._sample())
        return self

    async def _sample(self) -> None:
        while True:
            due = time.monotonic() + 0.01
            await asyncio.sleep(0.01)
            self.late.append(time.monotonic() - due)

    async def __aexit__(self, *_) -> None:
        self._watch.cancel()
        self.share = (time.process_time() - self._busy) / (time.monotonic() - self._began)

    def figures(self) -> dict:
        return {"client_share_of_a_core": self.share, "client_late_p99_s": percentile(self.late, 0.99)}


class Watched:
    """The memory and the processor time of a server, while a block runs."""

    def __init__(self, pid: int, pause: float):
        self.pid, self.pause, self.peak_mib = pid, pause, 0.0

    async def __aenter__(self):
        self.before_mib = self.peak_mib = memory_mib(self.pid)
        self._began, self._busy = time.monotonic(), cpu_seconds(self.pid)
        self._watch = asyncio.create_task(self._sample())
        return self

    async def _sample(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, memory_mib(self.pid))
            await asyncio.sleep(self.pause)

    async def __aexit__(self, *_) -> None:
        self._watch.cancel()
        self.cpu_seconds = cpu_seconds(self.pid) - self._busy
        self.cores = self.cpu_seconds / (time.monotonic() - self._began)


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def open_files(count: int) -> None:
    """Allows so many, here and in servers that are started from here."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count:
        sys.exit(f"{count} open files are needed, {most} allowed: ulimit -n {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), most))


def spread(name: str, values: list[float]) -> dict:
    return {f"{name}_p50_s": percentile(values, 0.5), f"{name}_p99_s": percentile(values, 0.99)}


def show(title: str, figures: dict) -> None:
    print(f"\n{title}:")
    for name, value in figures.items():
        print(f"  {name:<32} {format(value, '.3f') if isinstance(value, float) else value}", flush=True)


def judged(goals: list[tuple[str, float, float]]) -> bool:
    """Prints goals of the form (name, value, most); whether all are met. NaN meets none."""
    print()
    for name, value, most in goals:
        print(f"{'met' if value <= most else 'MISSED':<7} {name}: {value:.3f}, goal {most:g}")
    return all(value <= most for _, value, most in goals)


def concluded(results: dict, goals: list[tuple[str, float, float]], file: Path | None) -> int:
    """Prints the goals, and writes all to `file` if there is one; the exit code."""
    met = judged(goals)
    if file:
        file.write_text(json.dumps(results | {"goals": goals}, indent=1))
    return 0 if met else 1
