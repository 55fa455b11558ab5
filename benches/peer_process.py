"""Peers as processes that answer over a pipe (benches/peers/peer.py, benches/peers/diarizer.py)."""

import itertools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

PEER = Path(__file__).parent / "peers" / "peer.py"


class Peer:
    def __init__(self, process: subprocess.Popen):
        self.process, self.pid = process, process.pid
        self.waiting: dict[int, Future] = {}
        self.numbers = itertools.count()
        self.writing = threading.Lock()
        self.version = self.absent = None
        first = json.loads(process.stdout.readline() or '{"absent": "it ended"}')
        self.version, self.absent = first.get("ready"), first.get("absent")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            answer = json.loads(line)
            future = self.waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(RuntimeError(answer["error"]))
            else:
                future.set_result(answer)
        for future in self.waiting.values():
            future.set_exception(RuntimeError("the peer ended"))

    def ask(self, request: dict) -> dict:
        future: Future = Future()
        with self.writing:
            number = next(self.numbers)
            self.waiting[number] = future
            self.process.stdin.write(json.dumps({"id": number} | request) + "\n")
            self.process.stdin.flush()
        return future.result(900)

    def transcribe(self, file: Path, language: str) -> str:
        return self.ask({"file": str(file), "language": language})["text"]

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_peers(
    kinds: list[str], python: str, model: Path | None, threads: int, stack: ExitStack, program: Path = PEER,
) -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that load, and why each other one does not. `kinds`: KIND or KIND=MODEL, where one reads another format."""
    peers, absent = {}, {}
    # A path to the server's own libtorch is not for the peers' torch.
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    for kind in kinds:
        name, _, own = kind.partition("=")
        print(f"loading {name}", file=sys.stderr, flush=True)
        try:
            process = subprocess.Popen(
                [python, str(program), name, own or str(model), "--threads", str(threads)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        except OSError as error:
            absent[name] = str(error)
        else:
            peer = Peer(process)
            stack.callback(peer.stop)
            if peer.absent:
                absent[name] = peer.absent
            else:
                peers[name] = peer
        if name in absent:
            print(f"left out {name}: {absent[name]}", file=sys.stderr)
    return peers, absent
