#!/usr/bin/env python3
"""Open WebUI, a chat front end, with nothing set but an OpenAI base address, a key, and that it shall use them for speech:
its first user dictates, and has an answer read aloud, by the routes that its pages call.

SERVER, KEY and AUDIO are the address of a server, its key and a file; TEXT is read aloud. Prints what was understood."""

import asyncio
import json
import mimetypes
import os
import secrets
import socket
import sys
import tempfile
from pathlib import Path

# A busy machine loads it slowly, and makes its database.
PATIENCE = 280


async def use(client, audio, text) -> dict:
    """The talk of a browser with the front end: its first user becomes its administrator."""
    user = {"name": "User", "email": "user@example.org", "password": secrets.token_hex(16)}
    signed_up = await client.post("/api/v1/auths/signup", json=user)
    signed_up.raise_for_status()
    client.headers["authorization"] = f"Bearer {signed_up.json()['token']}"
    told = {}

    async def dictate(name, content, **fields):
        file = (name, content, mimetypes.guess_type(name)[0])
        heard = await client.post("/api/v1/audio/transcriptions", files={"file": file}, data=fields)
        assert heard.status_code == 200, heard.text
        return heard.json()["text"]

    told["dictated"] = await dictate(audio.name, audio.read_bytes())
    told["in a language"] = await dictate(audio.name, audio.read_bytes(), language="en")
    voices = await client.get("/api/v1/audio/voices")
    told["voices"] = [voice["id"] for voice in voices.json()["voices"]]
    models = await client.get("/api/v1/audio/models")
    told["models"] = [model["id"] for model in models.json()["models"]]
    for voice in ("alloy", told["voices"][0]):
        spoken = await client.post("/api/v1/audio/speech", json={"input": text, "voice": voice})
        assert spoken.status_code == 200, spoken.text
        told["type"] = spoken.headers["content-type"]
        told["read aloud"] = await dictate("spoken.mp3", spoken.content)
    wrong = await client.post("/api/v1/audio/transcriptions", files={"file": ("a.wav", b"not audio", "audio/wav")})
    told["not audio"] = [wrong.status_code, wrong.json()["detail"]]
    return told


async def main(folder: str) -> dict:
    for service in ("", "AUDIO_STT_", "AUDIO_TTS_"):
        os.environ[f"{service}OPENAI_API_BASE_URL"] = os.environ["SERVER"] + "/v1"
        os.environ[f"{service}OPENAI_API_KEY"] = os.environ["KEY"]
    os.environ.update({
        "AUDIO_STT_ENGINE": "openai",
        "AUDIO_TTS_ENGINE": "openai",
        # As its image without models of its own has it.
        "USE_SLIM_DOCKER": "true",
        "BYPASS_PYDUB_PREPROCESSING": "true",
        "DATA_DIR": folder,
        "WEBUI_SECRET_KEY": secrets.token_hex(16),
        # It looks for other services and for news of itself otherwise.
        "ENABLE_OLLAMA_API": "false",
        "OFFLINE_MODE": "true",
        "FROM_INIT_PY": "true",
    })
    os.chdir(folder)
    import httpx
    import uvicorn
    from open_webui.main import app

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        assert not serving.done(), "it ended before it listened"
        await asyncio.sleep(0.05)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE, trust_env=False) as client:
            return await use(client, Path(os.environ["AUDIO"]), os.environ["TEXT"])
    finally:
        server.should_exit = True
        await serving


if __name__ == "__main__":
    # It prints as it works.
    out, sys.stdout = sys.stdout, sys.stderr
    with tempfile.TemporaryDirectory() as folder:
        told = asyncio.run(main(folder))
    print(json.dumps(told), file=out, flush=True)
    # Its threads don't end by themselves.
    os._exit(0)
