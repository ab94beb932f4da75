#!/usr/bin/env python3
"""One layer's time by degree of the forward and of the backward, as a map for each schedule."""
from matplotlib.transforms import offset_copy

import style
from records import BadInput, Records, chosen, one_value
from style import plt

BESIDE = 7  # points
MOST, LEVELS = 8, 30.0  # most schedules in one picture; per cent above which all values have the same colour


def times_of(cases, schedule):
    """Returns the degrees, and the seconds of the forward and of the backward by degree."""
    rows = {case["degree_forward"]: case for case in cases if case["schedule"] == schedule}
    degrees = sorted(rows)
    forward, backward = ([rows[r].number("prediction", f"{phase}_s") for r in degrees]
                         for phase in ("forward", "backward"))
    # With full recomputation a backward begins with a forward.
    if any(case["parameters"].get("recompute") == "full" for case in rows.values()):
        forward, backward = [2 * f for f in forward], [b - f for f, b in zip(forward, backward)]
    return degrees, forward, backward


def best_of(degrees, forward, backward):
    """Returns the best pair of degrees with its seconds, and the best common degree of both phases with its seconds."""
    pair = degrees[forward.index(min(forward))], degrees[backward.index(min(backward))]
    both = [f + b for f, b in zip(forward, backward)]
    return pair, min(forward) + min(backward), degrees[both.index(min(both))], min(both)


def draw(axes, schedule, degrees, forward, backward):
    (r_f, r_b), least, shared, shared_s = best_of(degrees, forward, backward)
    above = [[100 * ((f + b) / least - 1) for f in forward] for b in backward]
    edges = [degrees[0] - 0.3] + [r - 0.5 for r in degrees[1:]] + [degrees[-1] + 0.5]
    image = axes.pcolormesh(edges, edges, above, cmap="cividis_r", vmin=0, vmax=LEVELS)
    ends = [degrees[0], degrees[-1]]
    axes.plot(ends, ends, color="white", linewidth=0.8, linestyle=":")
    aside = BESIDE if (r_f, r_b) == (shared, shared) else 0  # two marks on one pair are side by side
    for degrees_of_mark, points, mark in (((shared, shared), aside, {"marker": "o", "color": "white", "markersize": 6,
                                                                     "markeredgecolor": "black"}),
                                          ((r_f, r_b), -aside, {"marker": "*", "color": style.BAD, "markersize": 12,
                                                                "markeredgecolor": "white"})):
        moved = offset_copy(axes.transData, fig=axes.figure, x=points, units="points")
        axes.plot(*([degree] for degree in degrees_of_mark), transform=moved, linestyle="", **mark)
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(edges[0], edges[-1])
    axes.grid(visible=False)
    more = 100 * (shared_s / least - 1)
    axes.set_title(f"{schedule}: {least * 1e3:.2f} ms at {r_f}, {r_b}\nequal degrees {more:.1f} % more, at {shared}",
                   fontsize=8.5)
    axes.set_xlabel("degree of the forward, r_f")
    axes.set_ylabel("degree of the backward, r_b")
    return image


def main():
    parser = style.arguments(__doc__, "degree_map.py results/layer.jsonl --schedule tutel,fsmoe")
    parser.add_argument("records", help="FILE that `moetune simulate --out FILE --sweep-degrees` wrote")
    parser.add_argument("--schedule", help=f"NAME[,NAME], at most {MOST}; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("degrees/", "moetune simulate --out FILE --sweep-degrees")
    cases = chosen(cases, options.schedule, options.records)
    series = {name: times_of(cases, name) for name in dict.fromkeys(case["schedule"] for case in cases)}
    one = [name for name, (degrees, _, _) in series.items() if len(degrees) < 2]
    series = {name: times for name, times in series.items() if name not in one}
    if not 0 < len(series) <= MOST:
        raise BadInput(f"--schedule: found {len(series)} schedules with degrees to choose from, expected 1 to {MOST}")
    layer, cluster = (one_value(cases, name, options.records) for name in ("layer", "cluster"))
    columns = min(4, len(series))
    rows = -(-len(series) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(3.6 * columns + 1.4, 3.6 * rows), squeeze=False,
                                  layout="constrained")
    for axes, (name, times) in zip(panels.flat, series.items()):
        image = draw(axes, name, *times)
    for axes in list(panels.flat)[len(series):]:
        axes.set_visible(False)
    figure.colorbar(image, ax=panels, label="longer than the least, %", extend="max")
    caption = (f"{layer} on {cluster}, exact replay. Star: the best pair; circle: the best of equal degrees, which lie "
               "on the dotted line; where they are one pair, both stand beside its middle. Records have a forward and "
               "a backward of each degree, and no task of one phase runs in the other: a pair takes their sum.")
    if one:
        caption += f" Left out, as they have one degree: {', '.join(one)}."
    style.save(figure, options, "degree_map", "Time by the degrees of both phases", caption, records.source())


if __name__ == "__main__":
    style.run(main)
