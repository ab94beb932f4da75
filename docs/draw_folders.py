"""usage: draw_folders.py [--write]

docs/folders.svg: the folders of the sources, which of them includes which, and the data flow through them. Folders and
their order come from tests/rules/source_rules.py, their purpose from docs/architecture.md, the arrows from the sources'
includes (an arrow that follows from others is left out). Without --write, checks the file and exits with 1 if it is out
of date."""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/rules"))
import source_rules  # noqa: E402 (found beside the rules alone)
from pictures import text, write_or_check  # noqa: E402

PICTURE = ROOT / "docs" / "folders.svg"
RUNS_LAYERS_FROM = "moe/device"  # what includes it, also by other headers, needs LibTorch
BOX, GAP, LEVEL, WIDTH = (150, 46), 16, 84, 1460
PLANS, RUNS, LINE = "#e3ecf7", "#f8e6d3", "#8a94a3"

# The data flow: column, row, what happens, the file to read. The arrows are between the numbers of these steps.
STEPS = [(0, 1, "a layer, its groups", "moe/shape/shape.h"),
       (2, 0, "a cluster's profile", "moe/prices/profile.h"),
       (1, 1, "a schedule orders tasks", "moe/schedule/fsmoe.cpp"),
       (2, 1, "a plan, checked", "moe/plan/detail/plan_checks.h"),
       (3, 1, "replayed, bounded", "moe/simulator/simulator.h"),
       (3, 0, "tasks are priced", "moe/prices/pricer.h"),
       (4, 1, "degrees, splits searched", "moe/search/layer_search.h"),
       (2, 2, "tasks become closures", "moe/layer/binding.h"),
       (2, 3, "run on lanes' streams", "moe/exec/executor.h"),
       (3, 3, "verified, then timed", "moe/measure/layers/layer_bench.h"),
       (4, 3, "records", "moe/record/record.h"),
       (4, 2, "timelines", "moe/formats/chrome_trace.h")]
ARROWS = [(0, 2), (2, 3), (3, 4), (1, 5), (5, 4), (4, 6), (3, 7), (7, 8), (8, 9), (9, 10), (9, 11), (4, 11)]
STEP_BOX = (206, 46)


def folders():
    """The folders, the lowest first."""
    return [name for level in source_rules.LEVELS[:-1] for name in level if (ROOT / name).is_dir()]


def folder_of(path, all_folders):
    return max((folder for folder in all_folders if path.startswith(folder + "/")), key=len, default=None)


def includes(all_folders):
    """Folder -> the folders that its files include."""
    found = {folder: set() for folder in all_folders}
    for folder in all_folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                own = folder_of(path.relative_to(ROOT).as_posix(), all_folders)
                included = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
                found[own] |= {folder_of(name, all_folders) for name in included} - {own, None}
    return found


class Graph:
    def __init__(self):
        self.folders = folders()
        self.direct = includes(self.folders)

    @functools.cache
    def reached(self, folder):
        return set().union(*({other} | self.reached(other) for other in self.direct[folder]))

    def needed(self, folder):
        """What a folder includes and would not have by what else it includes."""
        return {other for other in self.direct[folder]
                if not any(other in self.reached(between) for between in self.direct[folder])}

    @functools.cache
    def level(self, folder):
        return 1 + max((self.level(other) for other in self.direct[folder]), default=-1)

    def runs_layers(self, folder):
        return folder == RUNS_LAYERS_FROM or RUNS_LAYERS_FROM in self.reached(folder)


def purposes():
    """Folder -> what docs/architecture.md says that it is for, in few words."""
    page = (ROOT / "docs/architecture.md").read_text()
    return dict(re.findall(r"^\| `([\w/]+)` \| ([^|]+?) \|", page, re.MULTILINE))


def box(x, y, size, fill, title, below):
    width, height = size
    return [f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{LINE}"/>',
            text(x + width / 2, y + 19, title, 13, bold=True), text(x + width / 2, y + 36, below, 10.5)]


def arrow(x1, y1, x2, y2, bend=(0, 0)):
    dx, dy = bend
    return (f'<path d="M{x1:g},{y1:g} C{x1 + dx:g},{y1 + dy:g} {x2 - dx:g},{y2 - dy:g} {x2:g},{y2:g}" fill="none" '
            f'stroke="{LINE}" stroke-width="1.3" marker-end="url(#tip)"/>')


