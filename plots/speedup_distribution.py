#!/usr/bin/env python3
"""Over the layers of a grid: how much faster each schedule is than a baseline."""
import statistics

import matplotlib

import style
from records import BadInput, Records, chosen, how_timed, one_value
from style import plt

MOST_CURVES = len(style.OURS)
ACROSS = {"vert": False} if matplotlib.__version_info__ < (3, 10) else {"orientation": "horizontal"}


def ratios_of(cases, baseline, path, part="prediction"):
    """Returns schedule -> ascending ratios over the layers that have both, and the number of layers."""
    totals = {}
    for case in cases:
        if case["status"] == "ok":
            totals.setdefault(case["schedule"], {})[case.text("layer")] = case.number(part, "total_s")
    if baseline not in totals:
        raise BadInput(f"--baseline: found {baseline!r}, expected one of: {', '.join(totals)} (in {path})")
    ratios = {name: sorted(totals[baseline][layer] / seconds for layer, seconds in by_layer.items()
                           if layer in totals[baseline]) for name, by_layer in totals.items()}
    return {name: values for name, values in ratios.items() if values and name != baseline}, len(totals[baseline])


def by_mean(ratios):
    """Returns the schedules in the order of the means, which the picture prints."""
    return dict(sorted(ratios.items(), key=lambda item: statistics.fmean(item[1])))


def draw_boxes(axes, ratios, colours):
    axes.boxplot(list(ratios.values()), whis=(5, 95), widths=0.6, showmeans=True, showfliers=False,
                 patch_artist=True, **ACROSS, medianprops={"color": "black"}, boxprops={"facecolor": "#d7e5f3"},
                 meanprops={"marker": "D", "markersize": 4, "markerfacecolor": "white", "markeredgecolor": "black"})
    for i, (name, values) in enumerate(ratios.items(), 1):
        axes.plot([values[0], values[-1]], [i, i], "|", color="#555555", markersize=6)
        axes.annotate(f"{statistics.fmean(values):.3f}x", (1.01, i), xycoords=("axes fraction", "data"), fontsize=7.5,
                      va="center", color=colours.get(name, "black"))
    axes.annotate("mean", (1.01, len(ratios) + 0.62), xycoords=("axes fraction", "data"), fontsize=7.5, va="center")
    axes.set_yticks(range(1, len(ratios) + 1), list(ratios))
    axes.set_ylim(0.4, len(ratios) + 0.75)
    axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
    axes.grid(axis="y", visible=False)


def draw_curves(axes, ratios, colours):
    for name, values in ratios.items():
        shares = [100 * (i + 1) / len(values) for i in range(len(values))]
        axes.step([values[0]] + values, [0] + shares, where="post", color=colours[name], linewidth=1.4, label=name)
    axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of layers that are no faster, %")
    axes.legend(loc="lower right")


def main():
    parser = style.arguments(__doc__, "speedup_distribution.py results/plan-testbed-b.jsonl --baseline tutel")
    parser.add_argument("records", help="FILE of `moetune tune` or `moetune tune --no-verify`")
    parser.add_argument("--baseline", default="tutel", help="schedule that the others are compared with")
    parser.add_argument("--schedule", help="NAME[,NAME]; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases, part = records.of_layers()
    names = options.schedule and ",".join(dict.fromkeys([options.baseline] + options.schedule.split(",")))
    cases = chosen(cases, names, options.records)
    ratios, layers = ratios_of(cases, options.baseline, options.records, part)
    if not ratios:
        raise BadInput(f"--schedule: found no priced schedule besides {options.baseline!r}, expected at least one")
    ratios = by_mean(ratios)
    curves = len(ratios) <= MOST_CURVES
    colours = {name: style.schedule_style(name)[0] for name in ratios} if curves else {}
    figure, panels = plt.subplots(1, 1 + curves, figsize=(11 if curves else 8, max(3.8, 0.3 * len(ratios) + 1.4)),
                                  squeeze=False)
    draw_boxes(panels[0][0], ratios, colours)
    if curves:
        draw_curves(panels[0][1], ratios, colours)
    for axes in panels[0]:
        axes.set_xlabel(f"speedup over {options.baseline}, forward + backward")
    few = [f"{name} {len(values)}" for name, values in ratios.items() if len(values) < layers]
    caption = (f"{layers} layers on {one_value(cases, 'cluster', options.records)}, {how_timed(cases, part)}. Boxes: "
               "quartiles and median; whiskers: 5 % and 95 %; bars: least and most; diamonds: mean.")
    if few:
        caption += f" Not every layer has a time under: {', '.join(few)}."
    style.save(figure, options, "speedups", f"Speedup over {options.baseline} on the layers of a grid", caption,
               records.source())


if __name__ == "__main__":
    style.run(main)
