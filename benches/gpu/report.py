#!/usr/bin/env python3
"""The tables of a day on a GPU for benches/RESULTS.md, from its record.

    report.py FOLDER …

FOLDER has the day.json of day.sh. Of several folders of the same kind of GPU, later ones add what the first lack, and
replace what failed there. What was not measured is «not run», what failed says so.
"""

import argparse
import re
import sys
from pathlib import Path

from record import read

# The goals are for an H200; an H100 is to reach this share of each.
SHARES = (("h200", 1.0), ("h100", 0.75))
# MLPerf Inference, Whisper large-v3, offline, audited: windows/s of one GPU.
AUDITED = (
    ("H200, TensorRT-LLM (v5.1)", 67.9), ("H200, vLLM (v6.0)", 60.8), ("H100 NVL", 43.6), ("B200", 97.2),
    ("L40S", 24.5),
)
FLAT_MIB_PER_MINUTE = 2.0
# A shorter one says nothing about memory.
SOAK_SECONDS_LEAST = 60
LARGE, TURBO = "large-v3", "large-v3-turbo"


class Day:
    def __init__(self, folders: list):
        self.notes: dict = {}
        self.commits: list = []
        self.measures: dict = {}
        self.plan: dict = {}
        for folder in folders:
            record = read(folder / "day.json")
            self.notes = record["notes"] | self.notes
            commit = record["notes"].get("commit", "unknown")
            # A mark of changes comes after all digits.
            self.commits += [commit[:12] + commit[40:]] if commit[:12] + commit[40:] not in self.commits else []
            for line in record["notes"].get("plan", "").splitlines():
                step, _, name = line.partition(" ")
                self.plan[name] = int(step)
            for name, measure in record["measures"].items():
                if self.measures.get(name, {}).get("outcome") != "done":
                    self.measures[name] = measure
        self.plan |= {name: measure["step"] for name, measure in self.measures.items() if name not in self.plan}
        preflight = self.result("preflight") or {}
        gpus = preflight.get("gpus") or [{}]
        noted = self.notes.get("gpu")
        self.gpu = gpus[0].get("name") or (noted if noted != "none" else None)
        self.driver = gpus[0].get("driver_version")
        self.ceilings = preflight.get("ceilings") or {}
        self.share = next((share for part, share in SHARES if self.gpu and part in self.gpu.lower()), None)

    def names(self, step: int) -> list:
        return [name for name, of in self.plan.items() if of == step]

    def result(self, name: str):
        """The result of a measure that is done; None of any other."""
        measure = self.measures.get(name)
        return measure["result"] if measure and measure["outcome"] == "done" else None

    def partly(self, name: str):
        """The result, also of a measure that failed in the end."""
        return (self.measures.get(name) or {}).get("result")

    def state(self, name: str) -> str:
        """Why there is no result, in few words."""
        measure = self.measures.get(name)
        if not measure:
            return "not run"
        last = (measure["tail"].splitlines() or [""])[-1].strip()
        last = re.sub(r"\s+", " ", last).replace("|", "\\|")[:160]
        if measure["outcome"] == "timed out":
            return f"timed out after {measure['limit']:.0f} s"
        return f"{measure['outcome']}: {last}" if last else measure["outcome"]

    def ours(self, model: str, tokens, kind: str = "", slots=(64, 128, 32)):
        """The fastest of the numbers of slots that were tried, and its name."""
        names = [f"{model}, {tokens} tokens, {count} slots{', ' + kind if kind else ''}" for count in slots]
        found = [(self.result(name), name) for name in names if self.result(name)]
        return max(found, key=lambda pair: pair[0]["rtfx"]) if found else (None, names[0])


def number(value, digits: int | None = None) -> str:
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def percent(share) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def milliseconds(seconds) -> str:
    return number(None if seconds is None else 1000 * seconds)


def table(heads: list, rows: list) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def padded(row: list, count: int) -> list:
    return row + [""] * (count - len(row))


