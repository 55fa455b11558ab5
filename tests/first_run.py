#!/usr/bin/env python3
"""Starts the server, sends it a speech sample as a client would, and prints the transcript.

    first_run.py VERBATIM SPEECH [ARGUMENT ...]

SPEECH is a folder with manifest.jsonl, as ./setup makes it; further arguments go to `verbatim serve`. On a loopback
address that is `verbatim serve --dev --console-link`, so that the voice agent can be tried without a key, and the
server prints a link that opens the console in a browser. Then it prints the command
that sends the user's own file, and stays with the server until Ctrl-C. The development key is stored in the state
folder, readable by its owner alone, so that it is the same at each run.
"""

import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

START_SECONDS = 300


def settings(verbatim: str) -> dict:
    """The program's effective configuration, from file, environment and defaults."""
    printed = subprocess.run([verbatim, "config"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return tomllib.loads(printed)


def development_key(verbatim: str, file: Path, anew: bool = False) -> str:
    if file.is_file() and not anew:
        return file.read_text().strip()
    made = subprocess.run([verbatim, "keys", "create", "--label", "development"], check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(made.stdout)
    return made.stdout.strip()


def wait_until_ready(server: subprocess.Popen, base: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    if server.poll() is not None:
        sys.exit(server.returncode or 1)
    sys.exit(f"{base}/readyz is not ready after {START_SECONDS} s.")


def transcribe(base: str, key: str, audio: bytes) -> dict:
    request = urllib.request.Request(f"{base}/v1/listen", data=audio, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def show(base: str, verbatim: str, key_file: Path, speech: Path) -> None:
    clip = json.loads((speech / "manifest.jsonl").read_text().splitlines()[0])
    audio = (speech / clip["file"]).read_bytes()
    key = development_key(verbatim, key_file)
    began = time.monotonic()
    try:
        result = transcribe(base, key, audio)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            sys.exit(f"{base}/v1/listen: {error}: {error.read().decode(errors='replace')}")
        key = development_key(verbatim, key_file, anew=True)  # The key was revoked, or the database of keys is new.
        began = time.monotonic()
        result = transcribe(base, key, audio)
    took = time.monotonic() - began
    print(f"""
{clip["file"]}, {result["metadata"]["duration"]:.1f} s of speech, was transcribed in {took:.2f} s.

    said:   {clip["text"]}
    heard:  {result["results"]["channels"][0]["alternatives"][0]["transcript"]}

Your key for development, kept in {key_file}:

    {key}

Send a file of your own:

    curl -X POST '{base}/v1/listen' \\
      -H 'Authorization: Bearer {key}' \\
      --data-binary @FILE

The server stays up until Ctrl-C.
""", flush=True)


def main() -> None:
    verbatim, speech, *arguments = sys.argv[1:]
    configured = settings(verbatim)
    address = configured["listen"]
    if "--listen" in arguments:
        address = arguments[arguments.index("--listen") + 1]
    host, port = address.rsplit(":", 1)
    is_loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
    wanted = ["--dev", "--console-link"] if is_loopback else []
    development = [flag for flag in wanted if flag not in arguments]
    with socket.socket() as probe:
        if probe.connect_ex((host, int(port))) == 0:
            sys.exit(f"Something listens on {address} already; use --listen, as in "
                     "`make run ARGUMENTS='--listen 127.0.0.1:8001'`.")
    # In a process group of its own, so that each Ctrl-C reaches it once, through the handler below. The first lets it
    # finish its requests, the second ends it.
    server = subprocess.Popen([verbatim, "serve", *development, *arguments], process_group=0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: server.send_signal(received))
    try:
        wait_until_ready(server, f"http://{address}")
        show(f"http://{address}", verbatim, Path(configured["state_dir"]) / "development.key", Path(speech))
        sys.exit(server.wait())
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
