#!/usr/bin/env python3
"""Parm Fig. 7: speedups of Parm over DeepSpeed-MoE on 32 GPUs with N_MP = N_ESP = 4, layer by layer."""
import statistics

import papers
import style
from records import BadInput, Records, one_value, read_printed
from style import plt

BASELINE, PARM = "ds-moe-replicated", "parm"
RANKS, MP, ESP = 32, 4, 4
OVER, TABLE = 4.0, "parm-table4"


def printed():
    """Returns the mean, and the share of cases above 4x."""
    rows, comment = read_printed("parm-fig7")
    values = {row["what"]: float(row["value"]) for row in rows}
    return values["mean"], values["share-over-4"], comment


def ratios_of(cases, path):
    totals = {BASELINE: {}, PARM: {}}
    for case in cases:
        p = case["parameters"]
        here = (p.get("nodes", 0) * p.get("ranks_per_node", 0), p.get("mp"), p.get("esp")) == (RANKS, MP, ESP)
        if case["status"] == "ok" and here and case.get("schedule") in totals:
            totals[case["schedule"]][case.text("layer")] = case.number("prediction", "total_s")
    ratios = [seconds / totals[PARM][layer] for layer, seconds in totals[BASELINE].items() if layer in totals[PARM]]
    if not ratios:
        raise BadInput(f"{path}: found no layer of {RANKS} ranks with mp {MP} and esp {ESP} planned under both "
                       f"{BASELINE} and {PARM}, expected some (grid parm-b)")
    return ratios


def draw_ours(axes, ratios, printed_share):
    step = 0.25
    first, last = int(min(ratios) / step) * step, (int(max(ratios) / step) + 1) * step
    edges = [first + i * step for i in range(round((last - first) / step) + 1)]
    axes.hist(ratios, bins=edges, weights=[100 / len(ratios)] * len(ratios), color="#a9c9e8", edgecolor="white",
              label=f"ours: {len(ratios)} layers")
    mean = statistics.fmean(ratios)
    axes.axvline(mean, color=style.OURS[0], linewidth=1.5, label=f"ours: mean {mean:.2f}x")
    axes.set_ylim(0, 1.3 * axes.dataLim.y1)
    over = 100 * sum(ratio > OVER for ratio in ratios) / len(ratios)
    axes.text(0.01, 0.97, f"above {OVER:g}x: ours {over:.0f} %, paper {100 * printed_share:.0f} %",
              transform=axes.transAxes, va="top", fontsize=9)


def draw_reproduced(axes, path):
    """Draws the statistics of `moetune reproduce` without layers; returns the caption's text on them."""
    pages = papers.recorded(path, TABLE)
    ours = {figure.labels["what"]: figure.ours for figure in pages.figures if "what" in figure.labels}
    if ours.get("mean") is None:
        papers.say_absent(axes, [""])
        return f"Ours: not computable from print. {pages.missing()}", pages.source
    axes.axvline(ours["mean"], color=style.OURS[0], linewidth=1.5, label=f"ours: mean {ours['mean']:.2f}x")
    axes.text(0.02, 0.86, f"above {OVER:g}x: {100 * ours['share-over-4']:.0f} % of layers (ours)",
              transform=axes.transAxes, color=style.OURS[0])
    return f"Ours: mean over the grid's layers. {pages.missing()}", pages.source


def main():
    parser = style.arguments(__doc__, "parm_fig7.py results/plan-testbed-b.jsonl")
    parser.add_argument("records", nargs="?",
                        help="FILE of `moetune tune --no-verify --grid parm-b --schedule ds-moe-replicated,parm`, or "
                             "of `moetune reproduce parm-table4`; default: what is printed alone")
    options = parser.parse_args()
    figure, axes = plt.subplots(figsize=(8, 4.2))
    mean, share, comment = printed()
    axes.axvline(mean, color=style.PAPER, linewidth=2, linestyle="--", label=f"paper: mean {mean}x")
    caption = "Of the paper's histogram its text prints the mean and the share of cases above 4x. "
    source = "configs/papers/parm-fig7.csv: " + comment.split(":")[0]
    records = Records(options.records) if options.records else None
    if records and not any(case["key"].startswith("reproduce/") for case in records.cases):
        cases = records.of("plan/", "moetune tune --no-verify")
        draw_ours(axes, ratios_of(cases, options.records), share)
        axes.set_ylabel("share of layers, %")
        caption += (f"Ours: exact replay on the coefficients of {one_value(cases, 'cluster', options.records)}, as "
                    "Parm's AlltoAll is not printed; forward + backward with attention and gradients, which the paper "
                    "leaves out; k, E and the experts' kind are assumed (configs/grids/parm-b.toml).")
        source += f"; {records.source()}"
    else:
        axes.text(0.02, 0.93, f"above {OVER:g}x: {100 * share:.0f} % of cases (paper)", transform=axes.transAxes)
        axes.set_yticks([])
        axes.set_xlim(0, 8)
        said = "Printed numbers alone: no records were given, so nothing of ours is beside them.", None
        if not records:
            papers.say_no_records(axes, f"moetune reproduce {TABLE} --out FILE")
        else:
            said = draw_reproduced(axes, options.records)
        caption, source = caption + said[0], "; ".join(filter(None, (source, said[1])))
    axes.set_xlabel("speedup of Parm over DeepSpeed-MoE, x")
    axes.legend(loc="upper right", frameon=True, framealpha=1, edgecolor="none")
    style.save(figure, options, "parm_fig7", "Parm Fig. 7: speedups on 32 GPUs, N_MP = N_ESP = 4", caption, source)


if __name__ == "__main__":
    style.run(main)