def head(day: Day) -> str:
    rehearsal = day.notes.get("rehearsal")
    times = sorted(measure["at"] for measure in day.measures.values())
    preflight = day.result("preflight") or day.partly("preflight") or {}
    driver = preflight.get("driver") or {}
    packages = (preflight.get("libraries") or {}).get("packages") or {}
    gpus = preflight.get("gpus") or [{}]
    facts = [
        f"{day.gpu or 'GPU unknown'}, {gpus[0].get('memory.total', 'memory unknown')}",
        f"driver {day.driver or 'unknown'} (CUDA {driver.get('cuda', 'unknown')})",
        f"torch {packages.get('torch') or 'unknown'}, transformers {packages.get('transformers') or 'unknown'}",
        f"commit {', then '.join(day.commits)}",
        times[0][:10] if times else "no measure",
    ]
    text = "# On a GPU\n\n" if not rehearsal else (
        "# A rehearsal\n\n**No GPU: tiny shapes on a processor, to see that every step works. No figure counts.**\n\n")
    text += "; ".join(facts) + ".\n"
    if day.ceilings:
        text += (f"Ceilings by torch: copies {number(day.ceilings['copy_gigabytes_per_second'])} GB/s (read and written), "
                 f"products {number(day.ceilings['product_teraflops'])} TFLOP/s.\n")
    elif "preflight" not in day.measures or not day.result("preflight"):
        text += f"Preflight: {day.state('preflight')}.\n"
    if preflight.get("missing") and not rehearsal:
        text += "Missing: " + "; ".join(preflight["missing"]) + ".\n"
    return text


def goals(day: Day) -> str:
    """Ours beside the goals, and beside what others had audited."""
    share, rows = day.share, []

    def verdict(reached, goal, is_least: bool) -> str:
        if goal is None:
            return "no goal for this GPU"
        return "hit" if (reached >= goal if is_least else reached <= goal) else "**missed**"

    def add(what: str, found, name: str, field: str, goal: float, unit: str) -> None:
        goal = goal * share if share else None
        cells = [what, f"≥ {number(goal)} {unit}" if goal else "-"]
        rows.append(cells + ([f"{number(found[field])} ({found['slots']} slots)", verdict(found[field], goal, True)]
                             if found else [day.state(name), "-"]))

    found, name = day.ours(LARGE, "mlperf")
    add("large-v3, MLPerf's shape", found, name, "windows_per_second", 90, "windows/s")
    found, name = day.ours(LARGE, 100)
    add("large-v3, 100 tokens", found, name, "rtfx", 1900, "× real time")
    found, name = day.ours(TURBO, 100)
    add("large-v3-turbo, 100 tokens", found, name, "rtfx", 4500, "× real time")
    alone, name = day.ours(TURBO, 100, "alone")
    limit = 40 / share if share else None
    goal = f"< {number(limit)} ms" if limit else "-"
    rows.append(["large-v3-turbo, one window alone, p50", goal] + (
        [f"{milliseconds(alone['p50_seconds'])} ms", verdict(1000 * alone["p50_seconds"], limit, False)]
        if alone and alone.get("p50_seconds") else [day.state(name), "-"]))
    for model in (LARGE, TURBO):
        words, name = day.ours(model, 100, "words", (64,))
        without, _ = day.ours(model, 100, "", (64,))
        if words and without:
            part = words["rtfx"] / without["rtfx"]
            rows.append([f"{model}, word times to none", "≥ 90 %", f"{100 * part:.1f} %", verdict(part, 0.9, True)])
        else:
            rows.append([f"{model}, word times to none", "≥ 90 %", day.state(name) if not words else "not run", "-"])
    rows.append(["400 live streams, p95 of word latency", f"< {number(1 / share)} s" if share else "-", *live(day)])
    checked = [name for name in day.names(5)]
    clean = [name for name in checked if (day.result(name) or {}).get("errors") == 0]
    dirty = [name for name in checked if ((day.partly(name) or {}).get("errors") or 0) > 0]
    said = f"{len(clean)} of {len(checked)} clean" + (f"; errors: {', '.join(dirty)}" if dirty else "")
    rows.append(["compute-sanitizer", "clean", said if checked else "not run",
                 "**missed**" if dirty else "hit" if checked and len(clean) == len(checked) else "-"])
    soaked = next((day.result(name) for name in day.names(7) if day.result(name)), None)
    if soaked:
        slopes = [soaked.get("resident_slope_mib_per_minute"), soaked.get("gpu_slope_mib_per_minute")]
        is_flat = all(slope is None or slope <= FLAT_MIB_PER_MINUTE for slope in slopes)
        known = any(slope is not None for slope in slopes)
        rows.append([f"{soaked['seconds']:.0f} s of load, memory",
                     f"≤ {FLAT_MIB_PER_MINUTE:g} MiB a minute",
                     f"process {number(slopes[0])}, GPU {number(slopes[1])} MiB a minute",
                     "-" if not known or soaked["seconds"] < SOAK_SECONDS_LEAST else "hit" if is_flat else "**missed**"])
    else:
        rows.append(["five minutes of load, memory", f"≤ {FLAT_MIB_PER_MINUTE:g} MiB a minute",
                     day.state((day.names(7) or ["soak"])[0]), "-"])
    text = "## Goals\n\n"
    if share and share != 1:
        text += f"Goals are for an H200; here {100 * share:.0f} % of each (times: over that).\n\n"
    text += table(["", "goal", "reached", ""], rows)
    audited = ", ".join(f"{name} {value}" for name, value in AUDITED)
    text += f"\nMLPerf Inference, Whisper large-v3, offline, audited, windows/s of one GPU: {audited}.\n"
    ours, _ = day.ours(LARGE, "mlperf")
    if ours:
        text += (f"Ours in that shape, random weights, not audited: {number(ours['windows_per_second'])}, "
                 f"{ours['windows_per_second'] / AUDITED[0][1]:.2f} times the best of an H200.\n")
    return text


