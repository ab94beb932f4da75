#!/usr/bin/env python3
"""FSMoE Fig. 5: performance models of GEMM and collectives on both testbeds, as printed, and what was measured."""
import style
from fits import GFLOP, MIB, emulation_of, lines_of, series_of
from records import BadInput, Records, one_value, read_profile
from style import plt

# FSMoE section 6.2: 24 steps of 2^18 float32 elements, and square matrices of up to 12 x 2^19 elements.
MOST_BYTES, MOST_FLOPS = 24 * 2**18 * 4.0, 2.0 * 2508**3


def measured_by_cluster(paths):
    found = {}
    for path in paths:
        records = Records(path)
        cases = records.of("op/", "moetune microbench")
        found[one_value(cases, "cluster", path)] = (series_of(cases), emulation_of(cases), records.source())
    return found


def largest(lines):
    """Returns the largest group of each collective, as in the paper."""
    if lines and lines[0].panel != 0:
        return lines
    by_op = {}
    for line in sorted(lines, key=lambda line: int(line.name.rsplit(" ", 1)[1])):
        by_op[line.name.split()[0]] = line
    return [by_op[op] for op in ("alltoall", "allgather", "reducescatter", "allreduce") if op in by_op]


def draw_panel(axes, lines, measured, most, unit):
    for i, line in enumerate(lines):
        colour, marker = style.OURS[i], style.MARKERS[i]
        beta = line.beta * (MIB * 1e6 if unit == MIB else GFLOP * 1e6)
        label = f"{line.name}: {line.alpha * 1e6:.0f} us + {beta:.1f} us a {'MiB' if unit == MIB else 'GFLOP'}"
        axes.plot([0, most / unit], [line.alpha * 1e3, line.seconds(most) * 1e3], color=colour, linewidth=1.3,
                  linestyle="--" if i % 2 else "-", label=label)  # dashes show coinciding lines
        points = [point for point in measured.get(line.name, (0, []))[1] if point.size <= 1.001 * most]
        axes.plot([point.size / unit for point in points], [point.seconds * 1e3 for point in points], marker,
                  color=colour, markersize=4, markerfacecolor="none")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time, ms")
    axes.legend(loc="upper left", fontsize=7)


def main():
    parser = style.arguments(__doc__, "fsmoe_fig5.py --records results/microbench-testbed-b.jsonl")
    parser.add_argument("--records", action="append", default=[], metavar="FILE",
                        help="of `moetune microbench`; may be given once a testbed; default: the printed lines alone")
    options = parser.parse_args()
    measured = measured_by_cluster(options.records)
    clusters = ("testbed-a", "testbed-b")
    if unknown := sorted(set(measured) - set(clusters)):
        raise BadInput(f"--records: found cluster {unknown[0]}, expected one of: {', '.join(clusters)}")
    figure, panels = plt.subplots(2, 2, figsize=(10, 7))
    for row, cluster in enumerate(clusters):
        lines = lines_of(read_profile(cluster), cluster).values()
        series = measured[cluster][0] if cluster in measured else {}
        for axes, panel, most, unit in zip(panels[row], (1, 0), (MOST_FLOPS, MOST_BYTES), (GFLOP, MIB)):
            axes.set_title(f"{cluster}: {('collectives', 'GEMM, float32')[panel]}")
            draw_panel(axes, largest([line for line in lines if line.panel == panel]), series, most, unit)
            axes.set_xlabel("volume, MiB" if panel == 0 else "work, GFLOP")
    missing = [cluster for cluster in clusters if cluster not in measured]
    caption = "Lines: the paper's fits as configs/clusters/ has them (their files say which unit each was read in)."
    caption += "".join(f" Markers on {name}: {how} by moetune." for name, (_, how, _) in measured.items())
    if missing:
        caption += f" No markers on {' and '.join(missing)}: no records given, and the paper prints no points."
    style.save(figure, options, "fsmoe_fig5", "FSMoE Fig. 5: performance models", caption,
               "; ".join(["FSMoE (ASPLOS'25), Fig. 5"] + [source for _, _, source in measured.values()]))


if __name__ == "__main__":
    style.run(main)
