#!/usr/bin/env python3
"""LiveKit's plugin and Pipecat's services for the wire format, with their own defaults, against a server:
turns_plugins.py ADDRESS KEY FILE.wav, 16 kHz. Each is used for streams (`/v1/listen`) and for turns (`/v2/listen`), and its
final transcripts are printed."""

import asyncio
import sys
import warnings
import wave

ADDRESS, KEY, FILE = sys.argv[1:]
SOCKETS = ADDRESS.replace("http", "ws", 1)
RATE = 16_000
WAIT = 120
# A twentieth of a second, sent faster than it is spoken.
PIECE_BYTES, PAUSE = RATE // 20 * 2, 0.02


def pieces():
    with wave.open(FILE) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        samples = file.readframes(file.getnframes())
    return [samples[at:at + PIECE_BYTES] for at in range(0, len(samples), PIECE_BYTES)]


async def until(is_so):
    async with asyncio.timeout(WAIT):
        while not is_so():
            await asyncio.sleep(0.05)


async def livekit(recognizer):
    from livekit import rtc
    from livekit.agents import stt

    stream = recognizer.stream()
    kinds, heard = [], []

    async def listen():
        async for event in stream:
            kinds.append(event.type)
            if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                heard.append(event.alternatives[0].text)

    listening = asyncio.create_task(listen())
    for piece in pieces():
        stream.push_frame(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
        await asyncio.sleep(PAUSE)
    stream.end_input()
    await asyncio.wait_for(listening, WAIT)
    await stream.aclose()
    ends = stt.SpeechEventType.START_OF_SPEECH, stt.SpeechEventType.END_OF_SPEECH
    assert all(end in kinds for end in ends), kinds
    return heard


async def livekit_both():
    from livekit.agents.utils import http_context
    from livekit.plugins import deepgram

    async with http_context.open():
        streams = deepgram.STT(api_key=KEY, base_url=SOCKETS + "/v1/listen")
        show("livekit streams", await livekit(streams))
        turns = deepgram.STTv2(api_key=KEY, base_url=SOCKETS + "/v2/listen", eager_eot_threshold=0.4, keyterm=["one"])
        show("livekit turns", await livekit(turns))


async def pipecat(service, is_ready):
    from pipecat.frames.frames import EndFrame, ErrorFrame, InputAudioRawFrame, TranscriptionFrame
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.runner import PipelineRunner
    from pipecat.pipeline.task import PipelineParams, PipelineTask
    from pipecat.processors.frame_processor import FrameProcessor

    heard = []

    class Sink(FrameProcessor):
        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            assert not isinstance(frame, ErrorFrame), frame
            if isinstance(frame, TranscriptionFrame):
                heard.append(frame.text)
            await self.push_frame(frame, direction)

    task = PipelineTask(Pipeline([service, Sink()]), params=PipelineParams(audio_in_sample_rate=RATE))

    async def speak():
        # Audio that comes before is dropped.
        await until(lambda: is_ready(service))
        for piece in pieces():
            await task.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=RATE, num_channels=1))
            await asyncio.sleep(PAUSE)
        await until(lambda: len(heard) == 2)
        await task.queue_frame(EndFrame())

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), speak())
    return heard


async def pipecat_both():
    from loguru import logger

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    from pipecat.services.deepgram.flux.stt import DeepgramFluxSTTService
    from pipecat.services.deepgram.stt import DeepgramSTTService

    streams = DeepgramSTTService(api_key=KEY, base_url=ADDRESS)
    show("pipecat streams", await pipecat(streams, lambda service: service._connection))
    settings = DeepgramFluxSTTService.Settings(eager_eot_threshold=0.4, keyterm=["one"])
    turns = DeepgramFluxSTTService(api_key=KEY, url=SOCKETS + "/v2/listen", settings=settings)
    show("pipecat turns", await pipecat(turns, lambda service: service._connection_established_event.is_set()))


def show(name, heard):
    print(f"{name}: {' | '.join(heard)}", flush=True)


warnings.simplefilter("ignore")
asyncio.run(livekit_both())
asyncio.run(pipecat_both())
