#!/usr/bin/env python3
"""deepgram-sdk's speech clients against a server: speak.py ADDRESS KEY FOLDER. Writes rest.wav and stream.raw there, and
by turns turn.wav and turns.raw."""

import sys
from pathlib import Path

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text
from deepgram.speak.v2.types import SpeakV2Configure, SpeakV2Interrupt, SpeakV2InterruptPlaybackOffset, SpeakV2Speak

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

pieces = client.speak.v2.audio.generate(
    text=TEXT, model="flux-alexis-en", encoding="linear16", container="wav", sample_rate=24000, expressivity=1)
(FOLDER / "turn.wav").write_bytes(b"".join(pieces))

audio, messages = bytearray(), []
with client.speak.v2.connect(model="flux-alexis-en", encoding="linear16", sample_rate="24000") as connection:
    for word in TEXT.split():
        connection.send_speak(SpeakV2Speak(type="Speak", text=word + " "))
    connection.send_flush()
    for message in connection:
        if isinstance(message, bytes):
            if len(messages) < 4:
                audio += message
            continue
        messages.append(message)
        kinds = [message.type for message in messages]
        if kinds[-1] == "SpeechMetadata" and len(kinds) == 4:
            connection.send_configure(SpeakV2Configure(type="Configure", speed=1.1))
        elif kinds[-1] == "ConfigureSuccess":
            connection.send_speak(SpeakV2Speak(type="Speak", text=TEXT))
            connection.send_flush()
        elif kinds[-1] == "SpeechMetadata":
            # The listener cuts in half a second into the second turn.
            played = messages[3].audio_duration_ms + 500
            offset = SpeakV2InterruptPlaybackOffset(type="time_ms", value=played)
            connection.send_interrupt(SpeakV2Interrupt(type="Interrupt", playback_offset=offset))
        elif kinds[-1] == "SpeechInterrupted":
            connection.send_close()
assert kinds == [
    "Connected", "SpeechStarted", "Flushed", "SpeechMetadata", "ConfigureSuccess", "SpeechStarted", "Flushed",
    "SpeechMetadata", "SpeechInterrupted", "SessionMetadata"], kinds
assert messages[1].speech_id == messages[3].speech_id != messages[5].speech_id
assert messages[4].applied.speed == 1.1, messages[4]
cut = messages[8]
assert cut.audio_played_ms == played and cut.text_spoken and f"{cut.text_spoken} {cut.text_remaining}" == TEXT, cut
assert messages[9].total_audio_duration_ms == played, messages[9]
(FOLDER / "turns.raw").write_bytes(audio)
