#!/usr/bin/env python3
"""WhisperLive on loopback, for benches/live.py: one CTranslate2 model for all its clients.

    live_server.py FOLDER PORT [--threads N] [--clients N]

Needs whisper-live (0.10) and what it imports: torch, faster-whisper, websockets, scipy, fastapi, uvicorn.
"""

import argparse
import os

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
parser.add_argument("port", type=int)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--clients", type=int, default=64)
options = parser.parse_args()
# Read when its libraries are loaded.
os.environ["OMP_NUM_THREADS"] = str(options.threads)

from whisper_live.server import TranscriptionServer  # noqa: E402

TranscriptionServer().run("127.0.0.1", options.port, backend="faster_whisper", single_model=True,
                          faster_whisper_custom_model_path=options.folder, max_clients=options.clients,
                          max_connection_time=3600)
