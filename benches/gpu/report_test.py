#!/usr/bin/env python3
"""The tables of days that went well, badly, and not at all."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import report

BENCH = {
    "slots": 64, "wall_seconds": 8.0, "windows_per_second": 95.0, "rtfx": 2850.0, "tokens_per_second": 6000.0,
    "steps_per_second": 150.0, "windows_in_a_step": 61.0, "p50_seconds": 0.0391, "p99_seconds": 0.05, "teraflops": 200.0,
    "gigabytes_per_second": 2000.0, "share_of_roofline": 0.61, "host_microseconds_per_loop": 41.0,
    "ceilings": {"copy_gigabytes_per_second": 4300.0, "product_teraflops": 790.0},
    "stages": [
        {"stage": "mel", "rows": None, "count": 48, "microseconds": 1e5, "teraflops": None},
        {"stage": "step", "rows": 64, "count": 900, "microseconds": 5e6, "share_of_ceiling": 0.5},
    ],
}
LOAD = {
    "clip_seconds": 9.58, "memory_mib_before": 900.0, "memory_mib_after": 950.0, "memory_mib_peak": 990.0,
    "files": [{"callers": 16, "requests_per_second": 80.0, "rtfx": 766.0, "p50_seconds": 0.2, "p95_seconds": 0.3,
               "p99_seconds": None, "statuses": {"200": 800}}],
    "overload": {"offered_per_s": 160.0, "goodput_per_s": 79.0, "to_capacity": 0.99, "refused_p99_s": 0.01,
                 "statuses": {"503": 700, "200": 800}},
    "live": [{"streams": 400, "words": 9000, "finals": 800, "refused": 0, "broken": 0, "unheard_words": 0,
              "word_latency_p50_seconds": 0.4, "word_latency_p95_seconds": 1.1, "word_latency_p99_seconds": 1.3,
              "client_late_p95_seconds": 0.004}],
}
SOAK = {
    "seconds": 300.0, "callers": 32, "live": LOAD["live"][0], "files": LOAD["files"][0], "resident_mib": [1.0, 2.0],
    "resident_slope_mib_per_minute": 0.1, "gpu_mib": [5.0, None], "gpu_slope_mib_per_minute": 9.0,
}


def preflight(gpu: str) -> dict:
    return {"gpus": [{"name": gpu, "driver_version": "580.1", "memory.total": "143771 MiB"}], "missing": [],
            "driver": {"cuda": "13.0"}, "libraries": {"packages": {"torch": "2.11.0", "transformers": None}},
            "ceilings": BENCH["ceilings"]}


def measure(step: int, result=None, outcome: str = "done", tail: str = "") -> dict:
    return {"step": step, "outcome": outcome, "exit": 0 if outcome == "done" else 1, "seconds": 9.0, "limit": 60.0,
            "at": "2026-11-23T10:00:00Z", "command": "", "result": result, "tail": tail}


def good(gpu: str) -> dict:
    return {
        "preflight": measure(1, preflight(gpu)),
        "kernels": measure(2, {"passed": ["a"], "failed": [], "finished": True}),
        "large-v3, mlperf tokens, 64 slots": measure(3, BENCH),
        "large-v3, 100 tokens, 64 slots": measure(3, BENCH | {"rtfx": 1500.0}),
        "large-v3, 100 tokens, 128 slots": measure(3, BENCH | {"rtfx": 1910.0, "slots": 128}),
        "large-v3, 100 tokens, 64 slots, words": measure(3, BENCH | {"rtfx": 1425.0}),
        "large-v3-turbo, 100 tokens, 64 slots, alone": measure(3, BENCH),
        "large-v3-turbo, 100 tokens, 64 slots, stages": measure(3, BENCH),
        "loop, large-v3, 100 tokens": measure(4, {"results": [
            {"model": "large-v3", "tokens": "100", "batch": 64, "windows_per_second": 20.0, "rtfx": 600.0},
            {"model": "large-v3", "tokens": "100", "batch": 128, "windows_per_second": 19.0, "rtfx": 570.0}]}),
        "memcheck, kernels": measure(5, {"errors": 0, "summary": "ERROR SUMMARY: 0 errors", "exit": 0}),
        "load, large-v3-turbo": measure(6, LOAD),
        "soak, large-v3-turbo": measure(7, SOAK),
    }


def tables(*days: dict, notes: dict | None = None) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        folders = []
        for number, measures in enumerate(days):
            folders.append(Path(folder) / str(number))
            folders[-1].mkdir()
            record = {"notes": {"commit": "0123456789abcdef"} | (notes or {}), "measures": measures}
            (folders[-1] / "day.json").write_text(json.dumps(record))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), \
                mock.patch.object(sys, "argv", ["report.py", *map(str, folders)]):
            return report.main(), out.getvalue()


class Tables(unittest.TestCase):
    def line(self, text: str, begin: str) -> str:
        found = [line for line in text.splitlines() if line.startswith(f"| {begin} |")]
        self.assertTrue(found, f"{begin}:\n{text}")
        return found[0]

    def test_goals_are_hit_or_missed(self):
        status, text = tables(good("NVIDIA H200"))
        self.assertEqual(status, 0)
        self.assertIn("| ≥ 90.0 windows/s | 95.0 (64 slots) | hit |", self.line(text, "large-v3, MLPerf's shape"))
        self.assertIn("1,910 (128 slots) | hit", self.line(text, "large-v3, 100 tokens"))
        self.assertIn("not run | -", self.line(text, "large-v3-turbo, 100 tokens"))
        self.assertIn("39.1 ms | hit", self.line(text, "large-v3-turbo, one window alone, p50"))
        # Compared at the same number of slots.
        self.assertIn("95.0 % | hit", self.line(text, "large-v3, word times to none"))
        self.assertIn("1.10 s | **missed**", self.line(text, "400 live streams, p95 of word latency"))
        self.assertIn("1 of 1 clean | hit", self.line(text, "compute-sanitizer"))
        self.assertIn("**missed**", self.line(text, "300 s of load, memory"))
        self.assertIn("3.2 times", self.line(text, "loop, large-v3, 100 tokens"))
        self.assertIn("62.5 %", self.line(text, "step"))
        self.assertIn("NVIDIA H200", text)
        self.assertIn("commit 0123456789ab", text)

    def test_an_h100_has_three_quarters_of_the_goals(self):
        _, text = tables(good("NVIDIA H100 80GB HBM3"))
        self.assertIn("≥ 67.5 windows/s", self.line(text, "large-v3, MLPerf's shape"))
        self.assertIn("< 53.3 ms", self.line(text, "large-v3-turbo, one window alone, p50"))
        self.assertIn("1.10 s | hit", self.line(text, "400 live streams, p95 of word latency"))
        _, text = tables(good("NVIDIA L4"))
        self.assertIn("no goal for this GPU", self.line(text, "large-v3, MLPerf's shape"))

    def test_nothing_was_run(self):
        status, text = tables({})
        self.assertEqual(status, 0)
        self.assertNotIn("hit", text)
        self.assertNotIn("missed", text)
        plan = "\n".join(f"{measured['step']} {name}" for name, measured in good("").items())
        _, text = tables({}, notes={"plan": plan})
        for name in good(""):
            if name not in ("preflight", "load, large-v3-turbo", "soak, large-v3-turbo") and not name.endswith("stages"):
                self.assertIn("not run", self.line(text, name))

    def test_what_failed_says_so(self):
        for outcome, result in (("failed", None), ("timed out", None), ("absent", None), ("failed", {})):
            days = {name: measure(of["step"], result, outcome, "first\nno such | device")
                    for name, of in good("").items()}
            status, text = tables(days)
            self.assertEqual(status, 0)
            self.assertNotIn("hit", text)
            self.assertIn("timed out after 60 s" if outcome == "timed out" else f"{outcome}: no such \\| device", text)

    def test_what_a_measure_had_before_it_failed_is_kept(self):
        days = good("NVIDIA H200")
        for name in ("load, large-v3-turbo", "soak, large-v3-turbo", "memcheck, kernels", "loop, large-v3, 100 tokens"):
            days[name] |= {"outcome": "timed out"}
        days["load, large-v3-turbo"]["result"] = {key: LOAD[key] for key in ("clip_seconds", "files")}
        days["memcheck, kernels"]["result"] = {"errors": 3, "summary": "ERROR SUMMARY: 3 errors", "exit": 86}
        _, text = tables(days)
        self.assertIn("errors: memcheck, kernels | **missed**", self.line(text, "compute-sanitizer"))
        self.assertIn("600", self.line(text, "loop, large-v3, 100 tokens"))

    def test_folders_of_one_gpu_add_to_each_other(self):
        first, second = good("NVIDIA H200"), good("NVIDIA H200")
        first["kernels"] = measure(2, None, "failed", "broken")
        del first["soak, large-v3-turbo"]
        _, text = tables(first, second)
        self.assertIn("passed", self.line(text, "kernels"))
        self.assertIn("300 s of load", text)
        status, text = tables(good("NVIDIA H200"), good("NVIDIA H100"))
        self.assertEqual(status, 2)
        self.assertIn("one report for each kind", text)


if __name__ == "__main__":
    unittest.main()
