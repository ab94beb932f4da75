#!/usr/bin/env python3
"""Ranks that are slower than others: a rank's median time over that of all ranks, run by run."""
import statistics

import style
from records import BadInput, Records, one_value
from style import plt


def medians_of(case):
    """Returns the median seconds of each rank; a sample has iterations, an iteration has ranks."""
    samples = case.get("samples")
    rows = samples.get("total_s") if isinstance(samples, dict) else None
    whole = (isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)
             and all(isinstance(value, (int, float)) and value > 0 for row in rows for value in row)
             and len({len(row) for row in rows}) == 1)
    if not whole:
        raise BadInput(f"{case.where}: samples.total_s: found {str(rows)[:24]}, expected equally many ranks "
                       "in every iteration")
    return [statistics.median(values) for values in zip(*rows)]


def shares_of(cases, path):
    """Returns [(schedule, each rank's share above or below the median of its ranks)], and the number of omitted runs,
    which have one rank or fewer ranks than most runs."""
    runs = [(case.get("schedule") or "?", medians_of(case)) for case in cases
            if case["status"] == "ok" and "total_s" in case.get("samples", {})]
    runs = [(schedule, medians) for schedule, medians in runs if len(medians) > 1]
    if not runs:
        raise BadInput(f"{path}: samples: found no run with status ok and total_s of several ranks, "
                       "expected at least one")
    ranks = statistics.mode(len(medians) for _, medians in runs)
    shares = [(schedule, [value / statistics.median(medians) - 1 for value in medians]) for schedule, medians in runs
              if len(medians) == ranks]
    return shares, len(cases) - len(shares)


def draw(axes, shares):
    ranks = len(shares[0][1])
    known = set()
    for schedule, off in shares:
        colour, marker = style.schedule_style(schedule)
        axes.plot([100 * value for value in off], range(ranks), marker, color=colour, markersize=5,
                  markerfacecolor="none", label=None if schedule in known else schedule)
        known.add(schedule)
    for rank in range(ranks):
        middle = 100 * statistics.median(off[rank] for _, off in shares)
        axes.plot([middle, middle], [rank - 0.32, rank + 0.32], color="black", linewidth=1.6)
    axes.axvline(0, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.set_ylim(ranks - 0.4, -0.6)
    axes.margins(x=0.08)
    axes.set_xlabel("a rank's median time over the median of all ranks - 1, %")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "stragglers.py results/tune-testbed-b.jsonl")
    parser.add_argument("records", help="FILE of `moetune tune` or `moetune layerbench`")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("run/", "moetune tune")
    shares, left_out = shares_of(cases, options.records)
    figure, axes = plt.subplots(figsize=(9, 1.8 + 0.34 * max(4, len(shares[0][1]))))
    draw(axes, shares)
    caption = (f"{len(shares)} runs on {one_value(cases, 'cluster', options.records)}, forward + backward: a marker a "
               "run, black the median over runs. A rank that is always on the right is a straggler; where "
               f"ranks wait for each other it shows less. {left_out} runs are left out: no sound time, or other ranks.")
    style.save(figure, options, "stragglers", "Ranks beside each other", caption, records.source())


if __name__ == "__main__":
    style.run(main)
