#!/usr/bin/env python3
"""LiveKit's and Pipecat's clients of OpenAI's Realtime API against a server: realtime_plugins.py ADDRESS KEY FILE.wav

The file has 16-bit samples at 24 kHz, and ends with a pause. Each client lets the server find the turns, and then commits
by itself.
"""

import asyncio
import sys
import wave

ADDRESS, KEY, FILE = sys.argv[1:]
WAIT = 120
RATE = 24_000
# A twentieth of a second.
PIECE_BYTES = RATE // 20 * 2


def pieces():
    with wave.open(FILE) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = file.readframes(file.getnframes())
    return [samples[at:at + PIECE_BYTES] for at in range(0, len(samples), PIECE_BYTES)]


async def livekit(model, commits):
    from livekit import rtc
    from livekit.agents import stt
    from livekit.agents.utils import http_context
    from livekit.plugins import openai

    async with http_context.open():
        own = dict(vad=None) if commits else {}
        recognizer = openai.STT(base_url=ADDRESS + "/v1", api_key=KEY, model=model, use_realtime=True, **own)
        stream = recognizer.stream()
        for piece in pieces():
            stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
        stream.flush()
        kinds, heard = [], []
        sent = asyncio.create_task(commit(stream)) if commits else None
        async for event in stream:
            kinds.append(event.type)
            if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                heard.append(event.alternatives[0].text)
            if event.type == stt.SpeechEventType.RECOGNITION_USAGE:
                break
        if not commits:
            ends = stt.SpeechEventType.START_OF_SPEECH, stt.SpeechEventType.END_OF_SPEECH
            assert all(end in kinds for end in ends), kinds
        if sent:
            await sent
        await stream.aclose()
        return " ".join(heard)


async def commit(stream):
    """What the plugin does at the end of speech, once all audio was sent."""
    while stream._ws is None or not stream._input_ch.empty():
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    await stream._ws.send_json({"type": "input_audio_buffer.commit"})


async def pipecat(model, commits):
    from pipecat.frames import frames
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.runner import PipelineRunner
    from pipecat.pipeline.task import PipelineParams, PipelineTask
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.openai.stt import OpenAIRealtimeSTTService as Service

    heard, done = [], asyncio.Event()

    class Listener(FrameProcessor):
        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            if isinstance(frame, frames.TranscriptionFrame):
                heard.append(frame.text)
                done.set()
            assert not isinstance(frame, frames.ErrorFrame), frame
            await self.push_frame(frame, direction)

    settings = Service.Settings(model=model, noise_reduction="near_field")
    detection = False if commits else {"type": "server_vad"}
    address = ADDRESS.replace("http", "ws", 1) + "/v1/realtime"
    service = Service(api_key=KEY, base_url=address, turn_detection=detection, settings=settings)
    task = PipelineTask(Pipeline([service, Listener()]), params=PipelineParams(audio_in_sample_rate=RATE))

    async def feed():
        while not service._session_ready:
            await asyncio.sleep(0.05)
        for piece in pieces():
            await task.queue_frame(frames.InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))
        if commits:
            await task.queue_frame(frames.VADUserStoppedSpeakingFrame())
        await done.wait()
        await task.queue_frame(frames.EndFrame())

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), feed())
    return " ".join(heard)


async def main():
    heard = set()
    for client in livekit, pipecat:
        for model, commits in ("gpt-4o-transcribe", False), ("gpt-realtime-whisper", True):
            heard.add(await asyncio.wait_for(client(model, commits), WAIT))
    assert len(heard) == 1, heard
    print(heard.pop())


asyncio.run(main())
