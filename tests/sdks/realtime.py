#!/usr/bin/env python3
"""OpenAI's SDK's realtime clients, current and beta, against a server: realtime.py ADDRESS KEY FILE.wav

The file has 16-bit samples at 24 kHz, and ends with a pause.
"""

import base64
import json
import sys
import wave

from openai import OpenAI

ADDRESS, KEY, FILE = sys.argv[1:]
# A tenth of a second.
PIECE_BYTES = 4800
TRANSCRIPTION = "conversation.item.input_audio_transcription."


def audio():
    with wave.open(FILE) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return file.readframes(file.getnframes())


def send(connection):
    samples = audio()
    for at in range(0, len(samples), PIECE_BYTES):
        connection.input_audio_buffer.append(audio=base64.b64encode(samples[at:at + PIECE_BYTES]).decode())


def until_completed(connection):
    """All events up to the one that completes an item; its deltas are its transcript."""
    events = []
    while not events or events[-1].type != TRANSCRIPTION + "completed":
        events.append(connection.recv())
        assert events[-1].type != "error", events[-1]
    last = events[-1]
    deltas = [event.delta for event in events if event.type == TRANSCRIPTION + "delta"]
    assert "".join(deltas) == last.transcript, (deltas, last.transcript)
    assert last.usage.type == "duration" and last.usage.seconds > 1, last.usage
    return events


def kinds(events):
    return [event.type for event in events if event.type != TRANSCRIPTION + "delta"]


client = OpenAI(api_key=KEY, base_url=ADDRESS + "/v1", websocket_base_url=ADDRESS.replace("http", "ws", 1) + "/v1")

# The current shape: turns by pauses, then by commits.
with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
    created = connection.recv()
    assert (created.type, created.session.type) == ("session.created", "transcription"), created
    detected = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 600}
    for turn_detection in detected, None:
        transcription = {"model": "gpt-4o-transcribe", "language": "en", "prompt": "A list of numbers."}
        connection.session.update(session={
            "type": "transcription",
            "audio": {"input": {
                "format": {"type": "audio/pcm", "rate": 24000}, "transcription": transcription,
                "turn_detection": turn_detection, "noise_reduction": {"type": "near_field"},
            }},
            "include": ["item.input_audio_transcription.logprobs"],
        })
        updated = connection.recv()
        assert updated.type == "session.updated", updated
        if turn_detection is None:
            connection.input_audio_buffer.clear()
            assert connection.recv().type == "input_audio_buffer.cleared"
        send(connection)
        if turn_detection is None:
            connection.input_audio_buffer.commit()
        events = until_completed(connection)
        item = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]
        if turn_detection:
            item = ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", *item]
        assert kinds(events) == [*item, TRANSCRIPTION + "completed"], kinds(events)
        words = [token.token for token in events[-1].logprobs]
        assert "".join(words).strip() == events[-1].transcript and events[-1].logprobs[0].logprob < 0, words
        heard = events[-1].transcript
    connection.response.create(event_id="mine")
    error = connection.recv()
    assert (error.type, error.error.event_id) == ("error", "mine"), error
    # Each event is one that the SDK knows, with all that it requires.
    for event in [created, updated, error, *events]:
        type(event).model_validate(json.loads(event.model_dump_json()))

# The beta's shape.
with client.beta.realtime.connect(model="gpt-4o-transcribe", extra_query={"intent": "transcription"}) as connection:
    assert connection.recv().type == "transcription_session.created"
    connection.transcription_session.update(session={
        "input_audio_format": "pcm16", "input_audio_transcription": {"model": "whisper-1"},
        "turn_detection": {"type": "server_vad", "silence_duration_ms": 600},
    })
    assert connection.recv().type == "transcription_session.updated"
    send(connection)
    events = until_completed(connection)
    assert "conversation.item.created" in kinds(events), kinds(events)
    assert events[-1].transcript == heard, (events[-1].transcript, heard)

print(heard)
