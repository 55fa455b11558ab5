"""The server's door: sends audio to `POST /v1/listen`, and starts a server to send it to."""

import http.client
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection broke or nothing came in time; `body` then says how."""

    status: int
    body: bytes
    seconds: float
    retry_after: float | None = None

    def alternative(self) -> dict:
        return json.loads(self.body)["results"]["channels"][0]["alternatives"][0]

    def words(self) -> list[tuple[str, float, float]]:
        return [(word["word"], word["start"], word["end"]) for word in self.alternative().get("words", [])]


class Door:
    def __init__(self, url: str, key: str, timeout: float = 600.0):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.key, self.timeout = parts.hostname, parts.port or 80, key, timeout

    def listen(
        self, audio: bytes, *, words: bool = False, language: str | None = None, tag: str | None = None,
        keyterms: Sequence[str] = (), keywords: Sequence[str] = (), diarize: bool = False, model: str | None = None,
    ) -> Answer:
        """One request on a connection of its own. Never raises for what the server does."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/octet-stream"}
        if words:
            headers["timestamps"] = "true"
        asked = {name: value for name, value in (("language", language), ("tag", tag), ("model", model)) if value}
        if keyterms:
            asked["keyterm"] = list(keyterms)
        if keywords:
            asked["keywords"] = list(keywords)
        if diarize:
            asked["diarize"] = "true"
        path = "/v1/listen" + (f"?{urllib.parse.urlencode(asked, doseq=True)}" if asked else "")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        began = time.monotonic()
        try:
            try:
                connection.request("POST", path, audio, headers)
            except (BrokenPipeError, ConnectionResetError):
                pass  # It may have answered before it had read everything.
            response = connection.getresponse()
            body = response.read()
            after = response.getheader("Retry-After")
            return Answer(response.status, body, time.monotonic() - began, float(after) if after else None)
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, repr(error).encode(), time.monotonic() - began)
        finally:
            connection.close()

    def listen_patiently(self, audio: bytes, patience: float = 600.0, **asked) -> tuple[Answer, int]:
        """As `listen`, but retries after each 503 at the time that Retry-After gives; and the number of refusals."""
        refused, until = 0, time.monotonic() + patience
        while True:
            answer = self.listen(audio, **asked)
            if answer.status != 503 or time.monotonic() > until:
                return answer, refused
            refused += 1
            time.sleep(answer.retry_after or 1.0)

    def ready(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Memory of a process, from /proc: `VmRSS` now, `VmHWM` at its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no {field}")


def percentile(values: list[float], fraction: float) -> float:
    """By nearest rank; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)] if ordered else math.nan


def make_key(binary: str, state: str | Path, label: str = "bench", scopes: str | None = None) -> str:
    """A key, and with it an organisation, in a state folder."""
    environment = os.environ | {"VERBATIM_STATE_DIR": str(state)}
    command = [binary, "keys", "create", "--label", label, *(["--scopes", scopes] if scopes else [])]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True)
class Served:
    door: Door
    url: str
    process: subprocess.Popen

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def serving(binary: str, *arguments: str, settings: dict | None = None, log: Path | None = None,
            timeout: float = 600.0, state: Path | None = None):
    """A server on a free loopback port, with a state folder and a key of its own; stopped at the end.

    `settings`: environment variables of its configuration. `state`: a folder that is there, and stays.
    """
    # Told to end, Python would go without stopping the server.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with nullcontext(state) if state else tempfile.TemporaryDirectory(prefix="verbatim-bench-") as folder:
        # No load balancer is to be told of the stop.
        environment = os.environ | {"VERBATIM_SHUTDOWN__GRACE_SECONDS": "0"} | (settings or {})
        environment |= {"VERBATIM_STATE_DIR": str(folder)}
        key = make_key(binary, folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        url = f"http://{address}"
        out = open(log or Path(folder) / "server.log", "wb")
        process = subprocess.Popen([binary, "serve", "--listen", address, *arguments], env=environment,
                                   stdout=out, stderr=subprocess.STDOUT)
        try:
            door = Door(url, key, timeout)
            while not door.ready():
                if process.poll() is not None:
                    raise RuntimeError("the server stopped: " + Path(out.name).read_text(errors="replace")[-2000:])
                time.sleep(0.05)
            yield Served(door, url, process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            out.close()
