#!/usr/bin/env python3
"""Runs a command under a tool of compute-sanitizer, and writes how many errors it found.

    sanitizer.py memcheck|racecheck|synccheck|initcheck --json FILE -- COMMAND …
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from record import ABSENT, write

PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
# Its exit status where it found errors; the command's own otherwise.
FOUND = 86
REASONS = ("Device not supported", "Unable to find injection library")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["memcheck", "racecheck", "synccheck", "initcheck"])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=":".join(PLACES))
    if not program:
        print("there is no compute-sanitizer")
        return ABSENT
    command = [program, "--tool", options.tool, f"--error-exitcode={FOUND}", "--print-limit=20", *options.command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    output = []
    for line in process.stdout:
        print(line, end="", flush=True)
        output.append(line)
    status, text = process.wait(), "".join(output)
    for reason in REASONS:
        if reason in text:
            print(f"compute-sanitizer does not work on this machine: {reason}")
            return ABSENT
    # «ERROR SUMMARY: 0 errors», or «RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)».
    summary = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", text, re.MULTILINE)
    errors = re.search(r"(\d+) errors?", summary[-1]) if summary else None
    write(options.json, {
        "tool": options.tool, "command": options.command, "summary": summary[-1] if summary else None,
        "errors": int(errors[1]) if errors else None, "exit": status,
        "first": [line.strip() for line in output if line.startswith("=========")][:40],
    })
    return status if summary else status or 1


if __name__ == "__main__":
    sys.exit(main())
