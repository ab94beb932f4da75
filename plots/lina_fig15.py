#!/usr/bin/env python3
"""Lina Fig. 15: mean speedups of training over DeepSpeed-MoE, by experts."""
import papers
import style
from style import plt

TABLE = "lina-training"
METRICS = {"step_time": "step", "forward_moe_layer": "MoE layer, forward", "backward_moe_layer": "MoE layer, backward",
           "alltoall_backward": "AlltoAll in the backward", "priority_and_partition": "step: priority and partition",
           "priority_only_mean": "step: priority alone"}


def name_of(figure):
    label = dict(figure.labels)
    metric = label.pop("metric", "step")
    experts = label.pop("experts", "0")
    rest = "".join(f", {name} {value}" for name, value in label.items())
    cases = "all cases" if experts in ("0", "all") else f"{experts} experts"
    return f"{METRICS.get(metric, metric)}, {cases}{rest}"


def main():
    options = papers.arguments(__doc__, "lina_fig15.py results/reproduce-lina-training.jsonl", TABLE).parse_args()
    pages = papers.recorded(options.records, TABLE) if options.records else papers.printed(
        "lina-training", lambda row: True, ("metric", "experts"), "speedup")
    comparisons = {}  # comparisons with speedups, and their rows that have no number
    for one in pages.figures:
        comparisons.setdefault(one.comparison, []).append(one)
    comparisons = {caption: figures for caption, figures in comparisons.items()
                   if any(f.quantity == "speedup" and (f.paper, f.ours) != (None, None) for f in figures)}
    rows = [len(figures) for figures in comparisons.values()]
    figure, panels = plt.subplots(len(rows), 1, squeeze=False, gridspec_kw={"height_ratios": rows},
                                  figsize=(9, 0.8 + 0.7 * len(rows) + (0.4 if pages.computed else 0.26) * sum(rows)))
    for (axes,), (caption, figures) in zip(panels, comparisons.items()):
        papers.draw_rows(axes, figures, name_of, pages.computed)
        if not pages.computed:
            papers.say_no_records(axes, f"moetune reproduce {TABLE} --out FILE")
        axes.axvline(1, color="black", linewidth=0.8, linestyle="--")
        axes.set_xlabel("mean speedup over DeepSpeed-MoE, x")
        axes.set_title(caption, pad=20)
        papers.legend_above(axes)
    caption = ("16 A100-40GB, 100 Gb/s InfiniBand, as many experts as GPUs, partitions of 30 MB; means that section "
               "7.2 states (the bars by model are not printed). " + pages.missing())
    style.save(figure, options, "lina_fig15", "Lina Fig. 15: speedups of training", caption, pages.source)


if __name__ == "__main__":
    style.run(main)
