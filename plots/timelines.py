#!/usr/bin/env python3
"""One layer under several schedules: their timelines above each other, on one time axis."""
import style
from records import BadInput, Records
from style import plt

ROW, GAP = 0.27, 0.42  # inches: height of a lane, and space above a schedule
LANES = ("compute", "comm", "inter", "intra", "gradient", "copy", "receive")


def lanes_of(case):
    """Returns the names of the lanes that have tasks, and the tasks of each."""
    lanes = {}
    for task in case["timeline"]:
        try:
            lanes.setdefault(task["lane"], []).append((float(task["start_s"]), float(task["end_s"]), task))
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"{case.where}: timeline: found {str(task)[:60]}, expected a task with lane, start_s and "
                           "end_s") from None
    return dict(sorted(lanes.items(), key=lambda item: LANES.index(item[0]) if item[0] in LANES else len(LANES)))


def label_of(task, width_ms, ms_per_inch):
    """Returns the chunk's number if the bar has room for it."""
    if task.get("chunks", 1) < 2:
        return ""
    text = str(task["chunk"] + 1)
    return text if width_ms / ms_per_inch > 0.075 * len(text) + 0.03 else ""


def draw_lane(axes, y, tasks, ms_per_inch):
    families = set()
    for start, end, task in tasks:
        width = (end - start) * 1e3
        family = style.family_of(task["kind"])
        if width > 0:  # tasks without a cost are invisible
            families.add(family)
        line = 0.4 if width > 0.05 * ms_per_inch else 0  # thin bars have no edges, which would hide their colour
        axes.barh(y, width, left=start * 1e3, height=0.78, edgecolor="white", linewidth=line,
                  **style.family_style(family))
        label = label_of(task, width, ms_per_inch)
        if label:
            axes.text((start + end) * 500, y, label, ha="center", va="center_baseline", fontsize=6.5,
                      color=style.ink_on(style.KIND_FAMILIES[family][0]))
    return families


def title_of(case):
    p, timed = case["prediction"], case.number
    text = f"{case['schedule']}   r_f {case['degree_forward']}, r_b {case['degree_backward']}"
    if "total_s" in p:
        text += f"   {timed('prediction', 'total_s') * 1e3:.1f} ms"
        if case.get("bound_s"):
            text += f", bound {case['bound_s'] * 1e3:.1f} ms"
    return text


def draw(cases):
    rows = sum(len(lanes_of(case)) for case in cases)
    last = max(end for case in cases for tasks in lanes_of(case).values() for _, end, _ in tasks) * 1e3
    height = rows * ROW + len(cases) * GAP + 1.1
    figure, axes = plt.subplots(figsize=(11, height))
    ms_per_inch = last / 9.3
    y, ticks, names, families = 0.0, [], [], set()
    for case in cases:
        y += GAP / ROW
        axes.text(0, y - 0.62, title_of(case), fontsize=8.5, fontweight="bold", va="bottom")
        top = y - 0.5
        for name, tasks in lanes_of(case).items():
            families |= draw_lane(axes, y, tasks, ms_per_inch)
            ticks.append(y)
            names.append(name)
            y += 1
        backward = [task for tasks in lanes_of(case).values() for task in tasks if task[2].get("phase") == "backward"]
        if backward and "forward_s" in case["prediction"]:
            at = case.number("prediction", "forward_s") * 1e3
            axes.plot([at, at], [top, y - 0.5], color="black", linewidth=0.9, linestyle=(0, (2, 2)))
        y -= 0.1
    axes.set_ylim(y - 0.3, GAP / ROW - 1.4)
    axes.set_xlim(0, last * 1.005)
    axes.set_yticks(ticks, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time since the start of the forward, ms")
    shown = [family for family in style.KIND_FAMILIES if family in families]
    handles = [plt.Rectangle((0, 0), 1, 1, edgecolor="white", **style.family_style(family)) for family in shown]
    axes.legend(handles, shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(shown),
                columnspacing=1.2, handlelength=1.2)
    return figure


def main():
    parser = style.arguments(__doc__, "timelines.py results/layer.jsonl --schedule ds-moe,tutel,fsmoe")
    parser.add_argument("records", help="FILE that `moetune simulate --out FILE` wrote")
    parser.add_argument("--schedule", help="NAME[,NAME]; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases, layer, cluster = records.with_timelines(options.schedule)
    caption = (f"Predicted timelines of {layer} on {cluster}, exact replay. Lanes run their tasks in order; numbers "
               "are chunks; the dashed line is the end of the forward. Bound: no degree can be faster.")
    style.save(draw(cases), options, "timelines", "One layer under each schedule", caption, records.source())


if __name__ == "__main__":
    style.run(main)
