"""OpenAI's SDK against another address, with nothing changed but that address and the key.

Environment: SERVER (http://…), KEY, AUDIO (a file), CONVERSATION (a file of two speakers), FOREIGN (a file in Spanish).
Prints what came back, as JSON.
"""

import json
import os
from pathlib import Path

import openai

SERVER, KEY = os.environ["SERVER"], os.environ["KEY"]
AUDIO, CONVERSATION, FOREIGN = (Path(os.environ[name]) for name in ("AUDIO", "CONVERSATION", "FOREIGN"))
client = openai.OpenAI(base_url=f"{SERVER}/v1", api_key=KEY, max_retries=0)


def transcribe(audio=AUDIO, **more):
    return client.audio.transcriptions.create(file=audio, model="whisper-1", **more)


def refused(call) -> dict:
    try:
        call()
    except openai.APIStatusError as error:
        return {"kind": type(error).__name__, "param": error.param, "code": error.code, "type": error.type}
    return {"kind": "none"}


events = list(transcribe(stream=True, include=["logprobs"]))
verbose = transcribe(response_format="verbose_json", timestamp_granularities=["word", "segment"])
with_probabilities = transcribe(include=["logprobs"], language="en", temperature=0.2, prompt="Jane Austen.")
turns = transcribe(CONVERSATION, response_format="diarized_json", language="en", chunking_strategy="auto")
vad = transcribe(chunking_strategy={"type": "server_vad", "threshold": 0.4})
print(json.dumps({
    "text": transcribe().text,
    "usage": transcribe().usage.to_dict(),
    "plain": transcribe(response_format="text"),
    "srt": transcribe(response_format="srt"),
    "vtt": transcribe(response_format="vtt"),
    "verbose": {
        "text": verbose.text,
        "language": verbose.language,
        "duration": verbose.duration,
        "words": [[word.word, word.start, word.end] for word in verbose.words],
        "segments": [segment.to_dict() for segment in verbose.segments],
    },
    "logprobs": {
        "text": with_probabilities.text,
        "tokens": [[token.token, token.logprob, token.bytes] for token in with_probabilities.logprobs],
    },
    "turns": [[segment.speaker, segment.start, segment.end, segment.text] for segment in turns.segments],
    "warnings": vad.to_dict().get("warnings", []),
    "events": {
        "types": [event.type for event in events],
        "deltas": "".join(event.delta for event in events if event.type == "transcript.text.delta"),
        "text": events[-1].text,
        "usage": events[-1].usage.to_dict(),
        "logprobs": len(events[-1].logprobs),
    },
    "translation": client.audio.translations.create(file=FOREIGN, model="whisper-1").text,
    "models": [model.id for model in client.models.list()],
    "model": client.models.retrieve("Systran/whisper").id,
    "refused": {
        "language": refused(lambda: transcribe(language="klingon")),
        "file": refused(lambda: transcribe(("a.wav", b"not audio"))),
        "key": refused(lambda: openai.OpenAI(base_url=f"{SERVER}/v1", api_key="none", max_retries=0).models.list()),
        "path": refused(lambda: client.post("/audio/nothing", cast_to=object)),
    },
}))
