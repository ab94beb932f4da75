#!/usr/bin/env python3
"""Layers that really ran: measured time against the predicted one, outliers named."""
import statistics

import style
from records import BadInput, Records, one_value
from style import plt

MOST_NAMED = 6
BAND = 0.02  # half-width of the shaded strip along the diagonal, in which points have no names


class Pair:
    """Predicted and measured seconds of one layer under one schedule."""

    def __init__(self, case):
        self.schedule, self.layer = case.get("schedule") or "?", case.text("layer")
        self.predicted, self.measured = case.number("prediction", "total_s"), case.number("summary", "total_s")
        if not (self.predicted > 0 and self.measured > 0):
            raise BadInput(f"{case.where}: total_s: found {self.predicted:g} and {self.measured:g}, expected both "
                           "above 0")
        self.off = self.measured / self.predicted - 1


def pairs_of(cases, path):
    pairs = [Pair(case) for case in cases
             if case["status"] == "ok" and "total_s" in case["summary"] and "total_s" in case["prediction"]]
    if not pairs:
        raise BadInput(f"{path}: total_s: found no run with status ok that has it in summary and prediction, "
                       "expected at least one")
    return pairs


def outliers(pairs):
    """Returns the pairs with the largest errors, without those inside the band."""
    return sorted((p for p in pairs if abs(p.off) > BAND), key=lambda p: -abs(p.off))[:MOST_NAMED]


def by_schedule(pairs):
    found = {}
    for pair in pairs:
        found.setdefault(pair.schedule, []).append(pair)
    return found


def draw_times(axes, pairs):
    ends = [min(min(p.predicted, p.measured) for p in pairs) * 0.9e3,
            max(max(p.predicted, p.measured) for p in pairs) * 1.1e3]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [e * (1 - BAND) for e in ends], [e * (1 + BAND) for e in ends], color="#e9e9e9")
    for name, of_one in by_schedule(pairs).items():
        colour, marker = style.schedule_style(name)
        axes.plot([p.predicted * 1e3 for p in of_one], [p.measured * 1e3 for p in of_one], marker, color=colour,
                  markersize=5, markerfacecolor="none", label=name)
    style.logarithmic(axes.xaxis)
    style.logarithmic(axes.yaxis)
    axes.set_title("forward + backward")
    axes.set_xlabel("predicted, ms")
    axes.set_ylabel("measured, ms")
    axes.legend(loc="lower right")


def draw_errors(axes, pairs):
    """Draws a row for each schedule: every layer's error, and the median of the absolute ones."""
    rows = by_schedule(pairs)
    for y, (name, of_one) in enumerate(rows.items()):
        colour, marker = style.schedule_style(name)
        axes.plot([100 * p.off for p in of_one], [y] * len(of_one), marker, color=colour, markersize=5,
                  markerfacecolor="none")
        axes.annotate(f"{100 * statistics.median(abs(p.off) for p in of_one):.2f} %", (1.01, y), fontsize=7.5,
                      xycoords=("axes fraction", "data"), va="center")
    for number, pair in enumerate(outliers(pairs), 1):
        axes.annotate(str(number), (100 * pair.off, list(rows).index(pair.schedule)), (0, 6), fontsize=7.5,
                      textcoords="offset points", ha="center", color=style.BAD)
    axes.annotate("median", (1.01, -0.75), xycoords=("axes fraction", "data"), fontsize=7.5, va="center")
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.9)
    axes.margins(x=0.1)
    axes.set_title("by schedule")
    axes.set_xlabel("measured over predicted - 1, %")


def main():
    parser = style.arguments(__doc__, "predicted.py results/tune-testbed-b.jsonl")
    parser.add_argument("records", help="FILE of `moetune tune` or `moetune layerbench`")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("run/", "moetune tune")
    pairs = pairs_of(cases, options.records)
    rows = len(by_schedule(pairs))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, max(4.2, 1.6 + 0.3 * rows)))
    draw_times(left, pairs)
    draw_errors(right, pairs)
    left_out = len(cases) - len(pairs)
    emulated = "emulated cluster" if any(case.get("emulated") for case in cases) else "measured"
    caption = (f"{len(pairs)} runs on {one_value(cases, 'cluster', options.records)}, {emulated}; "
               f"{left_out} more have no sound time, or no prediction. The strip and the names: {100 * BAND:g} %. ")
    worst = [f"{i} {p.layer} under {p.schedule} {100 * p.off:+.1f} %" for i, p in enumerate(outliers(pairs), 1)]
    caption += f"Outliers: {'; '.join(worst)}." if worst else "No run is an outlier."
    style.save(figure, options, "predicted", "Predicted and measured time", caption, records.source())


if __name__ == "__main__":
    style.run(main)
