#!/usr/bin/env python3
"""Live streams whose server stands still for a while: a stopped process, a suspended laptop, a live migration.

Starts a server, opens `--streams` streams, and stops its process (SIGSTOP, SIGCONT) for each of `--stops` seconds,
`--between` seconds apart. Clients notice nothing: half of them speak on in real time, the clip over and over; the
other half has said the clip and sends KeepAlive messages. At the end all close their streams. Told of each half: how
many streams lived, how much of their audio was heard, and how far their words are from those of `POST /v1/listen` for
the same audio. Fails where a stream is lost, or audio.

Needs a 16-bit mono WAV clip at 16 kHz, and jiwer and whisper-normalizer (benches/peers/requirements.txt).
"""

import argparse
import asyncio
import io
import os
import signal
import sys
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path

from door import serving
from idle_streams import RATE, connect, frame, messages, samples, text
from scoring import error_rate

PIECE = RATE * 2 // 10
KEEP_ALIVE_SECONDS = 3.0


@dataclass
class Stream:
    kind: str
    sent: bytearray = field(default_factory=bytearray)
    words: list[str] = field(default_factory=list)
    heard_seconds: float = 0.0
    has_ended_well: bool = False
    trouble: str = ""

    def sent_seconds(self) -> float:
        return len(self.sent) / RATE / 2


async def speak(stream: Stream, writer, clip: bytes, done: asyncio.Event) -> None:
    """The clip in real time: once, or over and over until all are done."""
    began = time.monotonic()
    while not done.is_set():
        at = len(stream.sent)
        if stream.kind == "KeepAlive" and at >= len(clip):
            break
        await asyncio.sleep(max(0.0, began + at / RATE / 2 - time.monotonic()))
        start = at % len(clip)
        piece = (clip + clip)[start:start + PIECE]
        writer.write(frame(2, piece))
        stream.sent += piece
    while not done.is_set():
        writer.write(text("KeepAlive"))
        try:
            await asyncio.wait_for(done.wait(), KEEP_ALIVE_SECONDS)
        except TimeoutError:
            pass
    writer.write(text("CloseStream"))


async def listen(stream: Stream, reader) -> None:
    async for message in messages(reader):
        if message["type"] == "Results" and message["is_final"]:
            stream.words.append(message["channel"]["alternatives"][0]["transcript"])
        elif message["type"] == "Metadata":
            stream.heard_seconds, stream.has_ended_well = message["duration"], True


async def converse(served, stream: Stream, clip: bytes, done: asyncio.Event) -> None:
    try:
        reader, writer = await connect(served, f"encoding=linear16&sample_rate={RATE}&language=en", "127.0.0.1")
        await asyncio.gather(speak(stream, writer, clip, done), listen(stream, reader))
        writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        stream.trouble = repr(error)


async def run(options, served, clip: bytes) -> list[Stream]:
    done = asyncio.Event()
    streams = [Stream("audio" if number % 2 == 0 else "KeepAlive") for number in range(options.streams)]
    talks = asyncio.gather(*(converse(served, stream, clip, done) for stream in streams))
    for seconds in options.stops:
        await asyncio.sleep(options.between)
        os.kill(served.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(served.pid, signal.SIGCONT)
    await asyncio.sleep(options.between)
    done.set()
    await talks
    return streams


def wav(audio: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as clip:
        clip.setparams((1, 2, RATE, 0, "NONE", ""))
        clip.writeframes(audio)
    return out.getvalue()


def told(served, kind: str, streams: list[Stream]) -> bool:
    """Prints how they fared; whether all went well."""
    lived = [stream for stream in streams if stream.has_ended_well]
    sent, heard = sum(stream.sent_seconds() for stream in lived), sum(stream.heard_seconds for stream in lived)
    batch: dict[bytes, str] = {}
    for stream in lived:
        audio = bytes(stream.sent)
        if audio not in batch:
            batch[audio] = served.door.listen_patiently(wav(audio), language="en")[0].alternative()["transcript"]
    pairs = [(batch[bytes(stream.sent)], " ".join(stream.words), "en") for stream in lived]
    differing = 100 * (error_rate(pairs) or 0)
    print(f"{kind}: {len(lived)} of {len(streams)} lived, {heard:.1f} of {sent:.1f} s heard, "
          f"{differing:.2f} % of words differ from POST", flush=True)
    for trouble in {stream.trouble for stream in streams if stream.trouble}:
        print(f"  {trouble}", file=sys.stderr)
    return len(lived) == len(streams) and abs(heard - sent) < 0.1 * len(streams)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, metavar="FILE")
    parser.add_argument("--clip", required=True, type=Path, help="speech of some seconds")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--stops", type=float, nargs="+", default=[13.0, 20.0], metavar="SECONDS")
    parser.add_argument("--between", type=float, default=10.0, metavar="SECONDS", help="before, between and after the stops")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    options = parser.parse_args()
    clip = samples(options.clip)
    with serving(options.binary, *options.server_arguments.split(), settings={"VERBATIM_LOG__LEVEL": "warn"}) as served:
        streams = asyncio.run(run(options, served, clip))
        kinds = ("audio", "KeepAlive")
        well = [told(served, kind, [stream for stream in streams if stream.kind == kind]) for kind in kinds]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
