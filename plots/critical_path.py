#!/usr/bin/env python3
"""Which kinds of tasks a layer's time consists of: their shares of the critical path under each schedule."""
import style
from records import BadInput, Records
from style import plt
from timelines import lanes_of

IDLE, IDLE_COLOUR = "no task", "#ffffff"
SLACK = 1e-9  # share of the whole time below which differences of starts and ends count as zero
LEAST_LABEL = 2.5  # per cent; smaller shares have no label


def path_of(case):
    """Returns the tasks of the critical path, last first: (kind, seconds). Records have no dependencies, so it goes
    back from the task that ends last to one that ended when it starts, preferably on its own lane. If none ended then,
    it goes to the one that ended last before, and the time between belongs to no task."""
    tasks = [(start, end, lane, task) for lane, found in lanes_of(case).items() for start, end, task in found
             if end > start]
    if not tasks:
        raise BadInput(f"{case.where}: timeline: found no task that takes time, expected at least one")
    last = max(end for _, end, _, _ in tasks)
    same, steps = SLACK * last, []
    here = max(tasks, key=lambda task: task[1])
    while True:
        start, end, lane, task = here
        steps.append((task["kind"], end - start))
        before = [other for other in tasks if other[1] <= start + same and other is not here and other[0] < start]
        if not before:
            break
        latest = max(other[1] for other in before)
        here = max((other for other in before if other[1] >= latest - same), key=lambda other: other[2] == lane)
        if start - latest > same:
            steps.append((IDLE, start - latest))
    if start > same:
        steps.append((IDLE, start))
    return steps


def shares_of(case):
    """Returns seconds by family of tasks, in the order of the families' table."""
    seconds = dict.fromkeys([*style.KIND_FAMILIES, IDLE], 0.0)
    for kind, length in path_of(case):
        seconds[kind if kind == IDLE else style.family_of(kind)] += length
    return {family: length for family, length in seconds.items() if length > 0}


def draw(axes, cases):
    known = {}
    for y, case in enumerate(cases):
        left, seconds = 0.0, shares_of(case)
        total = sum(seconds.values())
        for family, length in seconds.items():
            share, idle = 100 * length / total, family == IDLE
            look = {"facecolor": IDLE_COLOUR} if idle else style.family_style(family)
            known[family] = axes.barh(y, share, left=left, height=0.72, edgecolor="#777777" if idle else "white",
                                      linewidth=0.6, **look)
            if share > LEAST_LABEL:
                axes.text(left + share / 2, y, f"{share:.0f}", ha="center", va="center", fontsize=7,
                          color=style.ink_on(look["facecolor"]),
                          bbox={"facecolor": look["facecolor"], "edgecolor": "none", "pad": 0.8})
            left += share
        axes.text(101, y, f"{total * 1e3:.1f} ms", va="center", fontsize=7.5)
    axes.set_yticks(range(len(cases)), [case["schedule"] for case in cases])
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xlim(0, 109)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("share of the critical path, %")
    known = {family: known[family] for family in (*style.KIND_FAMILIES, IDLE) if family in known}
    axes.legend(known.values(), known, loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "critical_path.py results/layer.jsonl --schedule tutel,fsmoe")
    parser.add_argument("records", help="FILE that `moetune simulate --out FILE` wrote")
    parser.add_argument("--schedule", help="NAME[,NAME]; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases, layer, cluster = records.with_timelines(options.schedule)
    figure, axes = plt.subplots(figsize=(10, 1.8 + 0.34 * max(len(cases), 5)))
    draw(axes, cases)
    caption = (f"{layer} on {cluster}, predicted. The path goes back from the task that ends last to one that ended as "
               "it starts, on any lane, on its own where two did: records have no dependencies. What is not on the "
               "path is hidden under it. On the right its length.")
    style.save(figure, options, "critical_path", "What a layer's time consists of", caption, records.source())


if __name__ == "__main__":
    style.run(main)
