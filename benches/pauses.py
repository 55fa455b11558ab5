#!/usr/bin/env python3
"""Weighs the signs that a speaker who pauses has finished, and what a rule of waiting makes of them.

usage: pauses.py fit=TRACE… held-out=TRACE…

TRACEs come from `cargo bench --bench turns -- FOLDER trace=TRACE`: each pause of a dialogue with the model's answers, the
words' ending and the truth. Of `fit` the first half of the clips is used, of `held-out` the second. Prints weights as
log-odds (logistic regression), and false cut-offs and waits of rules by them. Needs numpy.
"""

import json
import sys

import numpy

ENDINGS = ("Complete", "Closed", "Loose", "Open")
FRAME, MODEL, WORDS = 0.032, 0.032, 0.2
TOLERANCE = 0.1


def logit(p):
    p = min(max(p, 0.005), 0.995)
    return float(numpy.log(p / (1 - p)))


def pauses(paths, half):
    rows = []
    for path in paths:
        for line in open(path):
            row = json.loads(line)
            row["source_file"] = path + row["file"]
            if half is None or row["half"] == half:
                rows.append(row)
    return rows


def is_end(row):
    return row["begun"] > row["turn"]["end"] - TOLERANCE


def odds_at(row, silence, mode):
    """The model's log-odds as known after so much silence; None: not asked yet."""
    known = [logit(p) for s, p in row["looks"] if p is not None and s + MODEL <= silence + 1e-9]
    if not known:
        return None
    return {"last": known[-1], "first": known[0], "mean": float(numpy.mean(known)), "mean2": float(numpy.mean(known[-2:])),
            "min2": min(known[-2:]), "max": max(known)}[mode]


def design(rows, mode, at=0.5):
    x, y = [], []
    for row in rows:
        if row["ending"] == "Complete":
            continue
        length = (row["resumed"] or 1e9) - row["begun"]
        if length < at:
            continue
        odds = odds_at(row, at, mode)
        if odds is None:
            continue
        x.append([odds, *(row["ending"] == e for e in ENDINGS[1:])])
        y.append(is_end(row))
    return numpy.array(x, float), numpy.array(y, float)


def regress(x, y, ridge=0.3):
    w = numpy.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + numpy.exp(-x @ w))
        gradient = x.T @ (p - y) + ridge * w
        hessian = (x * (p * (1 - p))[:, None]).T @ x + ridge * numpy.eye(len(w))
        w -= numpy.linalg.solve(hessian, gradient)
    return w


class Old:
    def silence(self, row, silence):
        odds = odds_at(row, silence, "last")
        known = silence >= row["looks"][0][0] + WORDS
        ending = row["ending"] if known else None
        if ending == "Complete":
            return 0.25
        if odds is None or odds < 0:
            return 2.0
        sure = odds >= logit(0.9)
        return {"Open": 1.5, "Loose": 1.1 if sure else 1.4, None: 1.0, "Closed": 0.25 if sure else 0.5}[ending]


class Linear:
    """Waits for the share of the longest wait that is wanting of `range` in log-odds to `sure`."""

    def __init__(self, mode, slope, words, range_, sure, least=0.25, most=2.0):
        self.mode, self.slope, self.words, self.range, self.sure = mode, slope, words, range_, sure
        self.least, self.most = least, most

    def silence(self, row, silence):
        odds = odds_at(row, silence, self.mode)
        known = silence >= row["looks"][0][0] + WORDS
        if known and row["ending"] == "Complete":
            return self.least
        if odds is None or not known:
            return self.most
        wanting = self.sure - self.slope * odds - self.words[row["ending"]]
        return self.least + (self.most - self.least) * min(max(wanting / self.range, 0.0), 1.0)


def simulate(rows, rule):
    turns = {}
    for row in rows:
        turns.setdefault(row["source_file"], []).append(row)
    cut, waits, kinds = 0, [], {}
    for name, of in turns.items():
        end = of[0]["turn"]["end"]
        at = None
        for row in sorted(of, key=lambda row: row["begun"]):
            length = (row["resumed"] or 1e9) - row["begun"]
            frame = 8
            while frame * FRAME < length and frame * FRAME < 3.2:
                if frame * FRAME >= rule.silence(row, frame * FRAME) - 1e-9:
                    at = row["begun"] + frame * FRAME
                    break
                frame += 1
            if at is not None:
                break
        kind = kinds.setdefault(of[0]["kind"], [0, 0])
        kind[1] += 1
        if at is not None and at < end - TOLERANCE:
            cut += 1
            kind[0] += 1
        elif at is not None:
            waits.append(at - end)
    p = lambda share: float(numpy.quantile(waits, share))
    return cut / len(turns), p(0.5), p(0.9), p(0.95), {k: f"{a}/{b}" for k, (a, b) in kinds.items()}


def main():
    groups = {"fit": [], "held-out": []}
    name = "fit"
    for argument in sys.argv[1:]:
        if "=" in argument and argument.split("=")[0] in groups:
            name, argument = argument.split("=", 1)
        groups[name].append(argument)
    fit, held = pauses(groups["fit"], 0), pauses(groups["held-out"], 1)
    show = lambda name, result: print(f"{name:<60} cut {100 * result[0]:5.1f} %  wait p50 {result[1]:.2f} p90 {result[2]:.2f} "
                                      f"p95 {result[3]:.2f}  {result[4]}")
    show("as it was, fit", simulate(fit, Old()))
    show("as it was, held out", simulate(held, Old()))
    for mode in ("last", "first", "mean", "mean2", "min2", "max"):
        x, y = design(fit, mode)
        w = regress(x, y)
        p = 1 / (1 + numpy.exp(-x @ w))
        loss = -numpy.mean(y * numpy.log(p) + (1 - y) * numpy.log(1 - p))
        print(f"{mode}: slope {w[0]:.2f}", {e: round(float(v), 2) for e, v in zip(ENDINGS[1:], w[1:])}, f"log loss {loss:.3f} of {len(y)}")
        words = dict(zip(ENDINGS[1:], w[1:]))
        best = []
        for range_ in (2, 3, 4, 5, 6, 7, 8, 10, 12):
            for sure in numpy.arange(-1, 6, 0.25):
                result = simulate(fit, Linear(mode, w[0], words, range_, sure))
                if result[1] <= 0.485:
                    best.append((result[0] + 0.05 * max(0, result[3] - 1.4), range_, sure, result))
        best.sort(key=lambda one: one[0])
        for _, range_, sure, result in best[:2]:
            show(f"  {mode} range {range_} sure {sure}: fit", result)
            show(f"  {mode} range {range_} sure {sure}: held out",
                 simulate(held, Linear(mode, w[0], words, range_, sure)))


if __name__ == "__main__":
    main()
