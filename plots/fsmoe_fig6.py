#!/usr/bin/env python3
"""FSMoE Fig. 6: speedups on GPT2-XL, Mixtral-7B and Mixtral-22B, as far as the text states them."""
import papers
import style
from style import plt

TABLE = "fsmoe-fig6"


def name_of(figure):
    label = figure.labels
    return f"{label.get('schedule', 'fsmoe')} over {label['over']}, {label.get('statistic', label.get('stat', ''))}"


def main():
    options = papers.arguments(__doc__, "fsmoe_fig6.py results/reproduce-fsmoe-fig6.jsonl", TABLE).parse_args()
    pages = papers.over_baselines(papers.recorded(options.records, TABLE)) if options.records else papers.printed(
        "fsmoe-figures", lambda row: row["figure"] == "fig6", ("schedule", "over", "stat"), "speedup")
    bars = len(pages.figures)
    figure, axes = plt.subplots(figsize=(9, 1.4 + (0.34 if pages.computed else 0.3) * bars))
    papers.draw_rows(axes, pages.figures, name_of, pages.computed)
    axes.set_xlabel("speedup of a training step, x")
    papers.legend_above(axes)
    caption = ("Least, most and mean over models (and testbeds). The paper's bars by model are not printed as numbers: "
               "these are the values of its text. " + pages.missing())
    style.save(figure, options, "fsmoe_fig6", "FSMoE Fig. 6: speedups on whole models", caption, pages.source)


if __name__ == "__main__":
    style.run(main)
