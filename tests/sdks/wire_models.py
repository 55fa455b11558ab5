"""`/v1/models` as deepgram-sdk's newest client reads it. Environment: SERVER (http://…), KEY. Prints names and UUIDs as JSON."""

import json
import os

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment

SERVER, KEY = os.environ["SERVER"], os.environ["KEY"]
SOCKETS = SERVER.replace("http", "ws")
here = DeepgramClientEnvironment(base=SERVER, production=SOCKETS, agent=SOCKETS, agent_rest=SERVER)
models = DeepgramClient(api_key=KEY, environment=here).manage.v1.models
listed = models.list()
one = models.get(listed.stt[0].uuid_)
print(json.dumps({"listed": [[model.name, model.uuid_] for model in listed.stt], "tts": len(listed.tts), "one": one.name}))
