"""Tables and timelines as HTML, for notebooks."""
from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, List, Sequence, Tuple

if TYPE_CHECKING:
    from moetune.plan import Task

MOST_ROWS = 200
MOST_TASKS = 5000  # most tasks that a browser can draw at once
COLOURS = ("#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac",
           "#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#a6761d")
LANE_HEIGHT, MARGIN, LEAST_WIDTH, MOST_WIDTH = 22, 120, 900, 20000


def caption(what: str, where: str) -> str:
    return f"<p><b>{escape(what)}</b>, {escape(where)}</p>"


def note(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    def cells(tag: str, values: Sequence[Any]) -> str:
        return "".join(f"<{tag}>{escape('' if value is None else str(value))}</{tag}>" for value in values)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    rest = note(f"and {len(rows) - MOST_ROWS} more") if len(rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>{rest}"


def timelines(plans: Sequence[Tuple[str, List[Task]]]) -> str:
    """Returns one picture for each plan, all on one time scale."""
    end = max((task.end_s for _, tasks in plans for task in tasks), default=0.0)
    if end <= 0:
        return ""
    names = list(dict.fromkeys(task.name for _, tasks in plans for task in tasks))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    legend = " ".join(f'<span style="color:{colours[name]}">&#9632;</span> {escape(name)}' for name in names)
    return "".join(_timeline(name, tasks, end, colours) for name, tasks in plans) + f"<p>{legend}</p>"


def _timeline(title: str, tasks: List[Task], end: float, colours: dict[str, str]) -> str:
    shown = sorted(tasks, key=lambda task: task.start_s)[:MOST_TASKS]
    lanes = sorted({(task.stage, task.lane) for task in tasks})
    several_stages = len({stage for stage, _ in lanes}) > 1
    width = min(max(LEAST_WIDTH, 12 * len(shown) // len(lanes)), MOST_WIDTH)  # long plans scroll
    scale = (width - MARGIN) / end
    parts = []
    for row, (stage, lane) in enumerate(lanes):
        label = f"stage {stage} {lane}" if several_stages else lane
        parts.append(f'<text x="0" y="{row * LANE_HEIGHT + 15}">{escape(label)}</text>')
    for task in shown:
        x, length = MARGIN + task.start_s * scale, (task.end_s - task.start_s) * scale
        what = (f"{task.name} {task.phase}, layer {task.layer}, micro-batch {task.micro_batch}, chunk {task.chunk}: "
                f"{1e3 * task.start_s:.3f} to {1e3 * task.end_s:.3f} ms")
        parts.append(f'<rect x="{x:.2f}" y="{lanes.index((task.stage, task.lane)) * LANE_HEIGHT + 2}" '
                     f'width="{max(length, 0.2):.2f}" height="{LANE_HEIGHT - 4}" fill="{colours[task.name]}">'
                     f"<title>{escape(what)}</title></rect>")
    most = f", the first {MOST_TASKS} of {len(tasks)} tasks" if len(tasks) > MOST_TASKS else ""
    return (note(f"{title}, {1e3 * max(task.end_s for task in tasks):.3f} ms{most}") +
            f'<div style="overflow-x:auto"><svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{len(lanes) * LANE_HEIGHT}" font-size="12" font-family="sans-serif">{"".join(parts)}</svg></div>')
