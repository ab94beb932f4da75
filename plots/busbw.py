#!/usr/bin/env python3
"""Bus bandwidth of collectives by size, as nccl-tests defines it: bytes on a link over the time."""
import style
from fits import MIB, emulation_of, series_of
from records import BadInput, Records, one_value
from style import plt

# A link carries PASSES (n - 1) / n of a collective's volume. docs/formats.md defines volumes as nccl-tests does.
PASSES = {"alltoall": 1, "allgather": 1, "reducescatter": 1, "allreduce": 2}


def factor(op, ranks):
    return PASSES[op] * (ranks - 1) / ranks


def bandwidths(series):
    """Returns name -> [(bytes, median GB/s, smallest, largest)] for collectives, except between two ranks."""
    found = {}
    for name, (panel, points) in series.items():
        op, _, ranks, *_ = name.split() if panel == 0 else ("", "", "0")
        if op in PASSES:
            share = factor(op, int(ranks))
            found[name] = [(p.size, *(share * p.size / s * 1e-9 for s in (p.seconds, p.most, p.least))) for p in points]
    return found


def draw(axes, found):
    for i, (name, points) in enumerate(found.items()):
        colour, marker = style.OURS[i % len(style.OURS)], style.MARKERS[i % len(style.MARKERS)]
        rates = [rate for _, rate, _, _ in points]
        spread = [[rate - low for _, rate, low, _ in points], [high - rate for _, rate, _, high in points]]
        axes.errorbar([size / MIB for size, *_ in points], rates, yerr=spread, fmt=marker + "-", color=colour,
                      markersize=4, linewidth=1.2, elinewidth=0.7, capsize=1.5,
                      label=f"{name}: at most {max(rates):.3g} GB/s")
    style.logarithmic(axes.xaxis)
    axes.set_ylim(0, 1.15 * max(rate for points in found.values() for _, rate, _, _ in points))
    axes.set_xlabel("volume, MiB")
    axes.set_ylabel("bus bandwidth, GB/s")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "busbw.py results/microbench-testbed-b.jsonl")
    parser.add_argument("records", help="FILE of `moetune microbench` or `moetune tune`")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("op/", "moetune microbench")
    found = bandwidths(series_of(cases))
    if not found:
        raise BadInput(f"{options.records}: op: found none with status ok, expected some of: {', '.join(PASSES)}")
    figure, axes = plt.subplots(figsize=(9.5, 4.6))
    draw(axes, found)
    caption = (f"{one_value(cases, 'cluster', options.records)}, {emulation_of(cases)}; names end with the ranks n of "
               "a group. Bus bandwidth: volume over median time, times 2 (n - 1) / n for an AllReduce and (n - 1) / n "
               "for an AllGather, a ReduceScatter and an AlltoAll. Bars: by the slowest and the fastest sample, which "
               "may go beyond the axis.")
    style.save(figure, options, "busbw", "Bus bandwidth by size", caption, records.source())


if __name__ == "__main__":
    style.run(main)
