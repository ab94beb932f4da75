#!/usr/bin/env python3
"""A model's loss step by step under each schedule, and the lower bounds that its text sets."""
import math

from matplotlib.ticker import MaxNLocator

import style
from records import BadInput, Records, chosen, one_value
from style import plt

BOUNDS = (("entropy_rate", "no model is below"), ("order_1_entropy", "none that sees one token is below"))


def losses_of(case):
    """Returns the loss of each step."""
    samples = case.get("samples")
    rows = samples.get("loss") if isinstance(samples, dict) else None
    whole = (isinstance(rows, list) and rows and all(isinstance(row, list) and len(row) == 1 for row in rows)
             and all(isinstance(row[0], (int, float)) and math.isfinite(row[0]) for row in rows))
    if not whole:
        raise BadInput(f"{case.where}: samples.loss: found {str(rows)[:24]}, expected a number a step")
    return [row[0] for row in rows]


def curves_of(cases, path):
    """Returns [(schedule, losses, held-out loss or None)] of the trained models."""
    curves = [(case.get("schedule") or "?", losses_of(case),
               case.number("summary", "held_out_loss") if "held_out_loss" in case["summary"] else None)
              for case in cases if "loss" in (case.get("samples") or {})]
    if not curves:
        raise BadInput(f"{path}: samples.loss: found none, expected records of `moetune modelbench`")
    return curves


def bounds_of(case):
    """Returns [(nats a token, description)] of the text's lower bounds; a file's text has none."""
    return [(case.number("parameters", name), said) for name, said in BOUNDS if name in case["parameters"]]


def draw(axes, curves, bounds):
    most = max(len(losses) for _, losses, _ in curves)
    for i, (schedule, losses, held_out) in enumerate(curves):
        colour, marker = style.schedule_style(schedule)
        steps = range(1, len(losses) + 1)
        every = max(1, most // 12)
        axes.plot(steps, losses, marker + "-", color=colour, linewidth=1.2, markersize=4,
                  markevery=(i * every // len(curves), every), label=schedule)
        if held_out is not None:
            axes.plot([len(losses)], [held_out], marker, color=colour, markersize=9, markerfacecolor="none",
                      label=f"{schedule}, held out: {held_out:.4f}")
    for value, said in bounds:
        axes.axhline(value, color="black", linewidth=0.8, linestyle="--")
        axes.annotate(f"{said} {value:.4f}", (0.995, value), xycoords=("axes fraction", "data"), ha="right",
                      va="top", fontsize=7.5, xytext=(0, -2), textcoords="offset points")
    axes.margins(y=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlim(0.5, most + max(0.5, 0.03 * most))
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a token")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "loss.py results/modelbench-host.jsonl")
    parser.add_argument("records", help="FILE of `moetune modelbench`")
    parser.add_argument("--schedule", metavar="NAME[,..]", help="schedules to draw; default: all")
    options = parser.parse_args()
    records = Records(options.records)
    cases = chosen(records.of("run/", "moetune modelbench"), options.schedule, options.records)
    curves = curves_of(cases, options.records)
    figure, axes = plt.subplots(figsize=(9.5, 4.4))
    draw(axes, curves, bounds_of(cases[0]))
    what = [one_value(cases, name, options.records) for name in ("model", "cluster", "text", "optimizer")]
    caption = (f"{what[0]} on {what[1]}, trained on {what[2]}, {what[3]}. A step's loss is taken before it changes "
               "weights. Schedules compute the same: their curves differ by rounding, and lie on each other. "
               f"{len(cases) - len(curves)} schedules are left out: not trained.")
    style.save(figure, options, "loss", "Loss by step", caption, records.source())


if __name__ == "__main__":
    style.run(main)
