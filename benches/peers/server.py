#!/usr/bin/env python3
"""faster-whisper behind FastAPI, as servers around it are usually made: `POST /v1/audio/transcriptions`.

    server.py MODEL --port PORT [--compute-type int8] [--threads 2] [--workers 1] [--batch 0]

A multipart form with `file` and, where it is known, `language`; answers `{"text": ...}`. The handler is a
plain function, so FastAPI runs it on its pool of threads; CTranslate2 itself lets requests wait for one of
`--workers`, which share the threads. `GET /health` answers once the model is loaded. Loopback only.
"""

import argparse
import os


def build(options):
    import io

    import uvicorn
    from fastapi import FastAPI, File, Form, UploadFile
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    model = WhisperModel(options.model, device="cpu", compute_type=options.compute_type,
                         cpu_threads=max(1, options.threads // options.workers), num_workers=options.workers)
    asked = {"beam_size": 1, "temperature": 0.0, "condition_on_previous_text": False}
    transcribe = model.transcribe
    if options.batch:
        transcribe = BatchedInferencePipeline(model).transcribe
        asked |= {"batch_size": options.batch}
    app = FastAPI()

    @app.get("/health")
    def health() -> dict:
        return {"status": "ok"}

    @app.post("/v1/audio/transcriptions")
    def transcriptions(file: UploadFile = File(), language: str | None = Form(None)) -> dict:
        segments, _ = transcribe(io.BytesIO(file.file.read()), language=language, **asked)
        return {"text": "".join(segment.text for segment in segments).strip()}

    return uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=options.port, log_level="warning"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="CTranslate2 folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--compute-type", default="int8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=0, help="windows of one file decoded together; 0: plain")
    options = parser.parse_args()
    # Read when the libraries load.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    build(options).run()


if __name__ == "__main__":
    main()