def live(day: Day) -> list:
    for name in day.names(6):
        for phase in (day.partly(name) or {}).get("live") or []:
            if phase["streams"] == 400 and phase.get("word_latency_p95_seconds") is not None:
                late = phase["word_latency_p95_seconds"]
                lost = phase["refused"] + phase["broken"]
                cell = f"{number(late)} s" + (f", {lost} streams lost" if lost else "")
                if not day.share:
                    return [cell, "no goal for this GPU"]
                return [cell, "hit" if late < 1 / day.share and not lost else "**missed**"]
    name = (day.names(6) or ["load"])[0]
    return ["not run" if day.result(name) else day.state(name), "-"]


def tests(day: Day) -> str:
    rows = []
    for name in day.names(2):
        found = day.partly(name)
        if not found:
            rows.append([name, day.state(name), "", ""])
            continue
        state = "passed" if day.result(name) else day.state(name)
        failed = ", ".join(found["failed"]) or "-"
        rows.append([name, state, f"{len(found['passed'])} passed, {len(found['failed'])} failed", failed])
    return "## Correctness\n\n" + table(["tests", "", "", "failed"], rows or [["-", "not run", "", ""]])


def ours(day: Day) -> str:
    heads = ["", "windows/s", "× real time", "tokens/s", "p50, p99, ms", "windows a step", "TFLOP/s", "GB/s", "of the roofline"]
    rows = []
    for name in day.names(3):
        found = day.result(name)
        if not found:
            rows.append(padded([name, day.state(name)], len(heads)))
            continue
        rows.append([
            name, number(found["windows_per_second"]), number(found["rtfx"]), number(found["tokens_per_second"]),
            f"{milliseconds(found['p50_seconds'])}, {milliseconds(found['p99_seconds'])}",
            number(found["windows_in_a_step"]), number(found["teraflops"]), number(found["gigabytes_per_second"]),
            percent(found.get("share_of_roofline"))])
    return "## Ours, random weights\n\n" + table(heads, rows or [padded(["-", "not run"], len(heads))])


def attribution(day: Day) -> str:
    text = "## Where the time goes\n\n"
    names = [name for name in day.names(3) if name.endswith(", stages")]
    if not names:
        return text + "not run\n"
    for name in names:
        found = day.result(name)
        if not found:
            text += f"{name}: {day.state(name)}\n\n"
            continue
        stages = found.get("stages") or []
        wall, rows = 1e6 * found["wall_seconds"], []
        for stage in sorted(stages, key=lambda stage: -stage["microseconds"]):
            rows.append([stage["stage"], number(stage.get("rows")), number(stage["count"], 0),
                         number(stage["microseconds"] / 1000), number(stage["microseconds"] / max(stage["count"], 1)),
                         f"{100 * stage['microseconds'] / wall:.1f} %", number(stage.get("teraflops")),
                         number(stage.get("gigabytes_per_second")), percent(stage.get("share_of_ceiling"))])
        measured = found.get("ceilings") or {}
        text += f"{name}: {number(found['wall_seconds'])} s; the stages may overlap. "
        text += f"Host time of a loop: {number(found.get('host_microseconds_per_loop'))} µs. "
        text += (f"Ceilings: {number(measured.get('copy_gigabytes_per_second'))} GB/s, "
                 f"{number(measured.get('product_teraflops'))} TFLOP/s.\n\n")
        heads = ["stage", "rows", "times", "ms", "µs each", "of the wall time", "TFLOP/s", "GB/s", "of the ceiling"]
        text += table(heads, rows or [padded(["-", "not measured"], len(heads))]) + "\n"
    return text.rstrip() + "\n"


