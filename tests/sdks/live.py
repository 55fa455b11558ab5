#!/usr/bin/env python3
"""deepgram-sdk's live client, 7 or 3, against a server: live.py ADDRESS KEY FILE.wav"""

import sys
import threading
import time
from importlib.metadata import version

ADDRESS, KEY, FILE = sys.argv[1:]
WAIT = 120
PIECE_BYTES = 3200


class Seen:
    """The messages that arrived, in order, and a way to wait for one."""

    def __init__(self):
        self.messages, self.changed = [], threading.Condition()

    def add(self, kind, **facts):
        with self.changed:
            self.messages.append((kind, facts))
            self.changed.notify_all()

    def all(self, kind, **wanted):
        return [facts for seen, facts in self.messages
                if seen == kind and all(facts.get(name) == value for name, value in wanted.items())]

    def wait(self, kind, **wanted):
        with self.changed:
            if not self.changed.wait_for(lambda: self.all(kind, **wanted), WAIT):
                sys.exit(f"no {kind} {wanted}; came: {self.messages}")


def results(message):
    alternative = message.channel.alternatives[0]
    return dict(final=message.is_final, finalized=message.from_finalize or False, text=alternative.transcript,
                words=len(alternative.words))


def converse(seen, media, finalize, keep_alive, close_stream):
    audio = open(FILE, "rb").read()
    middle = len(audio) // 2 // PIECE_BYTES * PIECE_BYTES
    for at in range(0, middle, PIECE_BYTES):
        media(audio[at:at + PIECE_BYTES])
        time.sleep(0.05)
    seen.wait("Results", final=False)
    finalize()
    seen.wait("Results", finalized=True)
    keep_alive()
    media(audio[middle:])
    close_stream()


def version_7(seen):
    from deepgram import DeepgramClient
    from deepgram.core.events import EventType
    from deepgram.environment import DeepgramClientEnvironment

    sockets = ADDRESS.replace("http", "ws", 1)
    here = DeepgramClientEnvironment(base=ADDRESS, production=sockets, agent=sockets, agent_rest=ADDRESS)
    client = DeepgramClient(api_key=KEY, environment=here)
    query = dict(model="nova-3", interim_results="true", punctuate="true", vad_events="true",
                 utterance_end_ms="1000", language="en")
    with client.listen.v1.connect(**query) as connection:
        def heard(message):
            # A class of its own for each message: what does not fit one comes as a mere dictionary.
            kind = type(message).__name__.removeprefix("ListenV1")
            seen.add(kind, **(results(message) if kind == "Results" else {}))

        connection.on(EventType.MESSAGE, heard)
        connection.on(EventType.ERROR, lambda error: seen.add("Error", what=repr(error)))
        connection.on(EventType.CLOSE, lambda _: seen.add("Close"))
        listening = threading.Thread(target=connection.start_listening)
        listening.start()
        converse(seen, connection.send_media, connection.send_finalize, connection.send_keep_alive,
                 connection.send_close_stream)
        seen.wait("Close")
        listening.join(WAIT)


def version_3(seen):
    from deepgram import DeepgramClient, DeepgramClientOptions, LiveOptions, LiveTranscriptionEvents as Events

    client = DeepgramClient(KEY, DeepgramClientOptions(url=ADDRESS))
    connection = client.listen.websocket.v("1")
    connection.on(Events.Transcript, lambda _, result, **__: seen.add("Results", **results(result)))
    connection.on(Events.SpeechStarted, lambda *_, **__: seen.add("SpeechStarted"))
    connection.on(Events.Metadata, lambda *_, **__: seen.add("Metadata"))
    connection.on(Events.Error, lambda _, error, **__: seen.add("Error", what=repr(error)))
    connection.on(Events.Close, lambda *_, **__: seen.add("Close"))
    options = LiveOptions(model="nova-3", interim_results=True, punctuate=True, vad_events=True,
                          utterance_end_ms="1000", language="en")
    if not connection.start(options):
        sys.exit("the connection did not start")

    def close_stream():
        # `finish` waits half a second and leaves: what says goodbye in order is the message itself.
        connection.send('{"type": "CloseStream"}')
        seen.wait("Metadata")
        connection.finish()

    converse(seen, connection.send, connection.finalize, connection.keep_alive, close_stream)
    seen.wait("Close")


seen = Seen()
{"7": version_7, "3": version_3}[version("deepgram-sdk").split(".")[0]](seen)
kinds = [kind for kind, _ in seen.messages]
text = " ".join(facts["text"] for facts in seen.all("Results", final=True) if facts["text"])
assert not seen.all("Error"), seen.all("Error")
assert "SpeechStarted" in kinds, kinds
assert any(facts["text"] and facts["words"] for facts in seen.all("Results", final=False)), "no interim words"
assert kinds.index("Metadata") > max(at for at, kind in enumerate(kinds) if kind == "Results"), kinds
assert kinds.count("Metadata") == 1 and kinds[-1] == "Close", kinds
print(text)
