#!/usr/bin/env python3
"""How soon the voice agent answers: from the end of a caller's speech to the first sound of the agent's.

Each caller starts a session with a document that answers its clip, joins the room over a WebSocket, lets the
greeting end, and speaks the clip at the pace of speech, with silence after it, as from a microphone. Measured
for each answer:

first audio    from the moment at which the clip's last loud 10 ms were sent to the agent's first audio
server         what the server says of it (`AgentStartedSpeaking`): from where it heard the turn end
               to the first sound, so without `sts.turn.silence_ms`, which `first audio` has in it

The server needs a voice: `flite` or `espeak-ng`, or `sts.speech.base_url`. Its recognition is warm after the
first round, which is not counted. Clips come from a manifest as for live.py; `.verbatim/speech/manifest.jsonl`,
which ./setup makes, will do. Needs what live.py needs.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
import urllib.request
from pathlib import Path

import numpy
import websockets

from audio import RATE, samples
from door import percentile
from scoring import read_lines

PIECE_MS = 20
# A frame so much below the loudest one is not speech any more.
QUIET = 0.01
# No two answers are alike, also from run to run: the server remembers how a sentence sounds.
PAGES = itertools.count(random.randrange(1000, 9000))


def end_of_speech(audio: bytes) -> float:
    """Seconds up to the last frame of 10 ms that is loud."""
    frame = RATE // 100
    values = numpy.frombuffer(audio, "<i2").astype(numpy.float64)
    powers = [float(numpy.mean(values[at:at + frame] ** 2)) for at in range(0, len(values) - frame + 1, frame)]
    loud = [index for index, power in enumerate(powers) if power > max(powers) * QUIET ** 2]
    return (loud[-1] + 1) / 100 if loud else len(values) / RATE


def start(options, question: str, answer: str) -> dict:
    body = {"action": "start", "greeting": "Hello.",
            "documents": [{"title": question, "type": "text", "content": answer}]}
    headers = {"Content-Type": "application/json"}
    if options.key:
        headers["Authorization"] = f"Bearer {options.key}"
    request = urllib.request.Request(f"{options.server}/STS/interactiveAgent", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


async def until(socket, kind: str) -> dict:
    while True:
        message = await asyncio.wait_for(socket.recv(), 60)
        if isinstance(message, str) and (said := json.loads(message))["type"] == kind:
            return said


async def ask(options, clip: dict, audio: bytes) -> tuple[float, float, str]:
    session = await asyncio.to_thread(start, options, clip["text"], options.answer.format(page=next(PAGES)))
    async with websockets.connect(session["websocket_url"], max_size=None) as socket:
        await until(socket, "AgentAudioDone")
        ends = end_of_speech(audio)
        audio += bytes(2 * RATE * 3)
        step = 2 * RATE * PIECE_MS // 1000
        began = time.monotonic()

        async def speak():
            for index, at in enumerate(range(0, len(audio), step)):
                # A microphone has a piece when it is over.
                await asyncio.sleep(max(0.0, began + (index + 1) * PIECE_MS / 1000 - time.monotonic()))
                await socket.send(audio[at:at + step])

        speaking = asyncio.create_task(speak())
        try:
            heard, server = "", None
            while True:
                message = await asyncio.wait_for(socket.recv(), 60)
                if not isinstance(message, str):
                    return time.monotonic() - began - ends, server or 0.0, heard
                said = json.loads(message)
                if said["type"] == "ConversationText" and said["role"] == "user":
                    heard = said["content"]
                elif said["type"] == "AgentStartedSpeaking":
                    server = said["total_latency"]
                elif said["type"] == "AgentAudioDone":
                    raise RuntimeError("the agent answered without a sound: it has no voice")
        finally:
            speaking.cancel()


async def run(options, clips) -> list:
    results, gate = [], asyncio.Semaphore(options.callers)

    async def one(clip, audio, counts):
        async with gate:
            answer = await ask(options, clip, audio)
            if counts:
                results.append((clip, *answer))

    for turn in range(options.rounds + 1):
        await asyncio.gather(*(one(clip, audio, turn > 0) for clip, audio in clips))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8000", metavar="URL")
    parser.add_argument("--key", help="unless the server is `verbatim serve --dev` on this machine")
    parser.add_argument("--manifest", type=Path, default=Path(".verbatim/speech/manifest.jsonl"))
    parser.add_argument("--clips", type=int, default=8, help="no more than so many, the shortest")
    parser.add_argument("--answer", default="The answer to that is on page {page}.", metavar="TEXT")
    parser.add_argument("--callers", type=int, default=1, help="who talk at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="each answer")
    options = parser.parse_args()

    rows = [clip for clip in read_lines(options.manifest) if clip["language"] == "en"]
    clips = [(clip, samples(options.manifest.parent / clip["file"])) for clip in rows]
    clips = sorted(clips, key=lambda pair: len(pair[1]))[:options.clips]
    results = asyncio.run(run(options, clips))
    if options.show:
        for clip, first, server, heard in results:
            print(f"{clip['file']}: {first:.3f} s, server {server:.3f} s: {heard}")
    print(f"{len(results)} answers, {options.callers} callers at once")
    for name, values in (("first audio", [row[1] for row in results]), ("server", [row[2] for row in results])):
        print(f"{name:<12} p50 {percentile(values, 0.5):6.3f} s   p95 {percentile(values, 0.95):6.3f} s"
              f"   max {max(values):6.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
