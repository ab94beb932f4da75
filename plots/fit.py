#!/usr/bin/env python3
"""The fit of a cluster: measured medians and their spread, fitted lines, rates, and what is left between them."""
import style
from fits import PANELS, PER_SECOND, emulation_of, lines_of, series_of
from records import BadInput, Records, one_value, read_profile
from style import plt

STEPS = 40  # points of a line on logarithmic axes
MOST_LABELS = 14


def along(points):
    """Returns sizes from the smallest to the largest, evenly spaced on a logarithmic axis."""
    first, last = points[0].size, points[-1].size
    return [first * (last / first)**(i / STEPS) for i in range(STEPS + 1)]


def label_of(name, line):
    if line is None:
        return f"{name}: no line"
    r2 = f", r² {line.r_squared:.6f}" if line.r_squared is not None else ""
    return f"{name}: {line.alpha * 1e6:.1f} us{r2}" + (", curve" if line.curve else "")


def draw_series(panels, place, name, measured, line):
    """Draws a series and returns the largest relative error of its line."""
    (panel, points), (times, rates, off) = measured, panels
    unit = PANELS[panel][2]
    colour, marker = style.OURS[place % len(style.OURS)], style.MARKERS[place // 2 % len(style.MARKERS)]
    sizes, hollow = [p.size / unit for p in points], {"markersize": 4, "markerfacecolor": "none"}
    if line:
        fine = along(points)
        xs = [n / unit for n in fine]
        times.plot(xs, [line.seconds(n) * 1e3 for n in fine], color=colour, linewidth=1)
        rates.plot(xs, [n / line.seconds(n) / PER_SECOND for n in fine], color=colour, linewidth=1)
    spread = [[(p.seconds - p.least) * 1e3 for p in points], [(p.most - p.seconds) * 1e3 for p in points]]
    times.errorbar(sizes, [p.seconds * 1e3 for p in points], yerr=spread, fmt=marker, color=colour, elinewidth=0.8,
                   capsize=1.5, label=label_of(name, line), **hollow)
    rates.plot(sizes, [p.size / p.seconds / PER_SECOND for p in points], marker, color=colour, **hollow)
    if not line:
        return 0.0
    shares = [100 * (line.seconds(p.size) / p.seconds - 1) for p in points]
    off.plot(sizes, shares, marker + "-", color=colour, markersize=3, linewidth=0.6)
    return max(abs(share) for share in shares)


def draw_column(panels, names, series, lines):
    times, rates, off = panels
    title, size_label, _, rate_label = PANELS[series[names[0]][0]]
    worst = max(draw_series(panels, i, name, series[name], lines.get(name)) for i, name in enumerate(names))
    times.set_title(title)
    for axes in panels:
        style.logarithmic(axes.xaxis)
        axes.tick_params(labelbottom=axes is off)
    style.logarithmic(times.yaxis)
    rates.set_ylim(bottom=0)
    times.set_ylabel("time, ms")
    rates.set_ylabel(rate_label)
    off.axhline(0, color="black", linewidth=0.8)
    off.set_ylim(-1.15 * max(worst, 0.01), 1.15 * max(worst, 0.01))
    off.set_ylabel("fit over measured - 1, %")
    off.set_xlabel(size_label)
    off.legend(*times.get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, -0.28), fontsize=7,
               ncols=1 + (len(names) > MOST_LABELS))


def known_lines(series, options):
    """Returns the profile's lines. Each series must have a line or a reason in the profile; otherwise the profile is of
    another cluster."""
    profile = read_profile(options.profile)
    lines = lines_of(profile, options.profile)
    unusable = {str(row.get("row")) for row in profile.get("unusable", []) if isinstance(row, dict)}
    for name in series:
        if name not in lines and name not in unusable:
            raise BadInput(f"{options.profile}: found no row for {name}, expected the profile fitted from "
                           f"{options.records}")
    return lines


def main():
    parser = style.arguments(__doc__, "fit.py results/microbench-testbed-b.jsonl --profile results/mine.toml")
    parser.add_argument("records", help="FILE of `moetune microbench` or `moetune tune`")
    parser.add_argument("--profile", required=True, help="fitted profile FILE (moetune fit --out FILE)")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("op/", "moetune microbench")
    series = series_of(cases)
    if not series:
        raise BadInput(f"{options.records}: key: found no op/... with status ok, expected records of microbench")
    lines = known_lines(series, options)
    columns = [names for panel in range(len(PANELS)) if (names := [n for n in series if series[n][0] == panel])]
    longest = max(len(names) for names in columns)
    figure, panels = plt.subplots(3, len(columns), figsize=(4.4 * len(columns) + 0.6, 7.6 + 0.13 * longest),
                                  squeeze=False, sharex="col", gridspec_kw={"height_ratios": [2, 1.4, 1]})
    for column, names in enumerate(columns):
        draw_column(panels[:, column], names, series, lines)
    caption = (f"{one_value(cases, 'cluster', options.records)}, {emulation_of(cases)}: markers are medians over "
               "iterations of the slowest rank, bars the least and the most, what was measured again with it; lines "
               "the least-squares fit alpha + n beta (the legend has alpha and r²), or the measured curve that the "
               "profile has in its place; below, what the fit is off.")
    style.save(figure, options, "fit", "Measured times and fitted lines", caption,
               f"{records.source()}; {options.profile}")


if __name__ == "__main__":
    style.run(main)
