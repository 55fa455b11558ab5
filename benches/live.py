#!/usr/bin/env python3
"""Speech, streamed in real time over so many streams at once: how soon it is heard, and how well.

Clips of a test set (see accuracy.py for the manifest) go to `wss /v1/listen` as 16-bit samples in pieces, at
the pace of speech, with silence after each, as from a microphone. Measured for each stream:

first interim  from the first sample sent to the first result with a word
final latency  from the end of the last word of a final result, as the server times it, to its arrival
lag            the same for interim results
wer            of the final results together, against what was said; with --batch also of POST /v1/listen, and
               of the words that differ between both

With --whisper-live the same clips go the same way to a server of WhisperLive (benches/peers/live_server.py,
with the same weights), before or after, one server at a time: each has the machine to itself. What it sends as
`completed` counts as final; what it never completes is what it said last, and counts in the word error rate.

--verify fails where the word error rate is more than a point above that of the batch endpoint.

Needs websockets and av, besides what accuracy.py needs (benches/peers/requirements.txt).
"""

import argparse
import asyncio
import json
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import websockets

from audio import RATE, samples
from door import Door, percentile
from scoring import error_rate, read_lines


@dataclass
class Heard:
    text: str = ""
    words: list[tuple[str, float, float]] = field(default_factory=list)
    speakers: list[str | None] = field(default_factory=list)
    first_interim: float | None = None
    final_latency: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    close: str = ""
    metadata: dict | None = None
    problems: list[str] = field(default_factory=list)


async def patiently(options, audio: bytes, language: str) -> Heard:
    """As `stream`, but retries after each 503 at the time that Retry-After gives."""
    while True:
        try:
            return await stream(options, audio, language)
        except websockets.InvalidStatus as refusal:
            if refusal.response.status_code != 503:
                raise
            options.refused += 1
            await asyncio.sleep(float(refusal.response.headers.get("Retry-After", 1)))


async def send_paced(options, audio: bytes, socket, began: float):
    size = RATE * 2 * options.chunk_ms // 1000
    padded = audio + bytes(int(RATE * options.silence) * 2)
    for index, at in enumerate(range(0, len(padded), size)):
        if options.pace > 0:
            due = began + index * options.chunk_ms / 1000 / options.pace
            await asyncio.sleep(max(0, due - time.monotonic()))
        await socket.send(padded[at:at + size])


async def stream(options, audio: bytes, language: str) -> Heard:
    heard = Heard()
    scheme, rest = options.server.rstrip("/").split("://")
    url = (f"{scheme.replace('http', 'ws')}://{rest}/v1/listen?encoding=linear16&sample_rate={RATE}"
           f"&language={language}&{options.query}")
    headers = {"Authorization": f"Token {options.key}"}
    async with websockets.connect(url, additional_headers=headers, max_size=None, ping_interval=None) as socket:
        began = time.monotonic()

        async def send():
            await send_paced(options, audio, socket, began)
            await socket.send(json.dumps({"type": "CloseStream"}))

        async def receive():
            end = 0.0
            async for text in socket:
                now, message = time.monotonic() - began, json.loads(text)
                if message["type"] == "Metadata":
                    heard.metadata = message
                if message["type"] != "Results":
                    continue
                alternative = message["channel"]["alternatives"][0]
                words = alternative["words"]
                if abs(message["start"] - end) > 0.0015:
                    heard.problems.append(f"a span starts at {message['start']}, the last one ended at {end}")
                if words and heard.first_interim is None:
                    heard.first_interim = now
                late = now - words[-1]["end"] if words else 0.0
                if message["is_final"]:
                    end = round(message["start"] + message["duration"], 3)
                    heard.text += " " + alternative["transcript"]
                    heard.words += [(word["word"], word["start"], word["end"]) for word in words]
                    heard.speakers += [str(word["speaker"]) if "speaker" in word else None for word in words]
                    heard.final_latency += [late] if words else []
                elif words:
                    heard.lag.append(late)

        await asyncio.gather(send(), receive())
        heard.close = f"{socket.close_code} {socket.close_reason}".strip()
    if heard.metadata is None or not heard.close.startswith("1000"):
        heard.problems.append(f"closed with {heard.close}, metadata {heard.metadata is not None}")
    return heard


async def whisper_live(options, audio: bytes, language: str) -> Heard:
    """As `stream`, with WhisperLive's messages."""
    heard, completed, last = Heard(), {}, {}
    async with websockets.connect(options.whisper_live, max_size=None, ping_interval=None) as socket:
        await socket.send(json.dumps({
            "uid": str(uuid.uuid4()), "language": language, "task": "transcribe", "model": "base", "use_vad": True,
            "audio_format": "int16"}))
        while json.loads(await socket.recv()).get("message") != "SERVER_READY":
            pass
        began = changed = time.monotonic()

        async def send():
            nonlocal changed
            await send_paced(options, audio, socket, began)
            changed = time.monotonic()
            # It has no way to ask for the rest: it has said it all when it says nothing new any more.
            while time.monotonic() - changed < options.settle:
                await asyncio.sleep(0.1)
            await socket.send(b"END_OF_AUDIO")

        async def receive():
            nonlocal changed, last
            async for text in socket:
                now, message = time.monotonic() - began, json.loads(text)
                for segment in message.get("segments", []):
                    start, end, words = float(segment["start"]), float(segment["end"]), segment["text"].strip()
                    if words and heard.first_interim is None:
                        heard.first_interim = now
                    if segment.get("completed"):
                        if start not in completed:
                            changed, completed[start] = time.monotonic(), words
                            heard.final_latency.append(now - end)
                    elif words != last.get("text"):
                        changed, last = time.monotonic(), {"start": start, "text": words}
                        heard.lag.append(now - end)

        await asyncio.gather(send(), receive())
    if last and last["start"] not in completed and last["start"] >= max(completed, default=0.0):
        completed[last["start"]] = last["text"]
    heard.text = " ".join(completed[start] for start in sorted(completed))
    return heard


