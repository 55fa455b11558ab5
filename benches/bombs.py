#!/usr/bin/env python3
"""Small files that are much work: what decoding them costs the server, and who waits for it.

A bomb is a FLAC file of 8 channels and 599 s of digital silence: 1.3 kB at 4 kHz, 121 kB at 384 kHz. A sends
`--bombs` at once with `multichannel=true`, or with `--one-by-one` one after the other; half a second later B begins to
send a clip over and over. For each rate a server of its own is started. Measured: its memory above idle at the
highest, sampled every 50 ms, the processor time, statuses, and how long B waits beside how long it waits
alone. Whether B was answered within its wait: of what it was told where it was refused, and of
`engine.max_wait_seconds` where it was let in.

At the end an idle server gets a file that is no bomb: four channels of speech, made of the clip, each shifted
against the others, of `--speech-seconds`. It has to be 200.
"""

import argparse
import array
import asyncio
import io
import json
import sys
import time
import wave
from collections import Counter
from pathlib import Path

from callers import Client, Strain, Watched, concluded, show, two_tenants
from door import memory_mib, percentile

CHANNELS = 8
BLOCK = 65_535
HEAD_START = 0.5
# A clip that is not answered by then counts with the time up to there.
PATIENCE_SECONDS = 300.0
FOUR = 4


def crc(data: bytes, polynomial: int, bits: int) -> int:
    value, top = 0, 1 << bits - 1
    for byte in data:
        value ^= byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & (1 << bits) - 1
    return value


def silence(rate: int, seconds: float) -> bytes:
    """FLAC (RFC 9639) of digital silence: frames of eight constant subframes of 16 bits."""
    samples = int(rate * seconds)
    packed = rate << 44 | CHANNELS - 1 << 41 | 15 << 36 | samples
    info = BLOCK.to_bytes(2) * 2 + bytes(6) + packed.to_bytes(8) + bytes(16)
    out = bytearray(b"fLaC" + (0x80 << 24 | len(info)).to_bytes(4) + info)
    for number, at in enumerate(range(0, samples, BLOCK)):
        # Sixteen bits of block size follow; the rate is in the head of the file; all channels by themselves; 16 bits.
        head = b"\xff\xf8" + bytes([0x70, CHANNELS - 1 << 4 | 0x08])
        # A frame's number is written as a character is in UTF-8.
        head += chr(number).encode() + (min(BLOCK, samples - at) - 1).to_bytes(2)
        frame = head + bytes([crc(head, 0x07, 8)]) + bytes(3 * CHANNELS)
        out += frame + crc(frame, 0x8005, 16).to_bytes(2)
    return bytes(out)