def around(x1, y1, x2, y2):
    """An arrow to a folder some levels below: beside the boxes in between."""
    beside = x1 + (BOX[0] / 2 + 1.5 * GAP) * (-1 if x2 < x1 else 1)
    return (f'<path d="M{x1:g},{y1:g} C{x1:g},{y1 + 28:g} {beside:g},{y1 + 2:g} {beside:g},{y1 + 40:g} V{y2 - 40:g} '
            f'C{beside:g},{y2 - 2:g} {x2:g},{y2 - 28:g} {x2:g},{y2:g}" fill="none" stroke="{LINE}" '
            'stroke-width="1.3" marker-end="url(#tip)"/>')


def draw_folders(graph, top):
    """Draws the folders: the lowest at the bottom; of one level those that plan on the left."""
    levels = {}
    for folder in graph.folders:
        levels.setdefault(graph.level(folder), []).append(folder)
    at = {}
    for level, row in levels.items():
        row.sort(key=lambda folder: (graph.runs_layers(folder), graph.folders.index(folder)))
        left = (WIDTH - len(row) * BOX[0] - (len(row) - 1) * 3 * GAP) / 2
        for i, folder in enumerate(row):
            at[folder] = (left + i * (BOX[0] + 3 * GAP), top + (max(levels) - level) * LEVEL)
    about, lines, boxes = purposes(), [], []
    if missing := at.keys() - about.keys():
        sys.exit(f"docs/architecture.md: its table of folders has none of {', '.join(sorted(missing))}")
    for folder, (x, y) in at.items():
        for other in sorted(graph.needed(folder)):
            to_x, to_y = at[other]
            ends = x + BOX[0] / 2, y + BOX[1], to_x + BOX[0] / 2, to_y - 3
            next_below = graph.level(folder) == graph.level(other) + 1
            lines.append(arrow(*ends, bend=(0, 26)) if next_below else around(*ends))
        boxes += box(x, y, BOX, RUNS if graph.runs_layers(folder) else PLANS, folder, about[folder])
    return lines + boxes, top + (max(levels) + 1) * LEVEL


def draw_flow(graph, top):
    def corner(step):
        column, row = STEPS[step][:2]
        return 20 + column * (STEP_BOX[0] + 28), top + row * (STEP_BOX[1] + 30)

    lines, boxes = [], []
    for one, other in ARROWS:
        (x1, y1), (x2, y2) = corner(one), corner(other)
        if x1 == x2:
            down = y2 > y1
            lines.append(arrow(x1 + STEP_BOX[0] / 2, y1 + (STEP_BOX[1] if down else 0), x2 + STEP_BOX[0] / 2,
                               y2 - 3 if down else y2 + STEP_BOX[1] + 3))
        else:
            lines.append(arrow(x1 + STEP_BOX[0], y1 + STEP_BOX[1] / 2, x2 - 3, y2 + STEP_BOX[1] / 2, bend=(14, 0)))
    (x1, y1), (x2, _) = corner(6), corner(2)  # what is found is planned again
    lines.append(f'<path d="M{x1 + STEP_BOX[0] / 2:g},{y1:g} v-14 H{x2 + STEP_BOX[0] / 2:g} v11" fill="none" '
                 f'stroke="{LINE}" stroke-width="1.3" stroke-dasharray="4 3" marker-end="url(#tip)"/>')
    for step, (_, _, title, path) in enumerate(STEPS):
        folder = folder_of(path, graph.folders)
        if not (ROOT / path).is_file():
            sys.exit(f"docs/draw_folders.py: the data flow leads to {path}, which is not there")
        boxes += box(*corner(step), STEP_BOX, RUNS if graph.runs_layers(folder) else PLANS, title, path)
    return lines + boxes, top + 4 * (STEP_BOX[1] + 30)


def picture():
    graph = Graph()
    folders_drawn, below = draw_folders(graph, 50)
    flow_drawn, end = draw_flow(graph, below + 60)
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{end}" viewBox="0 0 {WIDTH} {end}" '
            'font-family="Helvetica, Arial, sans-serif">',
            '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="5" refY="3" orient="auto">'
            f'<path d="M0,0 L6,3 L0,6 z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{end}" fill="white"/>',
            text(WIDTH / 2, 26, "Arrows lead to the folders that a folder includes. Blue plans, orange needs LibTorch.",
                 14),
            text(WIDTH / 2, below + 16, "Data flow", 14)]
    return "\n".join(head + folders_drawn + flow_drawn + ["</svg>"]) + "\n"


if __name__ == "__main__":
    write_or_check(PICTURE, picture(), "docs/draw_folders.py")
