import os
import threading

from deepgram import DeepgramClient
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment

server, key = os.environ["SERVER"], os.environ["KEY"]
sockets = server.replace("http", "ws", 1)
here = DeepgramClientEnvironment(base=server, production=sockets, agent=sockets, agent_rest=server)


def show(message):
    if message.type == "Results" and message.is_final:
        print(message.channel.alternatives[0].transcript, flush=True)


with DeepgramClient(api_key=key, environment=here).listen.v1.connect(model="nova-3") as connection:
    connection.on(EventType.MESSAGE, show)
    listening = threading.Thread(target=connection.start_listening)
    listening.start()
    with open(os.environ["AUDIO"], "rb") as audio:
        while piece := audio.read(8192):
            connection.send_media(piece)
    connection.send_close_stream()
    listening.join()
