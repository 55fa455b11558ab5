#!/usr/bin/env python3
"""How soon the voice agent answers: from the end of a caller's speech to the first sound of the agent's.

    benches/agent.py --binary VERBATIM [--pipecat PYTHON --whisper FOLDER --kokoro FOLDER] [--callers 1 4 8]
    benches/agent.py --server URL --key KEY

Each caller starts a session with a document that answers its clip, joins the room over a WebSocket, lets the greeting
end, and speaks the clip at the pace of speech, with silence after it, as from a microphone. Answers are short and long in
turn. Measured for each answer:

first sound   from the moment at which the clip's last loud 10 ms were sent to the agent's first loud 10 ms: silence at
              the beginning of its audio counts
wait          of this, until the server heard the turn end
recognition   until the words were known
answer        until the answer's first sentence was there
voice         until its first sound

With `--pipecat`, an agent of Pipecat's parts with the same models (peers/pipecat_agent.py) runs beside the server, and is
asked the same in turn with it, so that both have the same machine; its answers are given, which takes no time. PYTHON has
what peers/requirements-agent.txt lists:

    python3 -m venv FOLDER && FOLDER/bin/pip install --requirement benches/peers/requirements-agent.txt

`--whisper` is the server's model in the form of CTranslate2 (`base` of its model folder), `--kokoro` its folder `kokoro`.

The server needs a voice: `./setup voice`, `flite`, `espeak-ng` or `sts.speech.base_url`; and `./setup smart-turn` for the
comparison. Recognition is warm after the first round, which is not counted. Clips come from a manifest as for live.py;
`.verbatim/speech/manifest.jsonl`, which ./setup makes, will do. Needs what live.py needs. Run it on a quiet machine.
"""

import argparse
import asyncio
import itertools
import json
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy
import websockets

from audio import RATE, samples
from door import percentile, serving
from scoring import read_lines

SPOKEN_RATE = 24_000
PIECE_MS = 20
# A frame so much below the loudest one is not speech any more.
QUIET = 0.01
# The agent's voice is loud from here on, of full scale.
LOUD = 0.01
WAIT_SECONDS = 60
# The parts of an answer's time, in order.
PARTS = ("wait", "recognition", "answer", "voice")
ANSWERS = {
    "short": "The answer to that is on page {page}.",
    "long": "The answer to that is on page {page} of the second volume, where the authors explain at some length how "
            "they came to it and what they left out, with a drawing of the house and its garden.",
}
# No two answers are alike, also from run to run: the server remembers how a sentence sounds.
PAGES = itertools.count(random.randrange(1000, 9000))


@dataclass(frozen=True)
class Result:
    system: str
    length: str
    seconds: float
    parts: dict[str, float]
    heard: str


def end_of_speech(audio: bytes) -> float:
    """Seconds up to the last frame of 10 ms that is loud."""
    frame = RATE // 100
    values = numpy.frombuffer(audio, "<i2").astype(numpy.float64)
    powers = [float(numpy.mean(values[at:at + frame] ** 2)) for at in range(0, len(values) - frame + 1, frame)]
    loud = [index for index, power in enumerate(powers) if power > max(powers) * QUIET ** 2]
    return (loud[-1] + 1) / 100 if loud else len(values) / RATE


