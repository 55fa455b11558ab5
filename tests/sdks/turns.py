#!/usr/bin/env python3
"""deepgram-sdk's client of turns against a server: turns.py ADDRESS KEY FILE.wav, 16 kHz. Prints a line for each turn."""

import sys
import threading
import time

from deepgram import DeepgramClient
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment

ADDRESS, KEY, FILE = sys.argv[1:]
WAIT = 120
WAV_HEADER = 44
PIECE_BYTES = 3200

sockets = ADDRESS.replace("http", "ws", 1)
here = DeepgramClientEnvironment(base=ADDRESS, production=sockets, agent=sockets, agent_rest=ADDRESS)
client = DeepgramClient(api_key=KEY, environment=here)
seen, closed, connected = [], threading.Event(), threading.Event()


def heard(message):
    # A class of its own for each message: what does not fit one comes as a mere dictionary.
    seen.append((type(message).__name__, message))
    if type(message).__name__ == "ListenV2Connected":
        connected.set()


query = dict(model="flux-general-en", encoding="linear16", sample_rate="16000", eot_threshold="0.7",
             eager_eot_threshold="0.4", eot_timeout_ms="5000", keyterm=["one", "two words"], tag=["test"],
             mip_opt_out="true", numerals="false", profanity_filter="false")
with client.listen.v2.connect(**query) as connection:
    connection.on(EventType.MESSAGE, heard)
    connection.on(EventType.ERROR, lambda error: seen.append(("Error", error)))
    connection.on(EventType.CLOSE, lambda _: closed.set())
    listening = threading.Thread(target=connection.start_listening)
    listening.start()
    assert connected.wait(WAIT), "no Connected"
    connection.send_configure({"type": "Configure", "thresholds": {"eot_threshold": 0.6}, "keyterms": ["other"]})
    audio = open(FILE, "rb").read()[WAV_HEADER:]
    for at in range(0, len(audio), PIECE_BYTES):
        connection.send_media(audio[at:at + PIECE_BYTES])
        time.sleep(0.02)
    connection.send_close_stream()
    assert closed.wait(WAIT), "no close"
    listening.join(WAIT)

kinds = [kind for kind, _ in seen]
assert "Error" not in kinds, seen
assert kinds[0] == "ListenV2Connected", kinds
assert sum(kind.endswith("ConfigureSuccess") or (kind == "dict" and message.get("type") == "ConfigureSuccess")
           for kind, message in seen) == 1, kinds
turns = [message for kind, message in seen if kind == "ListenV2TurnInfo"]
assert len(turns) >= len(kinds) - 2, kinds
events = {turn.event for turn in turns}
assert {"StartOfTurn", "Update", "EagerEndOfTurn", "EndOfTurn"} <= events, events
for turn in turns:
    assert " ".join(word.word for word in turn.words) == turn.transcript, turn
    if turn.event == "EndOfTurn":
        print(int(turn.turn_index), turn.transcript)
