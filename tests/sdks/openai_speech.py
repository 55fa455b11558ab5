#!/usr/bin/env python3
"""OpenAI's SDK speaks against a server: openai_speech.py ADDRESS KEY FOLDER. Writes speech.mp3 there."""

import sys
from pathlib import Path

import openai

ADDRESS, KEY, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
TEXT = "The quick brown fox jumps over the lazy dog."
client = openai.OpenAI(base_url=f"{ADDRESS}/v1", api_key=KEY, max_retries=0)

with client.audio.speech.with_streaming_response.create(model="tts-1", voice="alloy", input=TEXT) as response:
    response.stream_to_file(FOLDER / "speech.mp3")
pcm = client.audio.speech.create(
    model="gpt-4o-mini-tts", voice="nova", input=TEXT, response_format="pcm", instructions="Cheerful.", speed=1.1)
assert 48_000 < len(pcm.content) < 400_000, len(pcm.content)
try:
    client.audio.speech.create(model="tts-1", voice="nobody", input=TEXT)
    sys.exit("an unknown voice is taken")
except openai.BadRequestError as error:
    assert error.param == "voice", error