async def run(options, clips, hear):
    waiting = list(enumerate(clips))
    results: list[Heard | None] = [None] * len(clips)

    async def one_after_another(delay: float):
        await asyncio.sleep(delay)
        while waiting:
            index, (clip, audio) = waiting.pop(0)
            try:
                results[index] = await hear(options, audio, clip["language"])
            except (OSError, websockets.WebSocketException) as error:
                results[index] = Heard(problems=[repr(error)])
            if options.show:
                print(f"{clip['file']}: {results[index].text.strip()}\n   {clip.get('text') or clip.get('peer')}")

    # Callers do not all begin to speak at once.
    await asyncio.gather(*(one_after_another(0.37 * n) for n in range(options.streams)))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--key", required=True)
    parser.add_argument("--manifest", required=True, type=Path)
    parser.add_argument("--kinds", nargs="+", default=["truth"])
    parser.add_argument("--language", default="en", help="clips of this language alone; empty: of all")
    parser.add_argument("--clips", type=int, help="no more than so many")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--pace", type=float, default=1.0, help="1: real time; 0: as fast as it is taken")
    parser.add_argument("--chunk-ms", type=int, default=100)
    parser.add_argument("--silence", type=float, default=1.0, help="seconds after each clip")
    parser.add_argument("--query", default="interim_results=true")
    parser.add_argument("--batch", action="store_true", help="the same clips through POST as well")
    parser.add_argument("--verify", action="store_true", help="fail where it is worse than POST; implies --batch")
    parser.add_argument("--whisper-live", metavar="URL", help="ws:// of a WhisperLive server")
    parser.add_argument("--settle", type=float, default=4.0,
                        help="seconds without news after which WhisperLive has said all")
    parser.add_argument("--show", action="store_true", help="what was heard, and what was said")
    options = parser.parse_args()
    options.refused = 0

    rows = [clip for clip in read_lines(options.manifest)
            if clip["kind"] in options.kinds and options.language in ("", clip["language"])]
    clips = [(clip, samples(options.manifest.parent / clip["file"])) for clip in rows[:options.clips]]
    seconds = sum(len(audio) for _, audio in clips) / RATE / 2
    options.batch |= options.verify
    said = [(clip.get("text") or clip.get("peer") or "", clip["language"]) for clip, _ in clips]
    print(f"{len(clips)} clips, {seconds:.0f} s of speech, {options.streams} streams, pace {options.pace:g}")

    def told(name, values):
        if values:
            print(f"{name:<15} p50 {percentile(values, 0.5):6.3f} s   p95 {percentile(values, 0.95):6.3f} s"
                  f"   of {len(values)}")

    def errors(texts) -> float:
        return 100 * (error_rate([(text, heard, language) for (text, language), heard in zip(said, texts)]) or 0)

    def measured(name, hear):
        began = time.monotonic()
        results = asyncio.run(run(options, clips, hear))
        print(f"\n{name}, took {time.monotonic() - began:.1f} s, {options.refused} refusals (503) waited out")
        told("first interim", [heard.first_interim for heard in results if heard.first_interim is not None])
        told("lag", [lag for heard in results for lag in heard.lag])
        told("final latency", [late for heard in results for late in heard.final_latency])
        print(f"{'wer':<15} {errors([heard.text for heard in results]):.2f} %", flush=True)
        for (clip, _), heard in zip(clips, results):
            problems.extend(f"{name}, {clip['file']}: {problem}" for problem in heard.problems)
        return results

    problems: list[str] = []
    streamed = [heard.text for heard in measured("verbatim", patiently)]
    if options.batch:
        door = Door(options.server, options.key)

        def post(clip):
            audio = (options.manifest.parent / clip["file"]).read_bytes()
            answer, _ = door.listen_patiently(audio, language=clip["language"])
            return answer.alternative()["transcript"] if answer.status == 200 else ""

        with ThreadPoolExecutor(2) as pool:
            posted = list(pool.map(post, (clip for clip, _ in clips)))
        differing = [(batch, live, language) for batch, live, (_, language) in zip(posted, streamed, said)]
        print(f"{'wer, batch':<15} {errors(posted):.2f} %")
        print(f"{'differing':<15} {100 * (error_rate(differing) or 0):.2f} % of words, stream against batch")
        if options.verify and errors(streamed) > errors(posted) + 1:
            problems.append("the word error rate is more than a point above that of the batch endpoint")
    if options.whisper_live:
        options.refused = 0
        measured("WhisperLive", whisper_live)
    for problem in problems[:20]:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
