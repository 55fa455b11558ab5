#!/usr/bin/env python3
"""Many live streams that say nothing: what each holds of the server's memory; and a few that speak beside them.

Starts a server, opens `--streams` streams over two loopback addresses, sends each its first audio, and keeps
them with KeepAlive messages. Memory is that of the server's process, from /proc. With `--active`, as many
streams speak in real time (see live.py), for `--alone` seconds before the idle ones come and for `--seconds` with
them there: memory and the latency of finals, side by side. Fails where a stream is lost, and above
`--most` bytes a stream.

Needs 16-bit WAV clips for `--active` (`--speech FOLDER`), and as many open files as streams (`ulimit -n`).
"""

import argparse
import asyncio
import base64
import json
import os
import resource
import sys
import time
import wave
from pathlib import Path

from door import memory_mib, serving

ADDRESSES = ("127.0.0.1", "127.0.0.2")
RATE = 16_000
FIRST_AUDIO = bytes(3200)


def frame(opcode: int, payload: bytes) -> bytes:
    """A client's frame, masked with zeros: what is sent is what is meant."""
    length = len(payload)
    if length < 126:
        head = bytes([0x80 | opcode, 0x80 | length])
    elif length < 1 << 16:
        head = bytes([0x80 | opcode, 0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 0x80 | 127]) + length.to_bytes(8, "big")
    return head + bytes(4) + payload


def text(kind: str) -> bytes:
    return frame(1, json.dumps({"type": kind}).encode())


