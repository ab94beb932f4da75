#!/usr/bin/env python3
"""FSMoE Fig. 8: mean speedups on testbed A with pipeline parallelism (PP = 2, GPipe)."""
import papers
import style
from style import plt

TABLE = "fsmoe-fig8"


def name_of(figure):
    label = figure.labels
    more = [f"{name} {value}" for name, value in label.items()
            if name not in ("schedule", "over", "stat", "statistic", "figure", "axis", "value")]
    return ", ".join([f"{label.get('schedule', 'fsmoe')} over {label['over']}"] + more)


def main():
    options = papers.arguments(__doc__, "fsmoe_fig8.py results/reproduce-fsmoe-fig8.jsonl", TABLE).parse_args()
    pages = papers.over_baselines(papers.recorded(options.records, TABLE)) if options.records else papers.printed(
        "fsmoe-figures", lambda row: row["figure"] == "fig8", ("schedule", "over", "stat"), "speedup")
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.34 * len(pages.figures)))
    papers.draw_rows(axes, pages.figures, name_of, pages.computed)
    if not pages.computed:
        papers.say_no_records(axes, f"moetune reproduce {TABLE} --out FILE")
    axes.set_xlabel("mean speedup of a training step, x")
    papers.legend_above(axes)
    caption = ("Testbed A, two pipeline stages with GPipe, mean over models; the values that the paper's text states. "
               "What sending between stages costs is not printed. " + pages.missing())
    style.save(figure, options, "fsmoe_fig8", "FSMoE Fig. 8: speedups with pipeline parallelism", caption, pages.source)


if __name__ == "__main__":
    style.run(main)
