#!/usr/bin/env python3
"""deepgram-sdk's speech clients against a server: speak.py ADDRESS KEY FOLDER. Writes rest.wav and stream.raw there."""

import sys
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text

ADDRESS, KEY, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
TEXT = "The quick brown fox jumps over the lazy dog."

sockets = ADDRESS.replace("http", "ws", 1)
here = DeepgramClientEnvironment(base=ADDRESS, production=sockets, agent=sockets, agent_rest=ADDRESS)
client = DeepgramClient(api_key=KEY, environment=here)

pieces = client.speak.v1.audio.generate(
    text=TEXT, model="aura-2-thalia-en", encoding="linear16", container="wav", sample_rate=24000)
(FOLDER / "rest.wav").write_bytes(b"".join(pieces))

audio, kinds = bytearray(), []
with client.speak.v1.connect(model="aura-2-thalia-en", encoding="linear16", sample_rate="24000") as connection:
    for word in TEXT.split():
        connection.send_text(SpeakV1Text(type="Speak", text=word + " "))
    connection.send_flush()
    for message in connection:
        if isinstance(message, bytes):
            audio += message
            continue
        # What fits no class comes as a mere dictionary.
        kinds.append(message.type)
        if message.type == "Flushed":
            connection.send_clear()
        elif message.type == "Cleared":
            connection.send_close()
assert kinds == ["Metadata", "Flushed", "Cleared"], kinds
(FOLDER / "stream.raw").write_bytes(audio)
