#!/usr/bin/env python3
"""A voice agent made of Pipecat's parts, with the models of this server: what benches/agent.py compares with.

    pipecat_agent.py PORT --whisper FOLDER --kokoro FOLDER [--voice NAME]

Serves `ws://127.0.0.1:PORT/call?id=…&answer=…`: 16-bit samples at 16 kHz in, at 24 kHz out. Each call has a pipeline of
its own, as Pipecat's examples have it: Silero for voice, Smart Turn for the end of a turn, faster-whisper for the words,
Kokoro by kokoro-onnx for the voice. In place of a language model the given answer comes at once. The models are loaded
once for all calls. When each part was done goes to standard output, as lines of JSON with times of the monotonic clock.

`--whisper` is a model of this server (a folder of CTranslate2), `--kokoro` the folder of its voice. Needs what
peers/requirements-agent.txt lists.
"""

import argparse
import json
import time
from pathlib import Path

import numpy
import onnxruntime
import uvicorn
from fastapi import FastAPI, WebSocket
from faster_whisper import WhisperModel
from kokoro_onnx import Kokoro
from loguru import logger

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames import frames
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.services.kokoro import tts
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.workers.runner import WorkerRunner

HEARD_RATE, SPOKEN_RATE = 16_000, 24_000


class Samples(FrameSerializer):
    async def serialize(self, frame):
        return frame.audio if isinstance(frame, frames.OutputAudioRawFrame) else None

    async def deserialize(self, data):
        return frames.InputAudioRawFrame(audio=data, sample_rate=HEARD_RATE, num_channels=1)


class Watch(FrameProcessor):
    """Says when a frame of each kind first passes in a turn."""

    def __init__(self, call: str, kinds: dict):
        super().__init__()
        self.call, self.kinds = call, kinds

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if (name := self.kinds.get(type(frame))) is not None:
            print(json.dumps({"call": self.call, "event": name, "at": time.monotonic()}), flush=True)
        await self.push_frame(frame, direction)


class Answer(FrameProcessor):
    """Where the language model would be."""

    def __init__(self, text: str):
        super().__init__()
        self.text = text

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if not isinstance(frame, frames.LLMContextFrame):
            return await self.push_frame(frame, direction)
        await self.push_frame(frames.LLMFullResponseStartFrame())
        await self.push_frame(frames.LLMTextFrame(self.text))
        await self.push_frame(frames.LLMFullResponseEndFrame())


class Session:
    """kokoro-onnx expects a float as the speed in some exports and a flat array of samples."""

    def __init__(self, session):
        self.session = session
        self.types = {one.name: one.type for one in session.get_inputs()}

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run(self, outputs, inputs):
        if self.types["speed"] == "tensor(float)":
            inputs["speed"] = numpy.asarray(inputs["speed"], numpy.float32)
        inputs["style"] = numpy.asarray(inputs["style"], numpy.float32).reshape(1, -1)
        return [value.reshape(-1) for value in self.session.run(outputs, inputs)]


def kokoro(folder: Path, voice: str) -> tuple[Kokoro, Path]:
    # The voices of kokoro-onnx are one archive, those of this server a file of floats each.
    styles = numpy.fromfile(folder / f"{voice}.bin", numpy.float32).reshape(-1, 1, 256)
    voices = Path(f"/tmp/pipecat-{voice}-voices.npz")
    numpy.savez(voices, **{voice: styles})
    model = Kokoro(str(folder / "model.onnx"), str(voices))
    model.sess = Session(model.sess)
    return model, voices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--whisper", type=Path, required=True)
    parser.add_argument("--kokoro", type=Path, required=True)
    parser.add_argument("--voice", default="af_heart")
    options = parser.parse_args()
    logger.remove()
    onnxruntime.set_default_logger_severity(3)

    whisper = WhisperModel(str(options.whisper), device="cpu", compute_type="int8")
    voice, voices = kokoro(options.kokoro, options.voice)

    # Otherwise each call would load it again.
    tts.Kokoro = lambda *_: voice

    class Ears(WhisperSTTService):
        def _load(self):
            self._model = whisper

    app = FastAPI()

    @app.websocket("/call")
    async def call(socket: WebSocket):
        await socket.accept()
        name = socket.query_params["id"]
        params = FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=Samples())
        transport = FastAPIWebsocketTransport(socket, params)
        mouth = tts.KokoroTTSService(
            model_path=str(options.kokoro / "model.onnx"), voices_path=str(voices),
            settings=tts.KokoroTTSService.Settings(voice=options.voice),
        )
        context = LLMContextAggregatorPair(
            LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
        )
        pipeline = Pipeline([
            transport.input(),
            Ears(settings=WhisperSTTService.Settings(model=str(options.whisper))),
            Watch(name, {frames.VADUserStoppedSpeakingFrame: "pause", frames.TranscriptionFrame: "heard"}),
            context.user(),
            Watch(name, {frames.LLMContextFrame: "turn"}),
            Answer(socket.query_params["answer"]),
            mouth,
            Watch(name, {frames.TTSAudioRawFrame: "voice"}),
            transport.output(),
            context.assistant(),
        ])
        worker = PipelineWorker(
            pipeline,
            params=PipelineParams(audio_in_sample_rate=HEARD_RATE, audio_out_sample_rate=SPOKEN_RATE),
            idle_timeout_secs=None,
        )

        @transport.event_handler("on_client_disconnected")
        async def gone(*_):
            await worker.cancel()

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        await runner.run()

    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="error")


if __name__ == "__main__":
    main()
