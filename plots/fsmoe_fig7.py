#!/usr/bin/env python3
"""FSMoE Fig. 7: mean speedups on testbed A by sequence length and by number of GPUs."""
import papers
import style
from style import plt

TABLE = "fsmoe-fig7"
AXES = {"L": "tokens of a sample, L", "P": "GPUs, P"}


def draw_panel(axes, figures, axis, over, computed):
    def series(figure):
        return f"{figure.labels['models']} models" if "models" in figure.labels else ""
    papers.draw_lines(axes, figures, lambda figure: papers.number_in(figure.labels["value"]),
                      series if computed else lambda figure: "", computed)
    axes.set_title(f"over {over}, by {axis}")
    axes.set_xlabel(AXES.get(axis, axis))
    axes.set_xticks(sorted({papers.number_in(figure.labels["value"]) for figure in figures}))
    axes.set_ylabel(f"speedup of fsmoe over {over}, x")


def main():
    options = papers.arguments(__doc__, "fsmoe_fig7.py results/reproduce-fsmoe-fig7.jsonl", TABLE).parse_args()
    pages = papers.over_baselines(papers.recorded(options.records, TABLE)) if options.records else papers.printed(
        "fsmoe-figures", lambda row: row["figure"] == "fig7", ("axis", "value", "over"), "speedup")
    by_axis = list(dict.fromkeys(figure.labels["axis"] for figure in pages.figures))
    by_over = list(dict.fromkeys(figure.labels["over"] for figure in pages.figures))
    figure, panels = plt.subplots(len(by_over), len(by_axis), figsize=(4.8 * len(by_axis), 3.1 * len(by_over)),
                                  squeeze=False)
    for row, over in zip(panels, by_over):
        for axes, axis in zip(row, by_axis):
            here = [f for f in pages.figures if (f.labels["axis"], f.labels["over"]) == (axis, over)]
            draw_panel(axes, here, axis, over, pages.computed)
    caption = "fsmoe on testbed A, mean over models; of the paper the values of its text. "
    if pages.computed:
        caption += ("2 models: GPT2-XL and Mixtral-7B, 3: Mixtral-22B too; the paper does not say which its means are "
                    "over. ")
    caption += pages.missing()
    style.save(figure, options, "fsmoe_fig7", "FSMoE Fig. 7: speedups by sequence length and GPUs", caption,
               pages.source)


if __name__ == "__main__":
    style.run(main)
