#!/usr/bin/env python3
"""This server and a peer's server over HTTP, in turns: same weights, clips and threads, 1 to 64 callers.

The peer is benches/peers/server.py: FastAPI around faster-whisper, with the language given, as here. Each
caller sends its next clip when the last was answered; clips are those of 5 to 15 s with
speech, over and over. A cell lasts `--seconds` and then ends with the requests under way, so a whole run is
bounded; only answers within the time count for throughput, all of them for latency. Loopback only.
"""

import argparse
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from door import Door, memory_mib, percentile, serving
from scoring import error_rate, read_lines

SERVER = Path(__file__).parent / "peers" / "server.py"


class Ours:
    def __init__(self, door: Door, pid: int):
        self.door, self.pid = door, pid

    def transcribe(self, audio: bytes, language: str) -> str:
        answer = self.door.listen(audio, language=language)
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.body[:200]}")
        return answer.alternative()["transcript"]


class PeerServer:
    def __init__(self, options, compute_type: str):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # A path to the server's own libtorch is not for the peer.
        environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
        self.process = subprocess.Popen(
            [options.peers_python, str(SERVER), str(options.model), "--port", str(self.port), "--compute-type",
             compute_type, "--threads", str(options.threads), "--workers", str(options.workers)], env=environment)
        self.pid = self.process.pid

    def wait(self) -> bool:
        """Until it answers; false where it ended instead."""
        while self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return True
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)
        return False

    def transcribe(self, audio: bytes, language: str) -> str:
        edge = uuid.uuid4().hex
        body = (f'--{edge}\r\nContent-Disposition: form-data; name="language"\r\n\r\n{language}\r\n'
                f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n'
                f'Content-Type: application/octet-stream\r\n\r\n').encode() + audio + f"\r\n--{edge}--\r\n".encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)
        try:
            connection.request("POST", "/v1/audio/transcriptions", body,
                               {"Content-Type": f"multipart/form-data; boundary={edge}"})
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"{response.status} {answer[:200]}")
        return json.loads(answer)["text"]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(system, clips: list[tuple[dict, bytes]], callers: int, seconds: float) -> dict:
    following, choosing = itertools.cycle(clips), threading.Lock()
    done, failures = [], []
    began = time.monotonic()

    def call() -> None:
        while time.monotonic() < began + seconds:
            with choosing:
                clip, audio = next(following)
            asked = time.monotonic()
            try:
                text = system.transcribe(audio, clip["language"])
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                failures.append(repr(error))
                time.sleep(0.1)
                continue
            done.append((time.monotonic(), time.monotonic() - asked, clip, text))

    with ThreadPoolExecutor(callers) as pool:
        for future in [pool.submit(call) for _ in range(callers)]:
            future.result()
    latencies = [latency for _, latency, _, _ in done]
    # With no answer in the time, the rate is over as long as the answers took.
    in_time = [clip["duration"] for at, _, clip, _ in done if at <= began + seconds]
    whole = sum(clip["duration"] for _, _, clip, _ in done) / max(time.monotonic() - began, 1e-9)
    return {"rtfx": sum(in_time) / seconds if in_time else whole, "p50": percentile(latencies, 0.5),
            "p95": percentile(latencies, 0.95), "answers": len(done), "failed": len(failures),
            "first_failure": failures[0] if failures else None,
            "wer": error_rate([(c["text"], t, "en") for _, _, c, t in done if c.get("text") and c["language"] == "en"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the verbatim to measure; without it, the peer alone")
    parser.add_argument("--model", required=True, type=Path, help="CTranslate2 folder, for both")
    parser.add_argument("--manifest", required=True, type=Path, help="that of benches/accuracy.py")
    parser.add_argument("--server-arguments", default="", help="of `verbatim serve`, as in '--compute-type int8'")
    parser.add_argument("--compute-types", nargs="+", default=["int8"], help="of the peer, a server for each")
    parser.add_argument("--workers", type=int, default=1, help="of the peer; they share the threads")
    parser.add_argument("--peers-python", default=sys.executable, help="an interpreter that has the peer")
    parser.add_argument("--callers", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a cell, at most 120")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not 0 < options.seconds <= 120 or max(options.callers) > 256:
        parser.error("a cell lasts at most 120 s and has at most 256 callers")

    chosen = [clip for clip in read_lines(options.manifest) if clip["kind"] != "empty" and 5 <= clip["duration"] <= 15]
    if not chosen:
        parser.error("no clip of 5 to 15 s in the manifest")
    clips = [(clip, (options.manifest.parent / clip["file"]).read_bytes()) for clip in chosen]
    # Told to end, Python would go without stopping the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        systems = {}
        if options.binary:
            # Nothing is refused here: what counts is how long the answers take.
            served = stack.enter_context(serving(
                options.binary, "--model", str(options.model), "--threads", str(options.threads),
                *options.server_arguments.split(), settings={"VERBATIM_ENGINE__MAX_WAIT_SECONDS": "3600"}))
            systems["verbatim"] = Ours(served.door, served.pid)
        for kind in options.compute_types:
            peer = PeerServer(options, kind)
            stack.callback(peer.stop)
            if peer.wait():
                systems[f"faster-whisper {kind}"] = peer
            else:
                print(f"left out faster-whisper {kind}: its server ended", file=sys.stderr)
        names = list(systems)
        cells = {(callers, name): [] for callers in options.callers for name in names}
        for system in systems.values():
            run(system, clips[:2], 1, 0.5)  # Warm.
        for number, callers in itertools.product(range(options.rounds), options.callers):
            turn = number % max(1, len(names))
            for name in names[turn:] + names[:turn]:
                cells[callers, name].append(run(systems[name], clips, callers, options.seconds))
        memory = {name: memory_mib(system.pid, "VmHWM") for name, system in systems.items()}

    print(f"{'callers':>7}  {'system':<22} {'RTFx':>7} {'p50 s':>7} {'p95 s':>7} {'WER %':>6} {'answers':>7} "
          f"{'failed':>6} {'peak MiB':>8}")
    rows = []
    for (callers, name), runs in cells.items():
        row = {"callers": callers, "system": name, "peak_mib": memory[name]}
        row |= {figure: median(one[figure] for one in runs) for figure in ("rtfx", "p50", "p95")}
        row |= {figure: sum(one[figure] for one in runs) for figure in ("answers", "failed")}
        scores = [one["wer"] for one in runs if one["wer"] is not None]
        row["wer"] = scores[-1] if scores else None
        wer = "-" if row["wer"] is None else f"{100 * row['wer']:.2f}"
        rows.append(row)
        print(f"{callers:>7}  {name:<22} {row['rtfx']:>7.1f} {row['p50']:>7.2f} {row['p95']:>7.2f} {wer:>6} "
              f"{row['answers']:>7} {row['failed']:>6} {memory[name]:>8.0f}")
    for callers in options.callers if "verbatim" in systems else []:
        here = {row["system"]: row for row in rows if row["callers"] == callers}
        ours = here.pop("verbatim")
        if here:
            print(f"{callers} callers: throughput {ours['rtfx'] / max(row['rtfx'] for row in here.values()):.2f} of the "
                  f"best peer's, p95 {ours['p95'] / min(row['p95'] for row in here.values()):.2f} of the best peer's")
    print(f"{len(clips)} clips; {options.threads} threads; load {os.getloadavg()[0]:.1f} at the end")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "cells": [
            {"callers": callers, "system": name, "rounds": runs} for (callers, name), runs in cells.items()]}, indent=1))


if __name__ == "__main__":
    main()
