#!/usr/bin/env python3
"""Parm Fig. 6: time of the MP AllGather by volume on both testbeds, as printed, and what was measured."""
import style
from fits import MIB, emulation_of, lines_of, series_of
from records import Records, one_value, read_printed, read_profile
from style import plt

ELEMENT_BYTES, MOST_BYTES = 4, 24 * 2**20
GPUS = {"testbed-a": "8 GPUs of one node", "testbed-b": "32 GPUs"}


def draw_printed(axes, rows):
    for i, row in enumerate(rows):
        alpha, beta = float(row["alpha_s"]), float(row["beta_s_per_element"]) / ELEMENT_BYTES
        axes.plot([0, MOST_BYTES / MIB], [alpha * 1e3, (alpha + beta * MOST_BYTES) * 1e3], color=style.PAPER,
                  linestyle=("-", "--")[i % 2], linewidth=1.5,
                  label=f"Parm {row['testbed']} ({GPUS.get(row['testbed'], '?')}): {alpha * 1e6:.0f} us + "
                        f"{beta * MIB * 1e6:.0f} us a MiB")


def draw_measured(axes, cases, profile):
    lines = lines_of(read_profile(profile), profile) if profile else {}
    for i, (name, (_, points)) in enumerate(
            (name, found) for name, found in series_of(cases).items() if name.startswith("allgather ")):
        colour = style.OURS[i % len(style.OURS)]
        axes.plot([point.size / MIB for point in points], [point.seconds * 1e3 for point in points],
                  style.MARKERS[i % len(style.MARKERS)], color=colour, markerfacecolor="none", markersize=4,
                  label=name)
        if name in lines:
            axes.plot([0, MOST_BYTES / MIB], [lines[name].alpha * 1e3, lines[name].seconds(MOST_BYTES) * 1e3],
                      color=colour, linewidth=1)


def main():
    parser = style.arguments(__doc__, "parm_fig6.py results/microbench-testbed-b.jsonl")
    parser.add_argument("records", nargs="?", help="FILE of `moetune microbench`; default: the printed lines alone")
    parser.add_argument("--profile", help="profile FILE fitted from the records: its lines too")
    options = parser.parse_args()
    rows, _ = read_printed("parm-coefficients")
    panels = 1 + bool(options.records)
    figure, ((printed, *measured),) = plt.subplots(1, panels, figsize=(3 + 5 * panels, 4.6), squeeze=False, sharey=True)
    printed.set_title("Parm's testbeds, as printed")
    draw_printed(printed, rows)
    caption = ("Grey: alpha + n beta as printed, per float32 element, read as 4 bytes. Of the AlltoAll over EP and ESP "
               "and of the overlapped pair no coefficient is printed, nor any point of the figure. ")
    source = "configs/papers/parm-coefficients.csv: Parm (INFOCOM'24), section VI-B"
    if options.records:
        records = Records(options.records)
        cases = records.of("op/", "moetune microbench")
        cluster = one_value(cases, "cluster", options.records)
        measured[0].set_title(f"{cluster} of moetune, {emulation_of(cases)}")
        draw_measured(measured[0], cases, options.profile)
        caption += f"On the right moetune's microbench of {cluster}, another cluster than Parm's."
        source += f"; {records.source()}"
    for axes in (printed, *measured):
        axes.set_xlim(0, 1.03 * MOST_BYTES / MIB)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("gathered volume, MiB")
        axes.legend(loc="upper left")
    printed.set_ylabel("time, ms")
    style.save(figure, options, "parm_fig6", "Parm Fig. 6: time of the MP AllGather", caption, source)


if __name__ == "__main__":
    style.run(main)
