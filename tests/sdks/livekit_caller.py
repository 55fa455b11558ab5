"""A caller in a LiveKit room, played by the official client.

Told what to do by lines of JSON: {"speak": FILE} (16-bit mono WAV), {"type": TEXT}, {"save": FILE},
{"leave": true}. Tells what happens by lines of JSON: {"event": ...}. All that it hears of the agent is kept,
and saved as WAV on demand; "heard" says for every tenth of a second how loud it was. A "line" of the talk comes when it is
whole, and its "words" as they come.
"""

import array
import asyncio
import json
import math
import os
import sys
import wave

from livekit import rtc

RATE = 16_000


def tell(event: str, **more) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


class Ear:
    """The agent's audio since it was last saved."""

    def __init__(self):
        self.samples = array.array("h")

    async def listen(self, track) -> None:
        pending = array.array("h")
        async for event in rtc.AudioStream(track, sample_rate=RATE, num_channels=1):
            frame = array.array("h", bytes(event.frame.data))
            self.samples.extend(frame)
            pending.extend(frame)
            if len(pending) >= RATE // 10:
                loudness = math.sqrt(sum(sample * sample for sample in pending) / len(pending))
                tell("heard", loudness=round(loudness))
                pending = array.array("h")

    def save(self, path: str) -> None:
        with wave.open(path, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(self.samples.tobytes())
        self.samples = array.array("h")


async def speak(source, path: str) -> None:
    with wave.open(path) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        step = RATE // 50
        while data := file.readframes(step):
            data = data.ljust(step * 2, b"\0")
            await source.capture_frame(rtc.AudioFrame(data, RATE, 1, step))
    await source.wait_for_playout()
    tell("spoken")


async def main() -> None:
    room, ear, tasks = rtc.Room(), Ear(), set()

    def keep(coroutine) -> None:
        task = asyncio.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    @room.on("track_subscribed")
    def subscribed(track, publication, participant):
        if track.kind == rtc.TrackKind.KIND_AUDIO:
            tell("agent", kind=int(participant.kind), identity=participant.identity)
            keep(ear.listen(track))

    @room.on("participant_attributes_changed")
    def changed(attributes, participant):
        tell("attributes", **attributes)

    @room.on("data_received")
    def received(packet):
        if packet.topic == "verbatim":
            tell("message", message=json.loads(packet.data))

    @room.on("disconnected")
    def disconnected(reason):
        tell("disconnected", reason=rtc.DisconnectReason.Name(reason))

    async def line(reader, identity):
        text = ""
        try:
            async for chunk in reader:
                text += chunk
                tell("words", identity=identity, text=text, attributes=dict(reader.info.attributes or {}))
        except rtc.StreamError:
            return
        tell("line", identity=identity, text=text, attributes=dict(reader.info.attributes or {}))

    room.register_text_stream_handler("lk.transcription", lambda reader, identity: keep(line(reader, identity)))
    await room.connect(os.environ["LIVEKIT_ADDRESS"], os.environ["LIVEKIT_TOKEN"])
    tell("joined", identity=room.local_participant.identity)
    source = rtc.AudioSource(RATE, 1)
    track = rtc.LocalAudioTrack.create_audio_track("microphone", source)
    options = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
    await room.local_participant.publish_track(track, options)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while command := await lines.readline():
        command = json.loads(command)
        if path := command.get("speak"):
            keep(speak(source, path))
        elif text := command.get("type"):
            await room.local_participant.send_text(text, topic="lk.chat")
        elif path := command.get("save"):
            ear.save(path)
            tell("saved")
        elif command.get("leave"):
            break
    await room.disconnect()
    tell("left")


asyncio.run(main())
