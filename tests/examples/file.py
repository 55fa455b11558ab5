import os

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment

server, key = os.environ["SERVER"], os.environ["KEY"]
sockets = server.replace("http", "ws", 1)
here = DeepgramClientEnvironment(base=server, production=sockets, agent=sockets, agent_rest=server)
client = DeepgramClient(api_key=key, environment=here)
with open(os.environ["AUDIO"], "rb") as audio:
    response = client.listen.v1.media.transcribe_file(request=audio.read(), smart_format=True)
print(response.results.channels[0].alternatives[0].transcript)
