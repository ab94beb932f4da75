#!/usr/bin/env python3
"""Times of cases over many commits, and the changes in them: `moetune history DIR` runs this script.

Prints the changes of each series as JSON; draws the series with --out. A change is where a kernel change-point search
(ruptures' KernelCPD: PELT with a Gaussian kernel) splits the log values into segments of three runs or more. The
kernel is as wide as twice the series' own noise, taken from the differences of neighbours, so that single outliers
weigh little; the penalty of a split grows with the log of the length.

Null series (normal noise of 2 %) that have a change found in them, of 500 of each length, seeds as in
tests/commands/regress/history_changes_test.py: 0.8 % of 8 runs, 0.8 % of 12, 0.8 % of 20, 0.4 % of 60, none of 200.
Noise that drifts or comes in spells, which neighbours share, has more.
"""
import json
import math
import statistics
import sys

import style
from records import BadInput
from style import plt

LEAST_SEGMENT = 3    # runs
LEAST_NOISE = 1e-3   # in log values: smaller differences count as equal
KERNEL_WIDTH = 2     # standard deviation of the kernel over that of the noise
PENALTY = 0.5        # of a split, divided by log(runs), in units of the kernel
SHORT = 8            # runs; shorter series have uncertain noise, so a larger penalty
MOST_PANELS = 12


def noise_of(logs):
    """Returns the standard deviation of the noise by the median difference of neighbours, which few steps and outliers
    change little."""
    differences = [abs(b - a) for a, b in zip(logs, logs[1:])]
    return max(LEAST_NOISE, statistics.median(differences) / (0.6745 * math.sqrt(2)))


def changes_in(values):
    """Returns the starts of segments except the first: [{at, before_s, after_s}], with the medians of both segments."""
    import numpy
    logs = [math.log(value) for value in values]
    gamma = 0.5 / (KERNEL_WIDTH * noise_of(logs)) ** 2
    penalty = PENALTY * math.log(len(logs)) * (1 + SHORT / len(logs))
    search = ruptures().KernelCPD(kernel="rbf", min_size=LEAST_SEGMENT, params={"gamma": gamma})
    ends = [0, *map(int, search.fit(numpy.array(logs).reshape(-1, 1)).predict(pen=penalty))]
    levels = [statistics.median(values[begin:end]) for begin, end in zip(ends, ends[1:])]
    return [{"at": at, "before_s": before, "after_s": after}
            for at, before, after in zip(ends[1:], levels, levels[1:])]


def ruptures():
    try:
        import ruptures as library
    except ImportError:
        print(f"moetune: history: {sys.executable} has no ruptures, which finds the changes: ./moetune history fetches "
              "it, or name a Python that has it in MOETUNE_PYTHON", file=sys.stderr)
        sys.exit(77)
    return library


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        values = [[float(point["value_s"]) for point in series["points"]] for series in document["series"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: found no series ({error}), expected those that `moetune history` passes") from None
    if any(not (math.isfinite(value) and value > 0) for series in values for value in series):
        raise BadInput(f"{path}: value_s: found a value that is not a time, expected finite seconds above 0")
    return document, values


def draw(axes, series, values, changes):
    axes.plot(range(len(values)), [1e3 * value for value in values], color=style.OURS[0], marker="o", markersize=2.5,
              linewidth=0.8)
    dirty = [i for i, point in enumerate(series["points"]) if point["dirty"]]
    axes.plot(dirty, [1e3 * values[i] for i in dirty], linestyle="", marker="o", markersize=6, markerfacecolor="none",
              color=style.PAPER)
    ends = [0, *(change["at"] for change in changes), len(values)]
    for begin, end in zip(ends, ends[1:]):
        level = 1e3 * statistics.median(values[begin:end])
        axes.plot([begin - 0.5, end - 0.5], [level, level], color="black", linewidth=0.9)
    for change in changes:
        slower = change["after_s"] > change["before_s"]
        colour = style.BAD if slower else style.OURS[2]
        axes.axvline(change["at"] - 0.5, color=colour, linewidth=1)
        commit = series["points"][change["at"]]["commit"][:8]
        axes.annotate(f"{commit} {change['after_s'] / change['before_s']:.3f}x", (change["at"] - 0.5, 1),
                      xycoords=("data", "axes fraction"), fontsize=7, color=colour, va="bottom")
    axes.set_title(series["group"], pad=12)
    axes.set_ylabel("time, ms")


def picture(document, values, changes, options):
    count = len(values)
    if count > MOST_PANELS:
        raise BadInput(f"--out: found {count} series, expected at most {MOST_PANELS}: moetune history --filter or --by")
    figure, panels = plt.subplots(count, 1, figsize=(9, 1.9 * count + 0.6), squeeze=False)
    for axes, row in zip(panels[:, 0], zip(document["series"], values, changes)):
        draw(axes, *row)
    panels[-1, 0].set_xlabel("run, by time")
    machines = "; ".join(dict.fromkeys(series["machine"] for series in document["series"]))
    caption = ("Geometric mean of each series' cases. Black: medians between changes; red: slower from there on, "
               "green: faster; grey circles: the tree had changes that were in no commit.")
    style.save(figure, options, "history", "Times over commits", caption, machines)


def main():
    parser = style.arguments("What cases took over many commits, and the changes in it.", "history.py series.json")
    parser.add_argument("series", help="FILE with the series that `moetune history` passes")
    options = parser.parse_args()
    document, values = read(options.series)
    least = document.get("least_runs", 0)
    changes = [changes_in(series) if len(series) >= max(least, 2 * LEAST_SEGMENT) else [] for series in values]
    print(json.dumps(changes))
    if options.out:
        picture(document, values, changes, options)


if __name__ == "__main__":
    style.run(main)
