#!/usr/bin/env python3
"""The fit of a cluster: measured medians, fitted lines, and what is left between them."""
import style
from fits import PANELS, emulation_of, lines_of, series_of
from records import BadInput, Records, one_value, read_profile
from style import plt


def draw_column(above, below, names, series, lines):
    panel = series[names[0]][0]
    title, size_label, unit = PANELS[panel]
    above.set_title(title)
    worst = 0.0
    for i, name in enumerate(names):
        points, line, colour = series[name][1], lines[name], style.OURS[i % len(style.OURS)]
        sizes = [size / unit for size, _ in points]
        off = [100 * (line.seconds(size) / seconds - 1) for size, seconds in points]
        worst = max([worst] + [abs(value) for value in off])
        r2 = f", r² {line.r_squared:.6f}" if line.r_squared is not None else ""
        above.plot([0, sizes[-1]], [line.alpha * 1e3, line.seconds(points[-1][0]) * 1e3], color=colour, linewidth=1)
        above.plot(sizes, [seconds * 1e3 for _, seconds in points], style.MARKERS[i % len(style.MARKERS)], color=colour,
                   markersize=4, markerfacecolor="none", label=f"{name}: {line.alpha * 1e6:.1f} us{r2}")
        below.plot(sizes, off, style.MARKERS[i % len(style.MARKERS)] + "-", color=colour, markersize=3, linewidth=0.6)
    above.set_ylabel("time, ms")
    above.set_xlim(left=0)
    above.set_ylim(bottom=0)
    above.legend(loc="upper left", fontsize=7)
    above.tick_params(labelbottom=False)
    below.axhline(0, color="black", linewidth=0.8)
    below.set_ylim(-1.15 * worst or -1, 1.15 * worst or 1)
    below.set_ylabel("fit over measured - 1, %")
    below.set_xlabel(size_label)
    below.sharex(above)


def main():
    parser = style.arguments(__doc__, "fit.py results/microbench-testbed-b.jsonl --profile results/mine.toml")
    parser.add_argument("records", help="FILE of `moetune microbench` or `moetune tune`")
    parser.add_argument("--profile", required=True, help="fitted profile FILE (moetune fit --out FILE)")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("op/", "moetune microbench")
    lines, series = lines_of(read_profile(options.profile), options.profile), series_of(cases)
    if not series:
        raise BadInput(f"{options.records}: key: found no op/... with status ok, expected records of a microbench")
    for name in series:
        if name not in lines:
            raise BadInput(f"{options.profile}: found no row for {name}, expected the profile fitted from "
                           f"{options.records}")
    columns = [names for panel in range(len(PANELS)) if (names := [n for n in series if series[n][0] == panel])]
    figure, panels = plt.subplots(2, len(columns), figsize=(4.4 * len(columns) + 0.6, 6), squeeze=False,
                                  gridspec_kw={"height_ratios": [2.2, 1]})
    for column, names in enumerate(columns):
        draw_column(panels[0][column], panels[1][column], names, series, lines)
    caption = (f"{one_value(cases, 'cluster', options.records)}, {emulation_of(cases)}: markers are medians over "
               "iterations of the slowest rank, lines the least-squares fit alpha + n beta (the legend has alpha and "
               "r²); below, what the fit is off.")
    style.save(figure, options, "fit", "Measured times and fitted lines", caption,
               f"{records.source()}; {options.profile}")


if __name__ == "__main__":
    style.run(main)
