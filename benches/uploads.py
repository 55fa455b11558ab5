#!/usr/bin/env python3
"""Large uploads: what they cost in memory, and what they leave behind.

Starts a server and sends it, by each of its doors for files,
 1. one body of `--huge` MiB in chunks, without a length: it must be refused with 413, and memory may not follow it;
 2. `--count` files of `--each` MiB at once, each of noise that is no audio: all must be answered with 4xx, or refused with
    429 or 503 and Retry-After;
 3. the same, killed while they come (SIGKILL): nothing may be left in the folder of uploads;
 4. a file with the name that some file systems give such files for a moment: the next start must delete it.
Memory is the server's resident set without pages of files (RssAnon), sampled; all of it (VmHWM) is told too.
"""

import argparse
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from door import memory_mib, serving

BOUNDARY = "verbatim-uploads"
PIECE = os.urandom(64 << 10)
DOORS = ["/v1/audio/transcriptions", "/v1/listen"]


class Watch:
    """The most memory that a process had, in MiB, since this began."""

    def __init__(self, pid: int):
        self.pid, self.most, self.ends = pid, 0.0, threading.Event()
        self.before = memory_mib(pid, "RssAnon")
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.ends.wait(0.02):
            try:
                self.most = max(self.most, memory_mib(self.pid, "RssAnon"))
            except (OSError, ProcessLookupError):
                return

    def grown(self) -> float:
        self.ends.set()
        self.thread.join()
        return max(0.0, self.most - self.before)


class Upload:
    """A body in chunks, as a form where the door takes forms."""

    def __init__(self, served, path: str, mib: int, key: str | None = None):
        self.parts = f"{served.door.host}:{served.door.port}"
        self.socket = socket.create_connection((served.door.host, served.door.port), timeout=300)
        self.is_form, self.mib = "audio" in path, mib
        kind = f"multipart/form-data; boundary={BOUNDARY}" if self.is_form else "application/octet-stream"
        self.socket.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {self.parts}\r\nAuthorization: Bearer {key or served.door.key}\r\n"
            f"Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode())
        if self.is_form:
            self.chunk(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
                       f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n'.encode())

    def chunk(self, data: bytes):
        self.socket.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def send(self, end: bool = True) -> tuple[int, str]:
        """Status and Retry-After; 0 if the connection broke."""
        try:
            for _ in range(self.mib * (1 << 20) // len(PIECE)):
                self.chunk(PIECE)
            if not end:
                return 0, ""
            if self.is_form:
                self.chunk(f"\r\n--{BOUNDARY}--\r\n".encode())
            self.socket.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # It may have answered already.
        return self.answer()

    def answer(self) -> tuple[int, str]:
        head = b""
        try:
            while b"\r\n\r\n" not in head:
                data = self.socket.recv(65536)
                if not data:
                    return 0, ""
                head += data
        except OSError:
            return 0, ""
        lines = head.decode("latin-1").split("\r\n")
        after = [line.split(": ")[1] for line in lines if line.lower().startswith("retry-after")]
        return int(lines[0].split()[1]), "".join(after)


def left(state: Path) -> list[str]:
    folder = state / "uploads"
    return [file.name for file in folder.iterdir()] if folder.exists() else []


def crowd(served, path: str, count: int, mib: int) -> Counter:
    answers, lock = Counter(), threading.Lock()

    def one():
        try:
            status, after = Upload(served, path, mib).send()
        except OSError as error:
            status, after = repr(error), ""
        with lock:
            answers[f"{status}{' and Retry-After' if after else ''}"] += 1

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the verbatim to try")
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--huge", type=int, default=1024, metavar="MIB")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--each", type=int, default=20, metavar="MIB")
    parser.add_argument("--most", type=int, default=160, metavar="MIB", help="by which memory may grow")
    options = parser.parse_args()
    faults = []
    with tempfile.TemporaryDirectory(prefix="verbatim-uploads-") as folder:
        state = Path(folder)
        settings = {"VERBATIM_LOG__LEVEL": "warn"}
        with serving(options.binary, "--model", options.model, settings=settings, state=state) as served:
            for path in DOORS:
                began, watch = time.monotonic(), Watch(served.pid)
                status, _ = Upload(served, path, options.huge).send()
                grown = watch.grown()
                print(f"{path}: {options.huge} MiB in chunks: {status} in {time.monotonic() - began:.1f} s; "
                      f"memory {watch.before:.0f} MiB, +{grown:.0f} at the most", flush=True)
                if status != 413 or grown > options.most:
                    faults.append(f"{path}: {status}, +{grown:.0f} MiB")
                began, watch = time.monotonic(), Watch(served.pid)
                answers = crowd(served, path, options.count, options.each)
                grown = watch.grown()
                print(f"{path}: {options.count} of {options.each} MiB at once: {dict(answers)} in "
                      f"{time.monotonic() - began:.1f} s; memory {watch.before:.0f} MiB, +{grown:.0f} at the most", flush=True)
                expected = {"400", "415", "422", "429 and Retry-After", "503 and Retry-After"}
                if not set(answers) <= expected or grown > options.most:
                    faults.append(f"{path}: {dict(answers)}, +{grown:.0f} MiB")
            print(f"the resident set, with pages of files, was at most {memory_mib(served.pid, 'VmHWM'):.0f} MiB")
            for path in DOORS:
                threading.Thread(target=Upload(served, path, 64).send, args=(False,), daemon=True).start()
            time.sleep(1)  # They are under way; how far does not matter.
            served.process.send_signal(signal.SIGKILL)
            served.process.wait()
        print(f"left by a killed server: {left(state)}")
        faults += [f"left: {left(state)}"] if left(state) else []
        (state / "uploads" / ".verbatim-upload-1").write_bytes(PIECE)
        with serving(options.binary, "--model", options.model, settings=settings, state=state):
            print(f"left by a moment's name, after a start: {left(state)}")
            faults += [f"left at the start: {left(state)}"] if left(state) else []
    for fault in faults:
        print(f"FAULT: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
