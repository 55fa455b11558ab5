#!/usr/bin/env python3
"""The day's record: one file of JSON, to which every measure is added as soon as it ends.

    record.py DAY.json done NAME            exit status 0 if that measure is done
    record.py DAY.json note KEY VALUE       something about the whole day
    record.py DAY.json noted KEY            prints it
    record.py DAY.json add NAME --step N --exit STATUS --seconds S --limit S --log FILE --result FILE --command TEXT
    record.py DAY.json summary              a line for each measure that is not done; exit status 1 if one failed

A measure is `done`, `failed`, `timed out`, or `absent` (exit status 77: what it measures is not on this machine; the
last line of its output says what). Its result is the JSON that the command wrote, if it wrote any.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ABSENT = 77
TAIL_CHARACTERS = 3000


def write(path: Path, value) -> None:
    """All of it or nothing, also where the machine stops in the middle."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as out:
        # NaN is no JSON.
        out.write(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
        out.flush()
        os.fsync(out.fileno())
    os.chmod(out.name, 0o644)
    os.replace(out.name, path)


def plain(value):
    """`value` with nulls instead of numbers that are none."""
    if isinstance(value, dict):
        return {str(key): plain(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(held) for held in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def read(path: Path) -> dict:
    if not path.exists():
        return {"notes": {}, "measures": {}}
    return json.loads(path.read_text())


def tail(path: Path) -> str:
    # Progress that overwrites its line counts by its last state.
    lines = path.read_text(errors="replace").split("\n") if path.exists() else []
    return "\n".join(line.rsplit("\r", 1)[-1] for line in lines)[-TAIL_CHARACTERS:].strip()


def outcome(status: int, result) -> str:
    if status == 0:
        return "done" if result is not None else "failed"
    # 137: killed, some seconds after the signal to end.
    return {ABSENT: "absent", 124: "timed out", 137: "timed out"}.get(status, "failed")


def add(day: Path, given: argparse.Namespace) -> None:
    result = None
    if given.result.exists():
        try:
            result = json.loads(given.result.read_text())
        except ValueError as error:
            print(f"{given.name}: what it wrote is no JSON: {error}", file=sys.stderr)
    said, became = tail(given.log), outcome(given.exit, result)
    record = read(day)
    record["measures"][given.name] = {
        "step": given.step, "outcome": became, "exit": given.exit, "seconds": given.seconds, "limit": given.limit,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": given.command, "result": result,
        "tail": said,
    }
    write(day, record)
    print(f"   {became}, {given.seconds:.1f} s")
    if became != "done":
        shown = said.splitlines()[-1:] if became == "absent" else said.splitlines()[-15:]
        print("\n".join(f"   | {line}" for line in shown))


def summary(day: Path) -> int:
    measures = read(day)["measures"]
    count = {"done": 0, "absent": 0, "failed": 0, "timed out": 0}
    for name, measure in measures.items():
        count[measure["outcome"]] += 1
        if measure["outcome"] != "done":
            print(f"{measure['outcome']}: {name}: {(measure['tail'].splitlines() or [''])[-1]}")
    print(", ".join(f"{number} {outcome}" for outcome, number in count.items()))
    return 1 if count["failed"] or count["timed out"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("day", type=Path)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("done").add_argument("name")
    noting = verbs.add_parser("note")
    noting.add_argument("key")
    noting.add_argument("value")
    verbs.add_parser("noted").add_argument("key")
    adding = verbs.add_parser("add")
    adding.add_argument("name")
    adding.add_argument("--step", type=int, required=True)
    adding.add_argument("--exit", type=int, required=True)
    adding.add_argument("--seconds", type=float, required=True)
    adding.add_argument("--limit", type=float, required=True)
    adding.add_argument("--log", type=Path, required=True)
    adding.add_argument("--result", type=Path, required=True)
    adding.add_argument("--command", default="")
    verbs.add_parser("summary")
    given = parser.parse_args()
    if given.verb == "done":
        return 0 if read(given.day)["measures"].get(given.name, {}).get("outcome") == "done" else 1
    if given.verb == "note":
        record = read(given.day)
        record["notes"][given.key] = given.value
        write(given.day, record)
    elif given.verb == "noted":
        print(read(given.day)["notes"].get(given.key, ""))
    elif given.verb == "add":
        add(given.day, given)
    else:
        return summary(given.day)
    return 0


if __name__ == "__main__":
    sys.exit(main())