def loud_at(audio: bytes) -> float | None:
    """Seconds to the first frame of 10 ms that is loud, of the agent's voice."""
    frame = SPOKEN_RATE // 100
    values = numpy.frombuffer(audio[:len(audio) // 2 * 2], "<i2").astype(numpy.float64) / 32_768
    for at in range(0, len(values) - frame + 1, frame):
        if numpy.sqrt(numpy.mean(values[at:at + frame] ** 2)) > LOUD:
            return at / SPOKEN_RATE
    return None


class Voice:
    """The agent's audio as it arrives, and the moment at which it can be heard."""

    def __init__(self):
        self.audio, self.began = b"", None

    def take(self, piece: bytes) -> float | None:
        self.began = self.began or time.monotonic()
        self.audio += piece
        silence = loud_at(self.audio)
        # A player begins with the first piece.
        return None if silence is None else max(self.began + silence, time.monotonic() - len(piece) / 2 / SPOKEN_RATE)


async def speak(connection, audio: bytes, goes_on: bool = True) -> None:
    """`goes_on`: with silence, as a microphone does, until it is cancelled."""
    step = 2 * RATE * PIECE_MS // 1000
    pieces = (audio[at:at + step] for at in range(0, len(audio), step))
    began = time.monotonic()
    for index, piece in enumerate(itertools.chain(pieces, itertools.repeat(bytes(step)) if goes_on else ())):
        # A microphone has a piece when it is over.
        await asyncio.sleep(max(0.0, began + (index + 1) * PIECE_MS / 1000 - time.monotonic()))
        await connection.send(piece)


class Verbatim:
    name = "verbatim"

    def __init__(self, url: str, key: str | None):
        self.url, self.key = url, key

    def start(self, question: str, answer: str) -> dict:
        body = {"action": "start", "greeting": "Hello.",
                "documents": [{"title": question, "type": "text", "content": answer}]}
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(f"{self.url}/STS/interactiveAgent", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)

    async def ask(self, length: str, clip: dict, audio: bytes, answer: str) -> Result:
        session = await asyncio.to_thread(self.start, clip["text"], answer)
        async with websockets.connect(session["websocket_url"], max_size=None) as connection:
            while True:
                message = await asyncio.wait_for(connection.recv(), WAIT_SECONDS)
                if isinstance(message, str) and json.loads(message)["type"] == "AgentAudioDone":
                    break
            ended = time.monotonic() + end_of_speech(audio)
            speaking = asyncio.create_task(speak(connection, audio))
            try:
                return await self.hear(connection, length, ended)
            finally:
                speaking.cancel()

    async def hear(self, connection, length: str, ended: float) -> Result:
        voice, heard, started = Voice(), "", {}
        while True:
            message = await asyncio.wait_for(connection.recv(), WAIT_SECONDS)
            if not isinstance(message, str):
                if (sound := voice.take(message)) is None:
                    continue
                total, tts, text = (started.get(name, 0.0) for name in ("total_latency", "tts_latency", "ttt_latency"))
                seconds = sound - ended
                silence = sound - voice.began
                parts = {"wait": voice.began - ended - total, "recognition": total - tts - text, "answer": text,
                         "voice": tts + silence}
                return Result(self.name, length, seconds, parts, heard)
            said = json.loads(message)
            if said["type"] == "ConversationText" and said["role"] == "user":
                heard = said["content"]
            elif said["type"] == "AgentStartedSpeaking":
                started = said
            elif said["type"] == "AgentAudioDone":
                raise RuntimeError("the agent answered without a sound: it has no voice")


class Pipecat:
    name = "pipecat"

    def __init__(self, port: int, process: subprocess.Popen):
        self.port, self.process = port, process
        self.events: dict[str, dict[str, float]] = {}
        self.calls = itertools.count()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self) -> None:
        for line in self.process.stdout:
            if line.startswith(b"{"):
                event = json.loads(line)
                # Of what comes several times, the first but for the pause and the words: the last pause ends the turn.
                known = self.events.setdefault(event["call"], {})
                if event["event"] in ("pause", "heard"):
                    known[event["event"]] = event["at"]
                else:
                    known.setdefault(event["event"], event["at"])

    async def ask(self, length: str, clip: dict, audio: bytes, answer: str) -> Result:
        call = str(next(self.calls))
        query = urllib.parse.urlencode({"id": call, "answer": answer})
        async with websockets.connect(f"ws://127.0.0.1:{self.port}/call?{query}", max_size=None) as connection:
            # Its parts begin before a caller speaks, as during a greeting.
            await speak(connection, bytes(2 * RATE * 2), goes_on=False)
            ended = time.monotonic() + end_of_speech(audio)
            speaking = asyncio.create_task(speak(connection, audio))
            voice = Voice()
            try:
                while True:
                    message = await asyncio.wait_for(connection.recv(), WAIT_SECONDS)
                    if isinstance(message, bytes) and (sound := voice.take(message)) is not None:
                        break
            finally:
                speaking.cancel()
        # Its lines may come after its sound.
        for _ in range(50):
            at = self.events.get(call, {})
            if "voice" in at:
                break
            await asyncio.sleep(0.02)
        # Without words the turn ended by a time limit.
        recognition = max(0.0, at["heard"] - at["pause"]) if {"heard", "pause"} <= at.keys() else 0.0
        made = max(0.0, at["voice"] - at["turn"]) + sound - max(voice.began, at["voice"])
        parts = {"recognition": recognition, "answer": 0.0, "voice": made}
        parts["wait"] = sound - ended - sum(parts.values())
        heard = "" if "heard" in at else "(no words)"
        return Result(self.name, length, sound - ended, parts, heard)


@contextmanager
def pipecat(options):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).parent / "peers/pipecat_agent.py"
    command = [options.pipecat, str(script), str(port), "--whisper", options.whisper, "--kokoro", options.kokoro]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise RuntimeError("Pipecat's agent stopped") from None
                time.sleep(0.2)
        yield Pipecat(port, process)
    finally:
        process.terminate()
        process.wait()


