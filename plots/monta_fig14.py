#!/usr/bin/env python3
"""MoNTA Fig. 14: time of the AlltoAll over the baseline's by sequence length, and what the paper chose."""
import textwrap

import papers
import style
from records import read_printed
from style import plt

TABLE, TIMES = "monta-fig14", "time over the baseline's"


def printed():
    pages = papers.printed("monta-text", lambda row: row["what"].startswith("fig14-"), ("what", "seq"), "value",
                           "share")
    for figure in pages.figures:
        figure.labels = {"strategy": figure.labels["what"].removeprefix("fig14-"), "tokens": figure.labels["seq"]}
    return pages


def draw_choices(axes):
    """Draws the paper's choices along the upper edge."""
    rows, _ = read_printed("monta-choices")
    for row in rows:
        axes.text(float(row["seq"]), 0.97, row["choice"].upper(), transform=axes.get_xaxis_transform(), ha="center",
                  va="top", fontsize=8, fontweight="bold", color=style.PAPER)
    sequences = [float(row["seq"]) for row in rows]
    axes.set_xticks(sequences, [f"{seq:.0f}K" for seq in sequences])
    axes.set_xlim(0.8 * sequences[0], 1.25 * sequences[-1])
    axes.text(0.01, 1.01, "chosen in the paper", transform=axes.transAxes, fontsize=7, color=style.PAPER, va="bottom")


def main():
    options = papers.arguments(__doc__, "monta_fig14.py results/reproduce-monta-fig14.jsonl", TABLE).parse_args()
    pages = papers.recorded(options.records, TABLE) if options.records else printed()
    times = [f for f in pages.figures if "tokens" in f.labels]
    step = [f for f in pages.figures if "what" in f.labels]
    figure, panels = plt.subplots(1, 1 + bool(step), figsize=(7 + 4 * bool(step), 4.2), squeeze=False)
    left = panels[0][0]
    papers.draw_lines(left, times, lambda f: papers.number_in(f.labels["tokens"]), lambda f: f.labels["strategy"],
                      pages.computed)
    left.set_xscale("log", base=2)
    draw_choices(left)
    left.minorticks_off()
    left.set_ylim(0, max(0.5, left.get_ylim()[1]))
    left.set_xlabel("tokens of a sequence")
    left.set_ylabel("AlltoAll's time over the baseline's")
    left.legend(loc="lower left")
    if step:
        right = panels[0][1]
        papers.draw_rows(right, step, lambda f: textwrap.fill(f.labels["what"], 16), pages.computed)
        right.set_title("8K: from a step's shares")
        right.set_xlabel("share")
        papers.legend_above(right)
    lengths = len({f.labels["tokens"] for f in times})
    caption = ("O1: one piece; O2 and O3: 4 chunks. Of the figure the text prints two ratios and the choices. "
               + (f"The records have ours at {lengths} lengths. " if pages.computed else "") + pages.missing())
    style.save(figure, options, "monta_fig14", "MoNTA Fig. 14: the AlltoAll by sequence length", caption, pages.source)


if __name__ == "__main__":
    style.run(main)
