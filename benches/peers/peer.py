#!/usr/bin/env python3
"""A peer as a process that loads its model once and then answers over a pipe.

    peer.py KIND MODEL [--threads N]

In: a JSON object a line, `{"id": 1, "file": "a.flac", "language": "en"}`; language "multi" where it changes
within the file. Out: `{"ready": "name and versions"}` when loaded, then `{"id": 1, "text": "..."}` for each, in
the order of their ends. All decode greedily at temperature 0, without what was heard before.
"""

import argparse
import json
import os
import queue
import sys
import threading
from importlib.metadata import version
from pathlib import Path

# Written to by us alone: libraries that print would break the lines.
OUT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(message: dict) -> None:
    OUT.write(json.dumps(message) + "\n")
    OUT.flush()


def faster_whisper(model: str, threads: int, compute_type: str, batch: int = 0, workers: int = 1, vad: bool = False):
    import faster_whisper as package

    loaded = package.WhisperModel(model, device="cpu", compute_type=compute_type,
                                  cpu_threads=max(1, threads // workers), num_workers=workers)
    asked = {"beam_size": 1, "temperature": 0.0, "condition_on_previous_text": False}
    if batch:
        pipeline = package.BatchedInferencePipeline(loaded)
        asked |= {"batch_size": batch}
        transcribe = pipeline.transcribe
    else:
        asked |= {"vad_filter": vad}
        transcribe = loaded.transcribe

    def run(file: str, language: str) -> str:
        changing = {"language": None, "multilingual": True} if language == "multi" else {"language": language}
        return "".join(segment.text for segment in transcribe(file, **changing, **asked)[0])

    return run, f"faster-whisper {version('faster-whisper')}, CTranslate2 {version('ctranslate2')}", workers


def openai_whisper(model: str, threads: int):
    import torch
    import whisper

    torch.set_num_threads(threads)
    loaded = whisper.load_model(model, device="cpu")

    def run(file: str, language: str) -> str:
        return loaded.transcribe(samples(file), language=first_heard(language), temperature=0.0, fp16=False,
                                 condition_on_previous_text=False)["text"]

    return run, f"openai-whisper {version('openai-whisper')}, torch {torch.__version__}", 1


def transformers(model: str, threads: int):
    import torch
    from transformers import pipeline

    torch.set_num_threads(threads)
    loaded = pipeline("automatic-speech-recognition", model, dtype=torch.float32, device="cpu")

    def run(file: str, language: str) -> str:
        return loaded({"raw": samples(file), "sampling_rate": 16000}, return_timestamps=True,
                      generate_kwargs={"language": first_heard(language), "task": "transcribe", "num_beams": 1,
                                       "temperature": 0.0, "condition_on_prev_tokens": False})["text"]

    return run, f"transformers {version('transformers')}, torch {torch.__version__}", 1


def whisper_cpp(model: str, threads: int):
    from pywhispercpp.model import Model

    loaded = Model(model, n_threads=threads, print_progress=False, print_realtime=False,
                   redirect_whispercpp_logs_to=None)

    def run(file: str, language: str) -> str:
        segments = loaded.transcribe(samples(file), language=first_heard(language) or "auto", temperature=0.0,
                                     temperature_inc=0.0, no_context=True, greedy={"best_of": 1})
        return " ".join(segment.text for segment in segments)

    return run, f"pywhispercpp {version('pywhispercpp')}", 1


def openvino(model: str, threads: int, workers: int = 1):
    """A folder that optimum-intel exported. On processors with bf16 it computes in it unless asked for f32."""
    import openvino_genai

    idle = queue.SimpleQueue()
    for _ in range(workers):
        idle.put(openvino_genai.WhisperPipeline(model, "CPU", INFERENCE_NUM_THREADS=max(1, threads // workers)))

    def run(file: str, language: str) -> str:
        asked = {"task": "transcribe", "return_timestamps": True, "num_beams": 1, "do_sample": False}
        if heard := first_heard(language):
            asked["language"] = f"<|{heard}|>"
        pipeline = idle.get()
        try:
            return pipeline.generate(samples(file).tolist(), **asked).texts[0]
        finally:
            idle.put(pipeline)

    return run, f"openvino-genai {version('openvino-genai')}, OpenVINO {version('openvino')}", workers


def sherpa_onnx(model: str, threads: int):
    """A folder with what sherpa-onnx's scripts/whisper exports, and `silero_vad.onnx`: it takes 30 s at most at a
    time, so its own detector cuts longer clips."""
    import numpy
    import sherpa_onnx as package

    def file(ending: str) -> str:
        return next(str(path) for path in Path(model).iterdir() if path.name.endswith(ending))

    recognizers: dict = {}
    detector = package.VadModelConfig()
    detector.silero_vad.model, detector.silero_vad.max_speech_duration = file("silero_vad.onnx"), 28
    detector.sample_rate = 16000

    def recognizer(language: str):
        if language not in recognizers:
            recognizers[language] = package.OfflineRecognizer.from_whisper(
                encoder=file("encoder.int8.onnx"), decoder=file("decoder.int8.onnx"), tokens=file("tokens.txt"),
                language=language, task="transcribe", num_threads=threads)
        return recognizers[language]

    def pieces(audio):
        if len(audio) <= 30 * 16000:
            return [audio]
        vad = package.VoiceActivityDetector(detector, buffer_size_in_seconds=len(audio) / 16000 + 1)
        for at in range(0, len(audio), 512):
            vad.accept_waveform(audio[at:at + 512])
        vad.flush()
        found = []
        while not vad.empty():
            found.append(numpy.array(vad.front.samples, numpy.float32))
            vad.pop()
        return found

    def run(file: str, language: str) -> str:
        loaded, texts = recognizer(first_heard(language) or ""), []
        for piece in pieces(samples(file)):
            stream = loaded.create_stream()
            stream.accept_waveform(16000, piece)
            loaded.decode_stream(stream)
            texts.append(stream.result.text)
        return " ".join(texts)

    recognizer("en")
    return run, f"sherpa-onnx {version('sherpa-onnx')}", 1


def first_heard(language: str) -> str | None:
    """Peers that cannot change the language within a file find it out from its beginning."""
    return None if language == "multi" else language


def samples(file: str):
    """16 kHz, one channel, f32: the decoder that all these peers share."""
    from faster_whisper.audio import decode_audio

    return decode_audio(file)


KINDS = {
    "faster-whisper-f32": lambda model, threads: faster_whisper(model, threads, "float32"),
    "faster-whisper-f32-vad": lambda model, threads: faster_whisper(model, threads, "float32", vad=True),
    "faster-whisper-f32-batched": lambda model, threads: faster_whisper(model, threads, "float32", batch=8),
    "faster-whisper-int8": lambda model, threads: faster_whisper(model, threads, "int8"),
    "faster-whisper-int8-vad": lambda model, threads: faster_whisper(model, threads, "int8", vad=True),
    "faster-whisper-int8-batched": lambda model, threads: faster_whisper(model, threads, "int8", batch=8),
    # As many workers as threads: nothing is gained for one request, the most for many.
    "faster-whisper-int8-workers": lambda model, threads: faster_whisper(model, threads, "int8", 0, threads),
    "openai-whisper": openai_whisper,
    "openvino": openvino,
    "openvino-workers": lambda model, threads: openvino(model, threads, threads),
    "sherpa-onnx": sherpa_onnx,
    "transformers": transformers,
    "whisper.cpp": whisper_cpp,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("model", help="folder or file, as the peer wants it")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    try:
        run, name, workers = KINDS[options.kind](options.model, options.threads)
    except Exception as error:  # Whatever a peer raises: it is not there, and its reason is shown.
        say({"absent": f"{type(error).__name__}: {error}"})
        return
    say({"ready": name})
    work: queue.Queue = queue.Queue()
    writing = threading.Lock()

    def serve() -> None:
        while (request := work.get()) is not None:
            try:
                answer = {"id": request["id"], "text": run(request["file"], request["language"])}
            except Exception as error:  # One clip's failure is that clip's.
                answer = {"id": request["id"], "error": repr(error)}
            with writing:
                say(answer)

    threads = [threading.Thread(target=serve) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        work.put(json.loads(line))
    for _ in threads:
        work.put(None)


if __name__ == "__main__":
    main()