def four_channels(clip: Path, seconds: float) -> bytes | None:
    """A WAV file of the clip over and over; None where that is not 16-bit mono WAV itself."""
    try:
        with wave.open(str(clip)) as file:
            rate, form = file.getframerate(), (file.getnchannels(), file.getsampwidth())
            speech = file.readframes(file.getnframes())
    except (wave.Error, EOFError):
        return None
    if form != (1, 2):
        return None
    length = int(rate * seconds)
    # Half a second apart, so that no channel is the copy of another.
    said = array.array("h", speech) + array.array("h", bytes(rate))
    mixed = array.array("h", bytes(2 * FOUR * length))
    for channel in range(FOUR):
        start = channel * rate // 2 % len(said)
        mixed[channel::FOUR] = (said * (length // len(said) + 2))[start:start + length]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((FOUR, 2, rate, 0, "NONE", "none"))
        file.writeframes(mixed.tobytes())
    return out.getvalue()


async def send_bombs(options, served, bomb: bytes, ends: list) -> None:
    async def one(number: int) -> None:
        client = Client(served, served.door.key)
        ends.append(await client.listen(bomb, multichannel="true", language="en", tag=f"bomb-{number}"))
        client.close()

    if options.one_by_one:
        for number in range(options.bombs):
            await one(number)
    else:
        await asyncio.gather(*map(one, range(options.bombs)))


async def answered(client: Client, clip: bytes, statuses: Counter) -> tuple[float, float, int]:
    """B's one clip: how long until it was answered, coming back as told; what it was told; how often refused."""
    began, told, refused = time.monotonic(), 0.0, 0
    while True:
        answer = await client.listen(clip, language="en", tag="b")
        statuses[answer.status] += 1
        took = time.monotonic() - began
        if answer.status == 200 or took > PATIENCE_SECONDS:
            return took, told, refused
        told, refused = told or answer.retry_after or 0.0, refused + 1
        await asyncio.sleep(answer.retry_after or 1.0)


async def bombed(options, served, key: str, bomb: bytes) -> dict:
    clip, client, ends, statuses, waits = options.clip.read_bytes(), Client(served, key), [], Counter(), []
    alone = [(await answered(client, clip, Counter()))[0] for _ in range(16)][4:]
    began = time.monotonic()
    async with Strain() as strain, Watched(served.pid, 0.05) as watched:
        attack = asyncio.create_task(send_bombs(options, served, bomb, ends))
        await asyncio.sleep(HEAD_START)
        while not (waits and attack.done()):
            waits.append(await answered(client, clip, statuses))
        await attack
        took = time.monotonic() - began
    await asyncio.sleep(2)
    usual, (first, told, refused) = percentile(alone, 0.99), waits[0]
    return {
        "bomb_bytes": len(bomb),
        "bombs": {str(status): count for status, count in Counter(answer.status for answer in ends).items()},
        "bombs_longest_s": max(answer.seconds for answer in ends),
        "until_all_were_answered_s": took,
        "cpu_s": watched.cpu_seconds,
        "memory_idle_peak_after_mib": [watched.before_mib, watched.peak_mib, memory_mib(served.pid)],
        "memory_above_idle_mib": watched.peak_mib - watched.before_mib,
        "b_alone_p50_p99_s": [percentile(alone, 0.5), usual],
        "b_first_s": first,
        "b_first_was_told_s": told,
        "b_first_was_refused": refused,
        "b_first_had_s": told + options.max_wait + usual,
        "b_p50_longest_s": [percentile([wait for wait, _, _ in waits], part) for part in (0.5, 1.0)],
        "b_statuses": dict(statuses),
        "client_late_p99_s": strain.figures()["client_late_p99_s"],
    }


async def spoken(options, served, key: str, file: bytes) -> dict:
    clip, client = options.clip.read_bytes(), Client(served, key)
    for _ in range(8):
        await client.listen(clip, language="en")
    async with Watched(served.pid, 0.05) as watched:
        answer = await client.listen(file, multichannel="true", language="en")
    transcripts = []
    if answer.status == 200:
        channels = json.loads(answer.body)["results"]["channels"]
        transcripts = [len(channel["alternatives"][0]["transcript"]) for channel in channels]
    return {"bytes": len(file), "status": answer.status, "retry_after_s": answer.retry_after, "took_s": answer.seconds,
            "characters": transcripts, "memory_above_idle_mib": watched.peak_mib - watched.before_mib}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to load")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--clip", required=True, type=Path, help="a few seconds of speech, as 16-bit mono WAV")
    parser.add_argument("--bombs", type=int, default=16)
    parser.add_argument("--one-by-one", action="store_true", help="one bomb at a time")
    parser.add_argument("--rates", type=int, nargs="*", default=[4_000, 384_000], help="of bombs, Hz")
    parser.add_argument("--bomb-seconds", type=float, default=599.0)
    parser.add_argument("--speech-seconds", type=float, default=590.0, help="of four channels; 0: none")
    parser.add_argument("--max-wait", type=float, default=30.0, metavar="SECONDS", help="engine.max_wait_seconds")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    settings = {"VERBATIM_LOG__LEVEL": "warn", "VERBATIM_ENGINE__MAX_WAIT_SECONDS": str(options.max_wait)}
    results, goals = {}, []
    speech = four_channels(options.clip, options.speech_seconds) if options.speech_seconds else None
    if options.speech_seconds and speech is None:
        sys.exit(f"{options.clip} is not 16-bit mono WAV, of which four channels are made: --speech-seconds 0")

    def served_for(title: str, work, file: bytes) -> dict:
        with two_tenants(options.binary, *options.server_arguments.split(), settings=settings) as (served, key):
            results[title] = asyncio.run(work(options, served, key, file))
        show(title, results[title])
        return results[title]

    for rate in options.rates:
        title = f"{rate} Hz"
        found = served_for(title, bombed, silence(rate, options.bomb_seconds))
        goals += [
            (f"{title}: memory above idle, MiB", found["memory_above_idle_mib"], 300 * 10**6 / 2**20),
            (f"{title}: B's first wait to what it had", found["b_first_s"] / found["b_first_had_s"], 1.0),
            (f"{title}: B's first refused after coming back as told", max(0, found["b_first_was_refused"] - 1), 0),
        ]
    if speech is not None:
        found = served_for(f"{FOUR} channels of speech", spoken, speech)
        goals.append((f"{FOUR} channels of speech on an idle server: other than 200", found["status"] != 200, 0))
    return concluded(results, goals, options.json)


if __name__ == "__main__":
    sys.exit(main())