async def connect(served, query: str, source: str):
    reader, writer = await asyncio.open_connection(served.door.host, served.door.port, limit=1 << 16,
                                                   local_addr=(source, 0))
    writer.write((f"GET /v1/listen?{query} HTTP/1.1\r\nHost: {served.door.host}\r\nConnection: Upgrade\r\n"
                  f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nAuthorization: Token {served.door.key}\r\n"
                  f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n").encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101"):
        raise ConnectionRefusedError(head.split(b"\r\n")[0].decode())
    return reader, writer


async def messages(reader):
    """The server's messages, up to its close frame."""
    while True:
        first, second = await reader.readexactly(2)
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
        payload = await reader.readexactly(length)
        if first & 0x0F == 1:
            yield json.loads(payload)
        elif first & 0x0F == 8:
            return


async def open_idle(served, query: str, count: int, streams: list) -> None:
    gate = asyncio.Semaphore(64)

    async def one(number: int):
        async with gate:
            reader, writer = await connect(served, query, ADDRESSES[number % len(ADDRESSES)])
            writer.write(frame(2, FIRST_AUDIO))
            await writer.drain()
            streams.append((reader, writer))

    await asyncio.gather(*map(one, range(count)))


async def keep_alive(streams: list, pause: float):
    """To each once in `pause` seconds, spread evenly."""
    message, slices = text("KeepAlive"), 50
    while True:
        for part in range(slices):
            for _, writer in streams[part::slices]:
                if not writer.is_closing():
                    writer.write(message)
            await asyncio.sleep(pause / slices)


async def speak(served, query: str, clip: bytes, until: float, lates: list):
    """One stream that repeats a clip, a pause after each, at the pace of speech."""
    reader, writer = await connect(served, f"{query}&interim_results=true&language=en", ADDRESSES[0])
    began, piece = time.monotonic(), RATE * 2 // 10
    audio = clip + bytes(RATE * 2)

    async def send():
        at = 0
        while time.monotonic() < until:
            await asyncio.sleep(max(0.0, began + at / RATE / 2 - time.monotonic()))
            start = at % len(audio)
            part = (audio + audio)[start:start + piece]
            writer.write(frame(2, part))
            await writer.drain()
            at += piece
        writer.write(text("CloseStream"))

    async def receive():
        async for message in messages(reader):
            if message["type"] == "Results" and message["is_final"]:
                words = message["channel"]["alternatives"][0]["words"]
                if words:
                    lates.append(time.monotonic() - began - words[-1]["end"])

    await asyncio.gather(send(), receive())
    writer.close()


async def active(options, served, seconds: float, clips: list, memory: list) -> list:
    lates, until = [], time.monotonic() + seconds

    async def watch():
        while time.monotonic() < until:
            memory.append(memory_mib(served.pid))
            await asyncio.sleep(min(5.0, seconds / 4))

    speakers = [speak(served, options.query, clips[n % len(clips)], until, lates) for n in range(options.active)]
    await asyncio.gather(watch(), *speakers)
    return lates


def samples(path: Path) -> bytes:
    with wave.open(str(path)) as clip:
        if (clip.getframerate(), clip.getnchannels(), clip.getsampwidth()) != (RATE, 1, 2):
            raise ValueError(f"{path} is not 16-bit mono at {RATE} Hz")
        return clip.readframes(clip.getnframes())


async def run(options, served) -> int:
    clips = [samples(path) for path in sorted(options.speech.glob("*.wav"))] if options.active else []
    failed = False

    def told(name: str, lates: list, memory: list):
        p50, p95 = (sorted(lates)[int(len(lates) * part)] if lates else 0.0 for part in (0.5, 0.95))
        late = f"final latency p50 {p50:.3f} s, p95 {p95:.3f} s"
        quarters = ", ".join(f"{memory[(len(memory) - 1) * part // 4]:.0f}" for part in range(5))
        print(f"{name}: {len(lates)} finals, {late}; memory from quarter to quarter {quarters} MiB", flush=True)

    # Memory that all streams share is allocated before they are counted.
    first: list = []
    await open_idle(served, options.query, 100, first)
    for reader, writer in first:
        writer.write(text("CloseStream"))
        async for _ in messages(reader):
            pass
        writer.close()
    if options.active:
        memory: list = []
        told(f"{options.active} active alone", await active(options, served, options.alone, clips, memory), memory)
    before = memory_mib(served.pid)
    began = time.monotonic()
    streams: list = []
    keeping = asyncio.create_task(keep_alive(streams, options.keep_alive))
    await open_idle(served, options.query, options.streams, streams)
    print(f"{len(streams)} streams opened in {time.monotonic() - began:.1f} s", flush=True)
    await asyncio.sleep(max(2.0, options.keep_alive))
    after = memory_mib(served.pid)
    each = (after - before) * 2**20 / len(streams)
    print(f"idle: {each:.0f} bytes each, {before:.0f} to {after:.0f} MiB", flush=True)
    failed |= each > options.most
    if options.active:
        memory = []
        told(f"{options.active} active beside them", await active(options, served, options.seconds, clips, memory), memory)
    lost = sum(reader.at_eof() or writer.is_closing() for reader, writer in streams)
    ended = 0
    for reader, writer in streams:
        try:
            writer.write(text("CloseStream"))
            async for message in messages(reader):
                ended += message["type"] == "Metadata"
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            print(f"a stream ended with {error!r}", file=sys.stderr)
        writer.close()
    keeping.cancel()
    await asyncio.sleep(2)
    print(f"{lost} lost, {ended} ended with their Metadata, {memory_mib(served.pid):.0f} MiB after them")
    return 1 if failed or lost or ended != len(streams) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, metavar="FILE")
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--active", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="of speech beside the idle ones")
    parser.add_argument("--alone", type=float, default=120.0, metavar="SECONDS", help="of speech before them")
    parser.add_argument("--speech", type=Path, metavar="FOLDER")
    parser.add_argument("--most", type=float, default=16 * 1024, help="bytes a stream")
    parser.add_argument("--query", default=f"encoding=linear16&sample_rate={RATE}")
    parser.add_argument("--keep-alive", type=float, default=5.0, metavar="SECONDS")
    parser.add_argument("--server-arguments", default="", help="for `serve`, such as --threads 2")
    options = parser.parse_args()
    files = options.streams + options.active + 200
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < files:
        sys.exit(f"{files} open files are needed, {most} allowed: ulimit -n {files}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    settings = {"VERBATIM_LIVE__MAX_STREAMS": str(files), "VERBATIM_HTTP__CONNECTIONS_MAX": str(files)}
    with serving(options.binary, *options.server_arguments.split(), settings=settings) as served:
        return asyncio.run(run(options, served))


if __name__ == "__main__":
    sys.exit(main())
