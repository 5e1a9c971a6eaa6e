#!/usr/bin/env python3
"""What each step of a run's waterfalls costs as a ratio to the first, in CPU time per request, with its 95 % interval.

    bench/steps.py output/FOLDER/data.json

Ratios are of blocks of the same round; the interval is of their geometric mean, by resampling rounds.
"""
import json, math, random, statistics, sys

RESAMPLES = 10_000


def rounds(run, case, target):
    """CPU time per right answer in each round, of blocks without a fault."""
    cells = [cell for cell in run["cells"] if (cell["case"], cell["target"]) == (case, target) and not cell["control"]]
    blocks = [block for cell in cells for block in cell["blocks"] if not block["void"] and not block["errors"]]
    return {block["round"]: block["target"]["cpu_us"] / block["good"] for block in blocks if block["good"]}


def ratio(first, this):
    logs = [math.log(this[at] / first[at]) for at in first if at in this]
    chance = random.Random(1)
    means = sorted(statistics.fmean(chance.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
    middle, low, high = (math.exp(it) for it in (statistics.fmean(logs), low, high))
    return f"{middle:.3f} × ({low:.3f} to {high:.3f}), {len(logs)} rounds"


def main():
    run = json.load(open(sys.argv[1]))
    steps = sorted((case for case in run["cases"] if case["step"]), key=lambda case: case["step"]["index"])
    for first in (case for case in steps if case["step"]["index"] == 0):
        same = [case for case in steps if case["step"]["waterfall"] == first["step"]["waterfall"]]
        same = [case for case in same if case["scheme"] == first["scheme"]]
        for target in {cell["target"] for cell in run["cells"] if cell["case"] == first["name"] and not cell["control"]}:
            base = rounds(run, first["name"], target)
            for case in same:
                these = rounds(run, case["name"], target)
                print(f"{case['name']}, {target}: {statistics.median(these.values()):.2f} µs, {ratio(base, these)}")


if __name__ == "__main__":
    sys.exit(main())
