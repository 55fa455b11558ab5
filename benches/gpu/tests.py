#!/usr/bin/env python3
"""Runs tests of the library's test binary, and writes which passed and which failed.

    tests.py BINARY --json FILE [--only-on-gpu] [--skip NAME]… FILTER…

With --only-on-gpu, tests of kernels run on the GPU or fail (VERBATIM_TEST_GPU=only).
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from record import write


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("filters", nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only-on-gpu", action="store_true")
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--threads", type=int, default=2, help="tests at once")
    options = parser.parse_args()
    command = [options.binary, *options.filters, f"--test-threads={options.threads}", "--show-output"]
    command += [part for name in options.skip for part in ("--skip", name)]
    environment = os.environ | ({"VERBATIM_TEST_GPU": "only"} if options.only_on_gpu else {})
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace")
    report: dict = {"passed": [], "failed": [], "ignored": [], "devices": [], "skipped": [], "finished": False}
    for line in process.stdout:
        print(line, end="", flush=True)
        if found := re.match(r"test (\S+) \.\.\. (ok|FAILED|ignored)", line):
            report[{"ok": "passed", "FAILED": "failed", "ignored": "ignored"}[found[2]]].append(found[1])
            write(options.json, report)
        elif re.match(r"on \d+ devices, first ", line):
            report["devices"].append(line.strip())
        elif line.startswith("skipped"):
            report["skipped"].append(line.strip())
        report["finished"] |= line.startswith("test result:")
    process.wait()
    report["devices"], report["skipped"] = sorted(set(report["devices"])), sorted(set(report["skipped"]))
    write(options.json, report)
    if options.only_on_gpu and report["skipped"]:
        print("tests were skipped that were to run on the GPU", file=sys.stderr)
        return 1
    if not report["passed"]:
        print("no test ran: do the filters name any?", file=sys.stderr)
        return 1
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