def peers(day: Day) -> str:
    heads = ["", "best batch", "windows/s", "× real time", "batches tried", "ours to it"]
    rows = []
    for name in day.names(4):
        # One that ran out of time or memory has its best batch so far.
        results = (day.partly(name) or {}).get("results") or []
        if not results:
            rows.append(padded([name, day.state(name)], len(heads)))
            continue
        best = max(results, key=lambda result: result["rtfx"])
        mine, _ = day.ours(best["model"], best["tokens"])
        rows.append([name, best["batch"], number(best["windows_per_second"]), number(best["rtfx"]),
                     ", ".join(str(result["batch"]) for result in results)
                     + ("" if day.result(name) else f" ({day.state(name)})"),
                     f"{mine['rtfx'] / best['rtfx']:.1f} times" if mine else "-"])
    return "## PyTorch with the same shapes\n\n" + table(heads, rows or [padded(["-", "not run"], len(heads))])


def sanitizer(day: Day) -> str:
    rows = []
    for name in day.names(5):
        found = day.partly(name)
        errors = (found or {}).get("errors")
        rows.append([name, (found or {}).get("summary") or day.state(name),
                     "clean" if errors == 0 and day.result(name) else "-" if not found else f"exit {found['exit']}"])
    return "## compute-sanitizer\n\n" + table(["", "", ""], rows or [["-", "not run", ""]])


def load(day: Day) -> str:
    text = "## Under load, synthetic server\n\n"
    if not day.names(6):
        return text + "not run\n"
    for name in day.names(6):
        found = day.partly(name)
        if not day.result(name):
            text += f"{name}: {day.state(name)}\n\n"
        if not found:
            continue
        rows = [[phase["callers"], number(phase["requests_per_second"]), number(phase["rtfx"]),
                 ", ".join(milliseconds(phase[f"{part}_seconds"]) for part in ("p50", "p95", "p99")),
                 statuses(phase["statuses"])] for phase in found.get("files") or []]
        text += f"Files of {number(found['clip_seconds'])} s with words ({name}):\n\n"
        text += table(["callers", "requests/s", "× real time", "p50, p95, p99, ms", "statuses"], rows) + "\n"
        if storm := found.get("overload"):
            text += (f"At twice the capacity: {number(storm['offered_per_s'])} requests/s offered, "
                     f"{number(storm['goodput_per_s'])} answered ({number(storm['to_capacity'], 2)} of the capacity), "
                     f"statuses {statuses(storm['statuses'])}; refused after "
                     f"{milliseconds(storm['refused_p99_s'])} ms (p99).\n\n")
        rows = [[phase["streams"], number(phase["words"]),
                 ", ".join(number(phase[f"word_latency_{part}_seconds"]) for part in ("p50", "p95", "p99")),
                 phase["finals"], phase["refused"], phase["broken"], phase["unheard_words"],
                 milliseconds(phase["client_late_p95_seconds"])] for phase in found.get("live") or []]
        text += table(["live streams", "words", "word latency p50, p95, p99, s", "finals", "refused", "broken", "words unheard",
                       "client late by, p95, ms"], rows or [padded(["-"], 8)]) + "\n"
        if found.get("memory_mib_after"):
            text += (f"Memory: {number(found['memory_mib_before'])} MiB before, {number(found['memory_mib_after'])} after, "
                     f"{number(found['memory_mib_peak'])} at its peak.\n")
    return text.rstrip() + "\n"


def statuses(counts: dict) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(counts.items())) or "-"


def soak(day: Day) -> str:
    text = "## Soak\n\n"
    for name in day.names(7) or ["soak"]:
        found = day.partly(name)
        if not day.result(name):
            text += f"{name}: {day.state(name)}\n"
        if not found:
            continue
        resident, device = (", ".join(map(number, found[part])) or "-" for part in ("resident_mib", "gpu_mib"))
        text += (f"{found['seconds']:.0f} s, {found['callers']} callers, "
                 f"{(found['live'] or {}).get('streams', 0)} live streams: "
                 f"{number(found['files']['requests_per_second'])} requests/s, "
                 f"statuses {statuses(found['files']['statuses'])}.\n\n")
        text += table(["memory", "MiB, from quarter to quarter", "MiB a minute after the first quarter"], [
            ["process", resident, number(found["resident_slope_mib_per_minute"])],
            ["GPU", device, number(found["gpu_slope_mib_per_minute"])]])
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    for folder in folders:
        if not (folder / "day.json").exists():
            print(f"report.py: {folder} has no day.json", file=sys.stderr)
            return 2
    gpus = {Day([folder]).gpu for folder in folders} - {None}
    if len(gpus) > 1:
        print(f"report.py: one report for each kind of GPU, please: {', '.join(sorted(gpus))}", file=sys.stderr)
        return 2
    day = Day(folders)
    parts = (head, goals, ours, attribution, peers, tests, sanitizer, load, soak)
    print("\n".join(part(day) for part in parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
