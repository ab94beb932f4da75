#!/usr/bin/env python3
"""Time of one layer by pipeline degree, forward and backward, beside the lower bounds."""
import style
from records import BadInput, Records, chosen, one_value
from style import plt

MOST = len(style.OURS)


def series_of(cases, schedule):
    rows = sorted((case for case in cases if case["schedule"] == schedule), key=lambda case: case["degree_forward"])
    return [case["degree_forward"] for case in rows], rows


def draw_phase(axes, cases, phase):
    axes.set_title(phase)
    for schedule in dict.fromkeys(case["schedule"] for case in cases):
        degrees, rows = series_of(cases, schedule)
        colour, marker = style.schedule_style(schedule)

        def of(name):
            return [row.number("prediction", name) * 1e3 for row in rows]
        times = of(f"{phase}_s")
        best = min(range(len(times)), key=lambda k: times[k])
        if len(degrees) == 1:
            axes.axhline(times[0], color=colour, linewidth=0.8, alpha=0.6)
        axes.plot(degrees, times, color=colour, marker=marker, markersize=3, linewidth=1.2,
                  label=f"{schedule}: least {times[best]:.2f} ms at r = {degrees[best]}")
        axes.plot(degrees[best], times[best], marker=marker, markersize=9, markerfacecolor="none",
                  color=colour)
        axes.plot(degrees, of(f"degree_bound_{phase}_s"), color="black", linewidth=0.8,
                  linestyle=(0, (3, 3)), zorder=4)
        axes.axhline(of(f"free_bound_{phase}_s")[0], color=colour, linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(plt.FormatStrFormatter("%d"))
    axes.margins(y=0.08)
    axes.set_xlabel("degree r (chunks)")
    axes.set_ylabel(f"time of the {phase}, ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def main():
    parser = style.arguments(__doc__, "degrees.py results/layer.jsonl --schedule tutel,fsmoe")
    parser.add_argument("records", help="FILE that `moetune simulate --out FILE --sweep-degrees` wrote")
    parser.add_argument("--schedule", help=f"NAME[,NAME], at most {MOST}; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("degrees/", "moetune simulate --out FILE --sweep-degrees")
    cases = chosen(cases, options.schedule, options.records)
    schedules = {case["schedule"] for case in cases}
    if len(schedules) > MOST:
        raise BadInput(f"--schedule: found {len(schedules)} schedules, expected at most {MOST} in one picture")
    layer, cluster = (one_value(cases, name, options.records) for name in ("layer", "cluster"))
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.6 + 0.14 * len(schedules)))
    for axes, phase in zip(panels, ("forward", "backward")):
        draw_phase(axes, cases, phase)
    caption = (f"{layer} on {cluster}. Solid: exact replay, the gradient split tuned for each degree; black dashes: "
               "lower bound of chunks of that degree (on the curve where it is reached); dotted: lower bound of any "
               "degree; circled: the least.")
    style.save(figure, options, "degrees", "Pipeline degree and time of one layer", caption, records.source())


if __name__ == "__main__":
    style.run(main)
