"""deepgram-sdk against another address, with nothing changed but that address and the key.

Environment: SERVER (http://…), KEY, AUDIO (a file), URL (of the same audio), CALLBACK. Prints what came back,
as JSON. For the newest version and for 3.x.
"""

import importlib.metadata
import json
import os
from pathlib import Path

SERVER, KEY, URL, CALLBACK = (os.environ[name] for name in ("SERVER", "KEY", "URL", "CALLBACK"))
AUDIO = Path(os.environ["AUDIO"]).read_bytes()


def heard(response) -> dict:
    alternative = response.results.channels[0].alternatives[0]
    utterances = response.results.utterances or []
    return {
        "transcript": alternative.transcript,
        "words": [[word.word, word.start, word.end] for word in alternative.words],
        "utterances": [utterance.transcript for utterance in utterances],
        "request_id": response.metadata.request_id,
    }


def newest() -> dict:
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment

    here = DeepgramClientEnvironment(
        base=SERVER, production=SERVER.replace("http", "ws"), agent=SERVER.replace("http", "ws"), agent_rest=SERVER)
    media = DeepgramClient(api_key=KEY, environment=here).listen.v1.media
    return {
        "bytes": heard(media.transcribe_file(request=AUDIO, model="nova-3", smart_format=True)),
        "url": heard(media.transcribe_url(url=URL, model="nova-3")),
        "utterances": heard(media.transcribe_file(request=AUDIO, utterances=True)),
        "callback": media.transcribe_file(request=AUDIO, callback=CALLBACK).request_id,
    }


def three() -> dict:
    from deepgram import DeepgramClient, DeepgramClientOptions, PrerecordedOptions

    listen = DeepgramClient(KEY, DeepgramClientOptions(url=SERVER)).listen.rest.v("1")
    audio = {"buffer": AUDIO}
    return {
        "bytes": heard(listen.transcribe_file(audio, PrerecordedOptions(model="nova-2", smart_format=True))),
        "url": heard(listen.transcribe_url({"url": URL}, PrerecordedOptions(model="nova-2"))),
        "utterances": heard(listen.transcribe_file(audio, PrerecordedOptions(utterances=True))),
        "callback": listen.transcribe_file_callback(audio, CALLBACK, PrerecordedOptions()).request_id,
    }


if __name__ == "__main__":
    is_three = importlib.metadata.version("deepgram-sdk").startswith("3.")
    print(json.dumps(three() if is_three else newest()))
