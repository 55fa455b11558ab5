#!/usr/bin/env python3
"""Starts the server, sends it a sample of speech through its HTTP door and prints what comes back.

    first_run.py VERBATIM SPEECH [ARGUMENT ...]

Then it says how to send a file of one's own, and stays with the server until Ctrl-C. Further arguments go
to `verbatim serve`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


def state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(os.environ.get("VERBATIM_STATE_DIR") or Path(base) / "verbatim")


def development_key(verbatim: str) -> str:
    """The same at each run: made once, kept for its owner alone."""
    file = state_dir() / "development.key"
    if file.is_file():
        return file.read_text().strip()
    made = subprocess.run([verbatim, "keys", "create", "--label", "development"], check=True,
                          capture_output=True, text=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(made.stdout)
    return made.stdout.strip()


def wait_until_ready(server: subprocess.Popen, base: str) -> None:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(server.returncode or 1)


def main() -> None:
    verbatim, speech, *arguments = sys.argv[1:]
    address = "127.0.0.1:8000"
    if "--listen" in arguments:
        address = arguments[arguments.index("--listen") + 1]
    base = f"http://{address}"
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        if probe.connect_ex((host, int(port))) == 0:
            sys.exit(f"Something listens on {address} already; use --listen, as in "
                     "`make run ARGUMENTS='--listen 127.0.0.1:8001'`.")
    key = development_key(verbatim)
    server = subprocess.Popen([verbatim, "serve", *arguments])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.send_signal(signal.SIGTERM))
    wait_until_ready(server, base)

    sample = sorted(Path(speech).glob("*.wav"))[0]
    request = urllib.request.Request(f"{base}/v1/listen", data=sample.read_bytes(),
                                     headers={"Authorization": f"Bearer {key}"})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=300) as answer:
        result = json.load(answer)
    took = time.monotonic() - began
    transcript = result["results"]["channels"][0]["alternatives"][0]["transcript"]
    print(f"""
{sample.name}, {result["metadata"]["duration"]:.1f} s of speech, came back in {took:.2f} s as

    {transcript}

Your key for development:

    {key}

Send a file of your own:

    curl -X POST '{base}/v1/listen' \\
      -H 'Authorization: Bearer {key}' \\
      --data-binary @FILE

The server stays up until Ctrl-C.
""", flush=True)
    sys.exit(server.wait())


if __name__ == "__main__":
    main()
