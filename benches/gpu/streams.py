"""Live streams in real time, and how late their words are heard.

A word's latency is the time from sending the last sample of it to the first result, interim or final, that has words
and reaches beyond its end. The standard library alone.
"""

import asyncio
import random
import time
from collections import deque

from door import percentile
from idle_streams import connect, frame, messages, text
from voice import RATE

QUERY = "encoding=linear16&sample_rate=16000&channels=1&interim_results=true&endpointing=300&language=en"
PIECE = RATE // 10 * 2
# Streams are opened over so many seconds, and words count after so many more.
OPENING_SECONDS, WARM_SECONDS = 2.0, 2.0


class Heard:
    """The figures of several streams."""

    def __init__(self):
        self.latencies, self.late_sends, self.refused, self.broken, self.finals, self.unheard = [], [], 0, [], 0, 0

    def figures(self) -> dict:
        return {
            "words": len(self.latencies),
            "word_latency_p50_seconds": percentile(self.latencies, 0.5),
            "word_latency_p95_seconds": percentile(self.latencies, 0.95),
            "word_latency_p99_seconds": percentile(self.latencies, 0.99),
            "finals": self.finals, "refused": self.refused, "unheard_words": self.unheard,
            "broken": len(self.broken), "first_error": self.broken[0] if self.broken else None,
            # The client's own lateness: the figures above may be too high by so much.
            "client_late_p95_seconds": percentile(self.late_sends, 0.95),
        }


async def speak(served, sound: bytes, ends: list, begin: float, count_from: float, until: float, heard: Heard):
    """One stream that repeats `sound` until a time of the monotonic clock."""
    await asyncio.sleep(max(0.0, begin - time.monotonic()))
    reader, writer = await connect(served, QUERY, "127.0.0.1")
    began, waiting, length = time.monotonic(), deque(), len(sound) / 2 / RATE

    async def send():
        at, turn = 0, 0
        following = deque(ends)
        while time.monotonic() < until:
            piece = sound[at % len(sound):at % len(sound) + PIECE]
            at += len(piece)
            due = began + at / 2 / RATE
            # A piece can be sent when all of it has been said.
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(frame(2, piece))
            await writer.drain()
            now = time.monotonic()
            heard.late_sends.append(now - due)
            while following and turn * length + following[0] <= at / 2 / RATE:
                waiting.append((turn * length + following.popleft(), now))
            if not following and at >= (turn + 1) * len(sound):
                turn, following = turn + 1, deque(ends)
        writer.write(text("CloseStream"))

    async def receive():
        async for message in messages(reader):
            if message["type"] != "Results":
                continue
            heard.finals += message["is_final"]
            if not message["channel"]["alternatives"][0]["words"]:
                continue
            covered, now = message["start"] + message["duration"], time.monotonic()
            while waiting and waiting[0][0] <= covered:
                _, sent = waiting.popleft()
                if sent >= count_from:
                    heard.latencies.append(now - sent)

    try:
        await asyncio.gather(send(), receive())
    finally:
        heard.unheard += len(waiting)
        writer.close()


async def crowd(served, sound: bytes, ends: list, count: int, seconds: float) -> dict:
    """`count` streams at once for so many seconds."""
    heard, now, chance = Heard(), time.monotonic(), random.Random(1)
    count_from = now + OPENING_SECONDS + WARM_SECONDS if seconds > 2 * (OPENING_SECONDS + WARM_SECONDS) else now
    opening = min(OPENING_SECONDS, seconds / 4)

    async def one(number: int):
        # Neither do they begin together, nor are their pauses at the same time.
        shift = chance.randrange(len(ends))
        cut = int((ends[shift] + 0.03) * RATE) * 2
        turned = sound[cut:] + sound[:cut]
        moved = sorted((end - cut / 2 / RATE) % (len(sound) / 2 / RATE) for end in ends)
        try:
            await speak(served, turned, moved, now + opening * number / count, count_from, now + seconds, heard)
        except ConnectionRefusedError:
            heard.refused += 1
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            heard.broken.append(repr(error))

    await asyncio.gather(*(one(number) for number in range(count)))
    return {"streams": count, "seconds": seconds} | heard.figures()
