#!/usr/bin/env python3
"""The machine before anything is measured: driver, GPUs, clocks, libraries, and what copies and products reach.

    preflight.py --json FILE [--device 0] [--rehearse]

Fails where a driver, a GPU, torch or a library is missing; with --rehearse, a driver is enough. The ceilings are those of
torch: a large copy on the device, bytes read and written, and a product of 8192 × 8192 in bf16 on random data.
"""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from record import write

LIBRARIES = ("libtorch_cpu.so", "libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.13", "libcublasLt.so.13",
             "libnvrtc.so.13", "libnvrtc-builtins.so.13.0")
PACKAGES = ("torch", "transformers", "triton", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime",
            "nvidia-cudnn-cu13")
QUERIED = ("name", "driver_version", "memory.total", "memory.used", "clocks.sm", "clocks.mem", "clocks.max.sm",
           "power.limit", "temperature.gpu", "pstate", "clocks_event_reasons.active")
COPY_BYTES, PRODUCT, ROUNDS = 4 << 30, 8192, 20


def driver() -> dict:
    """The driver library's own answers."""
    library = ctypes.CDLL("libcuda.so.1")
    status, version, count = library.cuInit(0), ctypes.c_int(), ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    capabilities = []
    for index in range(count.value):
        device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        library.cuDeviceGet(ctypes.byref(device), index)
        library.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
        library.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
        capabilities.append(f"{major.value}.{minor.value}")
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return {"initialised": status, "cuda": cuda, "devices": count.value, "capabilities": capabilities}


def nvidia_smi() -> list:
    """A dictionary for each GPU. Queries that this driver does not know are left out."""
    def ask(names: tuple) -> list | None:
        query = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
        ran = subprocess.run(query, capture_output=True, text=True, timeout=30)
        return [line.split(", ") for line in ran.stdout.splitlines()] if ran.returncode == 0 else None

    for names in (QUERIED, QUERIED[:-1], QUERIED[:4]):
        if rows := ask(names):
            return [dict(zip(names, row)) for row in rows]
    raise RuntimeError("nvidia-smi answers nothing")


def cached() -> list:
    """What the loader's cache has of the libraries that are asked for by names without a version."""
    try:
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    except OSError as error:
        return [str(error)]
    return [line.strip() for line in listed.splitlines() if "nvrtc" in line or "cublasLt" in line]


def libraries() -> dict:
    """Where the loader's search path has each library, and what its cache has."""
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = {name: next((str(folder / name) for folder in folders if (folder / name).exists()), None)
             for name in LIBRARIES}
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {"files": found, "packages": versions, "path": os.environ.get("LD_LIBRARY_PATH", ""),
            "cached": cached()}


def ceilings(index: int) -> dict:
    import torch

    place = torch.device("cuda", index)

    def median(work, *given) -> float:
        """Seconds by the device's own events."""
        times = []
        for _ in range(3):
            work(*given)
        for _ in range(ROUNDS):
            begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begun.record()
            work(*given)
            ended.record()
            ended.synchronize()
            times.append(begun.elapsed_time(ended) / 1e3)
        return sorted(times)[len(times) // 2]

    with torch.inference_mode(), torch.cuda.device(place):
        properties = torch.cuda.get_device_properties(place)
        source = torch.randint(0, 255, (COPY_BYTES,), dtype=torch.uint8, device=place)
        copying = median(torch.empty_like(source).copy_, source)
        a, b = (torch.randn(PRODUCT, PRODUCT, device=place, dtype=torch.bfloat16) for _ in range(2))
        multiplying = median(torch.mm, a, b)
    return {
        "torch": torch.__version__, "cuda": torch.version.cuda, "device": properties.name,
        "multiprocessors": properties.multi_processor_count, "memory_bytes": properties.total_memory,
        "copy_gigabytes_per_second": 2 * COPY_BYTES / copying / 1e9,
        "product_teraflops": 2 * PRODUCT**3 / multiplying / 1e12,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", type=int, default=0, metavar="INDEX")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    report: dict = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count(),
                    "missing": []}
    parts = {"driver": driver, "gpus": nvidia_smi, "libraries": libraries, "ceilings": lambda: ceilings(options.device),
             "gpus_after": nvidia_smi}
    for name, part in parts.items():
        try:
            report[name] = part()
        except Exception as error:  # Whatever is missing, the rest is still worth knowing.
            report[name] = None
            report["missing"].append(f"{name}: {error!r}")
        write(options.json, report)
    found = report["libraries"]["files"]
    report["missing"] += [f"{name} is not on LD_LIBRARY_PATH" for name, path in found.items() if not path]
    write(options.json, report)
    print("\n".join(report["missing"]) or "nothing is missing")
    works = report["driver"] and report["driver"]["initialised"] == 0 and report["driver"]["devices"] > 0
    return 0 if works and (options.rehearse or not report["missing"]) else 1


if __name__ == "__main__":
    sys.exit(main())
