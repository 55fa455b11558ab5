#!/usr/bin/env python3
"""How truthful the embedded responder is: questions about made websites, asked through the door.

Serves the websites of tests/fixtures/sites on loopback, starts a session for each on a server of its own, types the
questions of its `questions.jsonl` into the room, and judges each answer: it is right if it has one of the texts that
the question lists. Questions without such a list are not answered by the website; then the agent should say so.

precision   answers that are right, of all answers
right       answers that are right, of the questions that the website answers
admitted    «I don't have that information», of the questions that it does not answer

The same sets are bounded in src/knowledge/answer/tests.rs. Needs the program and what live.py needs.
"""

import argparse
import asyncio
import functools
import http.server
import json
import sys
import threading
import time
import urllib.request
from pathlib import Path

import websockets

from door import percentile, serving

SITES = Path(__file__).resolve().parent.parent / "tests/fixtures/sites"
# Nothing was tuned on these.
HELD_OUT = ("guesthouse", "pool", "cinema")
UNKNOWN = "I'm sorry, I don't have that information."


class Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def act(served, body: dict) -> dict:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {served.door.key}"}
    request = urllib.request.Request(f"{served.url}/STS/interactiveAgent", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def started(served, site: str, port: int) -> dict:
    session = act(served, {"action": "start", "greeting": "Hello.",
                           "website_url": f"http://127.0.0.1:{port}/{site}/index.html"})
    while True:
        state = act(served, {"action": "status", "session_id": session["session_id"]})
        website = state["knowledge"]["website"]
        if website["status"] in ("ready", "failed"):
            break
        time.sleep(0.1)
    pages = len(list((SITES / site).glob("*.html")))
    if website["pages"] != pages:
        raise RuntimeError(f"{website['pages']} of {pages} pages of {site} were read: {website}")
    return session


async def heard(socket) -> str:
    said = []
    while True:
        message = await asyncio.wait_for(socket.recv(), 30)
        if not isinstance(message, str):
            continue
        event = json.loads(message)
        if event["type"] == "ConversationText" and event["role"] == "assistant":
            said.append(event["content"])
        elif event["type"] == "AgentAudioDone":
            return " ".join(said)


async def ask(served, site: str, port: int, show: bool) -> list[tuple[bool, bool, bool, float]]:
    """For each question: whether the site answers it, whether it was answered, whether rightly; seconds."""
    session = await asyncio.to_thread(started, served, site, port)
    results = []
    async with websockets.connect(session["websocket_url"], max_size=None) as socket:
        await heard(socket)
        for line in (SITES / site / "questions.jsonl").read_text().splitlines():
            asked = json.loads(line)
            began = time.monotonic()
            await socket.send(json.dumps({"type": "InjectUserMessage", "content": asked["question"]}))
            answer = await heard(socket)
            seconds = time.monotonic() - began
            is_given = not answer.startswith(UNKNOWN)
            is_right = is_given and any(part in answer.lower() for part in asked["answer"] or ())
            results.append((asked["answer"] is not None, is_given, is_right, seconds))
            if show and (is_given != (asked["answer"] is not None) or is_given and not is_right):
                print(f"{site}: {asked['question']} -> {answer}")
    return results


def report(name: str, results: list) -> None:
    given = [row for row in results if row[1]]
    answerable = [row for row in results if row[0]]
    others = [row for row in results if not row[0]]
    right = sum(row[2] for row in results)
    print(f"{name:<12} precision {right / max(1, len(given)):.3f}   right {right / max(1, len(answerable)):.3f} of "
          f"{len(answerable)}   admitted {sum(not row[1] for row in others) / max(1, len(others)):.3f} of {len(others)}"
          f"   p95 {percentile([row[3] for row in results], 0.95) * 1000:.0f} ms")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="verbatim", help="the program")
    parser.add_argument("--show", action="store_true", help="each failure")
    options = parser.parse_args()

    handler = functools.partial(Pages, directory=str(SITES))
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    port = pages.server_address[1]
    settings = {"VERBATIM_FETCH__ALLOW": '["127.0.0.1"]', "VERBATIM_STS__SPEECH__EMBEDDED": "none"}
    with serving(options.binary, settings=settings) as served:
        all_of = {site: asyncio.run(ask(served, site, port, options.show))
                  for site in sorted(path.name for path in SITES.iterdir())}
    for site, results in all_of.items():
        report(site, results)
    for name, is_in in (("tuned on", lambda site: site not in HELD_OUT), ("held out", lambda site: site in HELD_OUT)):
        report(name, [row for site, results in all_of.items() if is_in(site) for row in results])
    return 0


if __name__ == "__main__":
    sys.exit(main())
