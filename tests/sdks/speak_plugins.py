#!/usr/bin/env python3
"""LiveKit's plugins and Pipecat's services that speak, those for the wire format and those for OpenAI, with their own
defaults, against a server: speak_plugins.py ADDRESS KEY FOLDER. Each writes NAME.wav there, and prints when its first and
its last sound came, in seconds."""

import asyncio
import sys
import time
import warnings
import wave
from pathlib import Path

ADDRESS, KEY, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
SOCKETS = ADDRESS.replace("http", "ws", 1)
TEXT = "The quick brown fox jumps over the lazy dog. The office is open on Monday, please call again tomorrow morning."
WAIT = 200
# A busy machine may need longer for a piece than the plugins wait: LiveKit's 10 s, Pipecat's 3 s.
PATIENCE = 60


class Heard:
    """What came of a text, and when."""

    def __init__(self):
        self.began, self.first, self.samples, self.rate = time.monotonic(), None, bytearray(), None

    def add(self, samples, rate):
        if samples and self.first is None:
            self.first = time.monotonic() - self.began
        self.samples += samples
        self.rate = rate

    def show(self, name):
        last = time.monotonic() - self.began
        assert self.samples, f"{name}: no audio"
        with wave.open(str(FOLDER / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, self.rate, 0, "NONE", ""))
            file.writeframes(self.samples)
        seconds = len(self.samples) / 2 / self.rate
        print(f"{name} {self.first:.2f} {last:.2f} {seconds:.2f}", flush=True)


async def livekit(name, stream):
    heard = Heard()
    async with asyncio.timeout(WAIT):
        async for sound in stream:
            assert sound.frame.num_channels == 1
            heard.add(bytes(sound.frame.data), sound.frame.sample_rate)
    await stream.aclose()
    heard.show(name)


async def livekit_all():
    from livekit.agents import APIConnectOptions
    from livekit.agents.utils import http_context
    from livekit.plugins import deepgram, openai

    patient = APIConnectOptions(timeout=PATIENCE)
    async with http_context.open():
        wire = deepgram.TTS(api_key=KEY, base_url=ADDRESS + "/v1/speak")
        await livekit("livekit-request", wire.synthesize(TEXT, conn_options=patient))
        # Twice over one connection, the first as a chat model writes.
        for name, parts in ("livekit-stream", TEXT.replace(" ", " \0").split("\0")), ("livekit-again", [TEXT]):
            stream = wire.stream(conn_options=patient)
            for part in parts:
                stream.push_text(part)
            stream.end_input()
            await livekit(name, stream)
        await wire.aclose()
        for name, model in ("livekit-openai", {}), ("livekit-openai-tts-1", {"model": "tts-1", "response_format": "wav"}):
            speaker = openai.TTS(api_key=KEY, base_url=ADDRESS + "/v1", **model)
            await livekit(name, speaker.synthesize(TEXT, conn_options=patient))
            await speaker.aclose()


async def pipecat(name, service):
    from pipecat.frames import frames
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.runner import PipelineRunner
    from pipecat.pipeline.task import PipelineParams, PipelineTask
    from pipecat.processors.frame_processor import FrameProcessor

    heard, stopped = Heard(), asyncio.Event()

    class Sink(FrameProcessor):
        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            assert not isinstance(frame, frames.ErrorFrame), frame
            if isinstance(frame, frames.TTSAudioRawFrame):
                heard.add(frame.audio, frame.sample_rate)
            if isinstance(frame, frames.TTSStoppedFrame):
                stopped.set()
            await self.push_frame(frame, direction)

    task = PipelineTask(Pipeline([service, Sink()]), params=PipelineParams(audio_out_sample_rate=24_000))

    async def speak():
        # What a chat model's service pushes.
        await task.queue_frame(frames.LLMFullResponseStartFrame())
        for word in TEXT.split():
            await task.queue_frame(frames.LLMTextFrame(word + " "))
        await task.queue_frame(frames.LLMFullResponseEndFrame())
        await asyncio.wait_for(stopped.wait(), WAIT)
        await task.queue_frame(frames.EndFrame())

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), speak())
    heard.show(name)


async def pipecat_all():
    import aiohttp
    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    from pipecat.services.deepgram.tts import DeepgramHttpTTSService, DeepgramTTSService
    from pipecat.services.openai.tts import OpenAITTSService

    patient = {"stop_frame_timeout_s": PATIENCE}
    await pipecat("pipecat-stream", DeepgramTTSService(api_key=KEY, base_url=SOCKETS, **patient))
    async with aiohttp.ClientSession() as session:
        service = DeepgramHttpTTSService(api_key=KEY, base_url=ADDRESS, aiohttp_session=session, **patient)
        await pipecat("pipecat-request", service)
    await pipecat("pipecat-openai", OpenAITTSService(api_key=KEY, base_url=ADDRESS + "/v1", **patient))


warnings.simplefilter("ignore")
asyncio.run(livekit_all())
asyncio.run(pipecat_all())
