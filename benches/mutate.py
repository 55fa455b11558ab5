#!/usr/bin/env python3
"""Damaged files of every container through the HTTP door: each must be answered, and soon.

Starts a server, makes a short sound in every container (tests/fixtures/make.py; needs `av`), damages it in
ways that a seed fixes, and sends it. A violation is: a status that is neither 200 nor 4xx, an answer later
than `--within`, both in the crowd and alone afterwards (one that is late in the crowd only is told, and may
be the fault of a busy machine), a server that is gone, memory that still grows in the second half. The files
of violations are kept. `--only INDEX` sends one of a run's files again.
"""

import argparse
import math
import random
import struct
import subprocess
import sys
import tempfile
import wave
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from door import memory_mib, serving

MAKE = Path(__file__).parents[1] / "tests" / "fixtures" / "make.py"
SOUND_SECONDS = 1.2
# Sizes and counts that readers get wrong: nothing, the ends of signed and unsigned, just past a page.
NUMBERS = [0, 1, 7, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x1001, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, 0xFFFF_FFFF]
# Names that stand beside sizes, counts and durations.
MARKS = [b"RIFF", b"fmt ", b"data", b"fLaC", b"OggS", b"OpusHead", b"vorbis", b"ID3", b"Xing", b"Info", b"ftyp",
         b"moov", b"mvhd", b"trak", b"mdhd", b"stsd", b"stts", b"stsc", b"stsz", b"stco", b"esds", b"mdat",
         b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67", b"\x16\x54\xae\x6b", b"\x1f\x43\xb6\x75", b"\xa3"]
# Memory may settle in the first half of a run; from there on it grows by no more than this.
GROWTH_MIB = 64
# Late answers that are asked for again; one by one they take their time.
LATE_MOST = 200


def flip(data: bytearray, rng: random.Random, _) -> None:
    for _ in range(rng.choice((1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(data: bytearray, rng: random.Random, _) -> None:
    at, size = rng.randrange(len(data)), rng.choice((1, 4, 32, 512))
    filling = rng.choice((b"\x00", b"\xff", None))
    data[at:at + size] = filling * size if filling else rng.randbytes(size)


def truncate(data: bytearray, rng: random.Random, _) -> None:
    del data[rng.choice((rng.randrange(len(data)), rng.randrange(min(256, len(data))))):]


def drop(data: bytearray, rng: random.Random, _) -> None:
    at = rng.randrange(len(data))
    del data[at:at + rng.randrange(1, 4096)]


def repeat(data: bytearray, rng: random.Random, _) -> None:
    at = rng.randrange(len(data))
    piece = bytes(data[at:at + rng.randrange(1, 2048)])
    data[at:at] = piece * rng.choice((1, 2, 16))


def splice(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    other = rng.choice(others)
    at = rng.randrange(len(other))
    data[rng.randrange(len(data)):] = other[at:]


def number(rng: random.Random) -> bytes:
    width = rng.choice("HIQ")
    value = rng.choice(NUMBERS) & (1 << 8 * struct.calcsize(width)) - 1
    return struct.pack(rng.choice("<>") + width, value)


def lie_in_header(data: bytearray, rng: random.Random, _) -> None:
    at, lie = rng.randrange(min(len(data), 128)), number(rng)
    data[at:at + len(lie)] = lie


def lie_by_mark(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    found = [(data.find(mark), len(mark)) for mark in MARKS if mark in data]
    if not found:
        return lie_in_header(data, rng, others)
    at, size = rng.choice(found)
    lie = number(rng)
    at = max(0, at + rng.choice((-4, -8, size, size + rng.randrange(32))))
    data[at:at + len(lie)] = lie


WAYS = [flip, overwrite, truncate, drop, repeat, splice, lie_in_header, lie_by_mark, lie_by_mark]


def damaged(bases: list[tuple[str, bytes]], seed: int, index: int) -> tuple[str, bytes]:
    """The mutation, its base and the resulting file: the same for the same seed, index and bases."""
    rng = random.Random(f"{seed}:{index}")
    name, base = rng.choice(bases)
    data, done = bytearray(base), [name]
    for way in rng.choices(WAYS, k=rng.choice((1, 1, 2, 3))):
        if data:
            way(data, rng, [content for _, content in bases])
            done.append(way.__name__)
    return " ".join(done), bytes(data)


def sound(file: Path) -> None:
    """Tones that come and go, with a little noise: codecs have something to do, speech is not in it."""
    rng, rate = random.Random(0), 16000
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", "none"))
        for n in range(int(SOUND_SECONDS * rate)):
            tone = math.sin(2 * math.pi * 440 * n / rate) * max(0.0, math.sin(2 * math.pi * 3 * n / rate))
            out.writeframesraw(struct.pack("<h", int(6000 * tone + rng.gauss(0, 60))))


def read_bases(folder: Path | None) -> list[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory(prefix="verbatim-mutate-") as made:
        if folder is None:
            folder = Path(made) / "bases"
            sound(Path(made) / "sound.wav")
            subprocess.run([sys.executable, str(MAKE), str(Path(made) / "sound.wav"), str(folder)], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return [(file.name, file.read_bytes()) for file in sorted(folder.iterdir()) if file.stat().st_size]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to try")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--model tiny.en'")
    parser.add_argument("--bases", type=Path, metavar="FOLDER", help="files to damage instead of those made here")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, metavar="INDEX", help="send this one alone")
    parser.add_argument("--concurrency", type=int, default=3, choices=range(1, 9))
    parser.add_argument("--within", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, default=Path("violations"), metavar="FOLDER")
    options = parser.parse_args()

    bases = read_bases(options.bases)
    statuses, by_base, violations, late, slowest = Counter(), Counter(), [], [], (0.0, "")
    # Nothing is to be refused for the others' sake.
    settings = {"VERBATIM_ENGINE__MAX_WAIT_SECONDS": "3600", "VERBATIM_LOG__LEVEL": "warn"}
    options.keep.mkdir(parents=True, exist_ok=True)
    log = options.keep / "server.log"
    with serving(options.binary, *options.server_arguments.split(), settings=settings, log=log, timeout=60) as served:
        for _, base in bases:
            answer = served.door.listen(base, language="en")
            if answer.status != 200:
                print(f"an undamaged file was answered with {answer.status}: {answer.body[:200]}", file=sys.stderr)

        def send(index: int):
            what, data = damaged(bases, options.seed, index)
            return index, what, data, served.door.listen(data, language="en")

        chosen = [options.only] if options.only is not None else range(options.count)
        half = max(1, len(chosen) // 2)
        memory = [memory_mib(served.pid)]
        with ThreadPoolExecutor(options.concurrency) as pool:
            for part in (chosen[:half], chosen[half:]):
                for index, what, data, answer in pool.map(send, part):
                    statuses[answer.status] += 1
                    by_base[what.split()[0], answer.status] += 1
                    slowest = max(slowest, (answer.seconds, f"{index}: {what}"))
                    if not (answer.status == 200 or 400 <= answer.status < 500):
                        violations.append(f"{index}: {what}: {answer.status} after {answer.seconds:.2f} s "
                                          f"{answer.body[:160].decode(errors='replace')}")
                        print(violations[-1], file=sys.stderr, flush=True)
                        (options.keep / f"{options.seed}-{index}.bin").write_bytes(data)
                    elif answer.seconds > options.within:
                        late.append((index, what, data, answer.seconds))
                if served.process.poll() is None:
                    memory.append(memory_mib(served.pid))
        for index, what, data, first in late[:LATE_MOST]:
            answer = served.door.listen(data, language="en")
            if answer.seconds > options.within:
                violations.append(f"{index}: {what}: {answer.status} after {first:.2f} s, alone {answer.seconds:.2f} s")
                (options.keep / f"{options.seed}-{index}.bin").write_bytes(data)
        gone = served.process.poll() is not None
        healthy = not gone and served.door.listen(bases[0][1], language="en").status == 200

    print(f"{sum(statuses.values())} files from {len(bases)} containers, seed {options.seed}")
    print("statuses:", ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items())))
    for name, _ in bases:
        row = {status: by_base[name, status] for status in sorted(statuses) if by_base[name, status]}
        print(f"  {name:<22} {row}")
    print(f"later than {options.within:g} s in the crowd: {len(late)}")
    print(f"slowest: {slowest[0]:.2f} s, {slowest[1]}")
    print("memory, MiB, at start, middle and end:", ", ".join(f"{value:.0f}" for value in memory))
    if gone or not healthy:
        violations.append("the server is gone" if gone else "the server did not answer a whole file at the end")
    if len(memory) == 3 and memory[2] - memory[1] > GROWTH_MIB:
        violations.append(f"memory grew by {memory[2] - memory[1]:.0f} MiB in the second half")
    print(f"violations: {len(violations)}")
    print("\n".join(violations[:50]))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