async def run(options, systems, clips, callers: int) -> list[Result]:
    results: list[Result] = []
    for turn in range(options.rounds + 1):
        # The systems take turns, so that a busy minute of the machine hits both.
        for system in systems[turn % len(systems):] + systems[:turn % len(systems)]:
            gate = asyncio.Semaphore(callers)

            async def one(number: int):
                clip, audio = clips[number % len(clips)]
                length = list(ANSWERS)[number % len(ANSWERS)]
                answer = (options.answer or ANSWERS[length]).format(page=next(PAGES))
                async with gate:
                    return await system.ask(length, clip, audio, answer)

            answers = await asyncio.gather(*(one(number) for number in range(max(len(clips), callers))))
            if turn > 0:
                results += answers
            if options.show:
                for answer in answers:
                    print(f"{answer.system} {answer.length}: {answer.seconds:.3f} s {answer.heard}")
    return results


def report(results: list[Result], callers: int) -> None:
    for name in dict.fromkeys(result.system for result in results):
        for length in (*ANSWERS, "all"):
            chosen = [result for result in results if result.system == name and length in (result.length, "all")]
            seconds = [result.seconds for result in chosen]
            middle = {part: percentile([result.parts[part] for result in chosen], 0.5) for part in PARTS}
            print(f"{name:<9} {callers} at once  {length:<6} {len(chosen):>3} answers  "
                  f"p50 {percentile(seconds, 0.5):6.3f} s  p95 {percentile(seconds, 0.95):6.3f} s   p50 of "
                  + "  ".join(f"{part} {value:5.3f}" for part, value in middle.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8000", metavar="URL")
    parser.add_argument("--key", help="unless the server is `verbatim serve --dev` on this machine")
    parser.add_argument("--binary", help="start this program instead, on a port of its own")
    parser.add_argument("--pipecat", metavar="PYTHON", help="compare with an agent of Pipecat's parts")
    parser.add_argument("--whisper", default=".verbatim/models/base", metavar="FOLDER")
    parser.add_argument("--kokoro", default=".verbatim/models/kokoro", metavar="FOLDER")
    parser.add_argument("--manifest", type=Path, default=Path(".verbatim/speech/manifest.jsonl"))
    parser.add_argument("--clips", type=int, default=8, help="no more than so many, the shortest")
    parser.add_argument("--answer", metavar="TEXT", help="instead of a short and a long one; {page} is a number")
    parser.add_argument("--callers", type=int, nargs="+", default=[1], help="who talk at once, such as 1 4 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="each answer")
    options = parser.parse_args()

    rows = [clip for clip in read_lines(options.manifest) if clip["language"] == "en"]
    clips = [(clip, samples(options.manifest.parent / clip["file"])) for clip in rows]
    clips = sorted(clips, key=lambda pair: len(pair[1]))[:options.clips]
    with ExitStack() as stack:
        if options.binary:
            served = stack.enter_context(serving(options.binary))
            systems = [Verbatim(served.url, served.door.key)]
        else:
            systems = [Verbatim(options.server, options.key)]
        if options.pipecat:
            systems.append(stack.enter_context(pipecat(options)))
        for callers in options.callers:
            report(asyncio.run(run(options, systems, clips, callers)), callers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
