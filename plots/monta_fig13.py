#!/usr/bin/env python3
"""MoNTA Fig. 13: efficiency of AlltoAll and AllGather by volume."""
import papers
import style
from style import plt

TABLE, VOLUME = "monta-fig13", "million bytes"


def printed():
    """Returns the printed points; those without a printed volume cannot be drawn by volume."""
    pages = papers.printed("monta-fig13", lambda row: row["volume_m"] != "0", ("primitive", "volume_m"), "efficiency",
                           "efficiency")
    for figure in pages.figures:
        figure.labels[VOLUME] = figure.labels.pop("volume_m")
    return pages


def main():
    options = papers.arguments(__doc__, "monta_fig13.py results/reproduce-monta-fig13.jsonl", TABLE).parse_args()
    pages = papers.recorded(options.records, TABLE) if options.records else printed()
    figure, axes = plt.subplots(figsize=(7.5, 4.4))
    papers.draw_lines(axes, pages.figures, lambda f: papers.number_in(f.labels[VOLUME]),
                      lambda f: f.labels["primitive"], pages.computed)
    volumes = sorted({papers.number_in(f.labels[VOLUME]) for f in pages.figures})
    axes.set_xscale("log", base=2)
    axes.set_xticks(volumes, [f"{v:g}" for v in volumes])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.set_xlabel("volume, 10^6 bytes")
    axes.set_ylabel("efficiency: share of the theoretical bandwidth")
    axes.legend(loc="lower right", fontsize=8)
    more = ("ours: straight lines in time through two of each, the 256K sequence's volume for the points printed "
            "without one. ") if pages.computed else "two more are printed without their volume: 0.741 and 0.803. "
    caption = ("16 A800 in 2 nodes: 25 GB/s between nodes, 200 GB/s inside one. Of the paper's curves the points "
               f"that its text and Table 8 print; {more}{pages.missing()}")
    style.save(figure, options, "monta_fig13", "MoNTA Fig. 13: efficiency by volume", caption, pages.source)


if __name__ == "__main__":
    style.run(main)
