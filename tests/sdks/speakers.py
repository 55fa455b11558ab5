"""Speakers as deepgram-sdk's objects have them. Environment: SERVER (http://…), KEY, AUDIO (a file).

Prints [word, speaker, confidence] of each word, as JSON. For the newest version and for 3.x.
"""

import importlib.metadata
import json
import os
from pathlib import Path

SERVER, KEY = os.environ["SERVER"], os.environ["KEY"]
AUDIO = Path(os.environ["AUDIO"]).read_bytes()


def newest():
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment

    here = DeepgramClientEnvironment(
        base=SERVER, production=SERVER.replace("http", "ws"), agent=SERVER.replace("http", "ws"), agent_rest=SERVER)
    media = DeepgramClient(api_key=KEY, environment=here).listen.v1.media
    return media.transcribe_file(request=AUDIO, diarize=True, language="en")


def three():
    from deepgram import DeepgramClient, DeepgramClientOptions, PrerecordedOptions

    listen = DeepgramClient(KEY, DeepgramClientOptions(url=SERVER)).listen.rest.v("1")
    return listen.transcribe_file({"buffer": AUDIO}, PrerecordedOptions(diarize=True, language="en"))


if __name__ == "__main__":
    is_three = importlib.metadata.version("deepgram-sdk").startswith("3.")
    words = (three() if is_three else newest()).results.channels[0].alternatives[0].words
    print(json.dumps([[word.word, word.speaker, word.speaker_confidence] for word in words]))
