#!/usr/bin/env python3
"""Whether the program refuses a GPU for the right reason: with a fake driver, on a machine without a GPU.

    fake_driver.py --binary VERBATIM --json FILE --keep FOLDER

FOLDER gets the last driver as libcuda.so.1: that of a machine whose GPU works, up to where a device must answer.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from record import ABSENT, write

# What the driver answers, and a part of the reason that the program gives.
CASES = (
    ({"INIT": 999, "VERSION": 13000, "COUNT": 1}, "the NVIDIA driver does not work (error 999)"),
    ({"INIT": 100, "VERSION": 13000, "COUNT": 0}, "the NVIDIA driver sees no GPU"),
    ({"INIT": 0, "VERSION": 12040, "COUNT": 1}, "the NVIDIA driver is too old: it is for CUDA 12.4"),
    # Without the CUDA part, or with one that finds no device behind the driver.
    ({"INIT": 0, "VERSION": 13000, "COUNT": 1}, "CUDA part"),
)
SOURCE = Path(__file__).with_name("fake_driver.cpp")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    options = parser.parse_args()
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if not compiler:
        print("there is no C++ compiler")
        return ABSENT
    report, failed = [], False
    options.keep.mkdir(parents=True, exist_ok=True)
    for answers, expected in CASES:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "libcuda.so.1"
            defined = [f"-D{name}={value}" for name, value in answers.items()]
            subprocess.run([compiler, *defined, "-shared", "-fPIC", "-o", library, SOURCE], check=True)
            paths = ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
            command = [options.binary, "bench", "--synthetic", "tiny", "--windows", "1", "--device", "cuda:0"]
            ran = subprocess.run(command, env=os.environ | {"LD_LIBRARY_PATH": paths}, capture_output=True, text=True)
            said = (ran.stdout + ran.stderr).strip()
            right = ran.returncode != 0 and expected in said
            print(f"{answers}: {said}")
            if not right:
                print(f"expected: {expected}", file=sys.stderr)
            failed |= not right
            report.append({"answers": answers, "expected": expected, "said": said, "right": right})
            shutil.copy(library, options.keep)
    write(options.json, report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
