"""usage: draw_rooms.py [--write]

docs/rooms.svg: the folders of the sources, which of them includes which, and the way of a plan through them. Folders
and their order are those of tests/rules/source_rules.py, what each is for stands in docs/architecture.md, the arrows
are the sources' own includes (those that follow from others are left out). Without --write it says whether the picture
is of this tree, with exit code 1 where it is not."""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/rules"))
import source_rules  # noqa: E402 (found beside the rules alone)

PICTURE = ROOT / "docs" / "rooms.svg"
RUNS_LAYERS_FROM = "moe/device"  # what includes it, also by other headers, needs LibTorch
BOX, GAP, LEVEL, WIDTH = (150, 46), 16, 84, 1180
PLANS, RUNS, LINE, TEXT = "#e3ecf7", "#f8e6d3", "#8a94a3", "#1d2530"

# A plan's way: column, row, what happens, the file to read. The arrows are between the numbers of these steps.
WAY = [(0, 1, "a layer, its groups", "moe/plan/shape.h"),
       (2, 0, "a cluster's profile", "moe/cost/profile.h"),
       (1, 1, "a schedule orders tasks", "moe/schedule/fsmoe.cpp"),
       (2, 1, "a plan, checked", "moe/plan/plan_checks.h"),
       (3, 1, "replayed, bounded", "moe/cost/simulator.h"),
       (3, 0, "tasks are priced", "moe/cost/pricer.h"),
       (4, 1, "degrees, splits searched", "moe/search/layer_search.h"),
       (2, 2, "tasks become closures", "moe/layer/binding.h"),
       (2, 3, "run on lanes' streams", "moe/exec/executor.h"),
       (3, 3, "proven, then timed", "moe/measure/layers/layer_bench.h"),
       (4, 3, "records", "moe/record/record.h"),
       (4, 2, "timelines", "moe/export/chrome_trace.h")]
ARROWS = [(0, 2), (2, 3), (3, 4), (1, 5), (5, 4), (4, 6), (3, 7), (7, 8), (8, 9), (9, 10), (9, 11), (4, 11)]
WAY_BOX = (206, 46)


def rooms():
    """The rooms, the lowest first."""
    return [name for level in source_rules.LEVELS[:-1] for name in level if (ROOT / name).is_dir()]


def room_of(path, all_rooms):
    return max((room for room in all_rooms if path.startswith(room + "/")), key=len, default=None)


def includes(all_rooms):
    """Room -> the rooms that its files include."""
    found = {room: set() for room in all_rooms}
    for room in all_rooms:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                own = room_of(path.relative_to(ROOT).as_posix(), all_rooms)
                included = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
                found[own] |= {room_of(name, all_rooms) for name in included} - {own, None}
    return found


class Graph:
    def __init__(self):
        self.rooms = rooms()
        self.direct = includes(self.rooms)

    @functools.cache
    def reached(self, room):
        return set().union(*({other} | self.reached(other) for other in self.direct[room]))

    def needed(self, room):
        """What a room includes and would not have by what else it includes."""
        return {other for other in self.direct[room]
                if not any(other in self.reached(between) for between in self.direct[room])}

    @functools.cache
    def level(self, room):
        return 1 + max((self.level(other) for other in self.direct[room]), default=-1)

    def runs_layers(self, room):
        return room == RUNS_LAYERS_FROM or RUNS_LAYERS_FROM in self.reached(room)


def purposes():
    """Room -> what docs/architecture.md says that it is for, in few words."""
    page = (ROOT / "docs/architecture.md").read_text()
    return dict(re.findall(r"^\| `([\w/]+)` \| ([^|]+?) \|", page, re.MULTILINE))


def text(x, y, words, size, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{TEXT}"{weight}>{escaped}</text>'


def box(x, y, size, fill, title, below):
    width, height = size
    return [f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{LINE}"/>',
            text(x + width / 2, y + 19, title, 13, bold=True), text(x + width / 2, y + 36, below, 10.5)]


def arrow(x1, y1, x2, y2, bend=(0, 0)):
    dx, dy = bend
    return (f'<path d="M{x1:g},{y1:g} C{x1 + dx:g},{y1 + dy:g} {x2 - dx:g},{y2 - dy:g} {x2:g},{y2:g}" fill="none" '
            f'stroke="{LINE}" stroke-width="1.3" marker-end="url(#tip)"/>')


def around(x1, y1, x2, y2):
    """An arrow to a room some levels below: beside the boxes in between."""
    beside = x1 + (BOX[0] / 2 + 1.5 * GAP) * (-1 if x2 < x1 else 1)
    return (f'<path d="M{x1:g},{y1:g} C{x1:g},{y1 + 28:g} {beside:g},{y1 + 2:g} {beside:g},{y1 + 40:g} V{y2 - 40:g} '
            f'C{beside:g},{y2 - 2:g} {x2:g},{y2 - 28:g} {x2:g},{y2:g}" fill="none" stroke="{LINE}" '
            'stroke-width="1.3" marker-end="url(#tip)"/>')


def draw_rooms(graph, top):
    """Draws the rooms: the lowest at the bottom; of one level those that plan on the left."""
    levels = {}
    for room in graph.rooms:
        levels.setdefault(graph.level(room), []).append(room)
    at = {}
    for level, row in levels.items():
        row.sort(key=lambda room: (graph.runs_layers(room), graph.rooms.index(room)))
        left = (WIDTH - len(row) * BOX[0] - (len(row) - 1) * 3 * GAP) / 2
        for i, room in enumerate(row):
            at[room] = (left + i * (BOX[0] + 3 * GAP), top + (max(levels) - level) * LEVEL)
    about, lines, boxes = purposes(), [], []
    if missing := at.keys() - about.keys():
        sys.exit(f"docs/architecture.md: its table of rooms has none of {', '.join(sorted(missing))}")
    for room, (x, y) in at.items():
        for other in sorted(graph.needed(room)):
            to_x, to_y = at[other]
            ends = x + BOX[0] / 2, y + BOX[1], to_x + BOX[0] / 2, to_y - 3
            next_below = graph.level(room) == graph.level(other) + 1
            lines.append(arrow(*ends, bend=(0, 26)) if next_below else around(*ends))
        boxes += box(x, y, BOX, RUNS if graph.runs_layers(room) else PLANS, room, about[room])
    return lines + boxes, top + (max(levels) + 1) * LEVEL


def draw_way(graph, top):
    def corner(step):
        column, row = WAY[step][:2]
        return 20 + column * (WAY_BOX[0] + 28), top + row * (WAY_BOX[1] + 30)

    lines, boxes = [], []
    for one, other in ARROWS:
        (x1, y1), (x2, y2) = corner(one), corner(other)
        if x1 == x2:
            down = y2 > y1
            lines.append(arrow(x1 + WAY_BOX[0] / 2, y1 + (WAY_BOX[1] if down else 0), x2 + WAY_BOX[0] / 2,
                               y2 - 3 if down else y2 + WAY_BOX[1] + 3))
        else:
            lines.append(arrow(x1 + WAY_BOX[0], y1 + WAY_BOX[1] / 2, x2 - 3, y2 + WAY_BOX[1] / 2, bend=(14, 0)))
    (x1, y1), (x2, _) = corner(6), corner(2)  # what is found is planned again
    lines.append(f'<path d="M{x1 + WAY_BOX[0] / 2:g},{y1:g} v-14 H{x2 + WAY_BOX[0] / 2:g} v11" fill="none" '
                 f'stroke="{LINE}" stroke-width="1.3" stroke-dasharray="4 3" marker-end="url(#tip)"/>')
    for step, (_, _, title, path) in enumerate(WAY):
        room = room_of(path, graph.rooms)
        if not (ROOT / path).is_file():
            sys.exit(f"docs/draw_rooms.py: a plan's way leads to {path}, which is not there")
        boxes += box(*corner(step), WAY_BOX, RUNS if graph.runs_layers(room) else PLANS, title, path)
    return lines + boxes, top + 4 * (WAY_BOX[1] + 30)


def picture():
    graph = Graph()
    rooms_drawn, below = draw_rooms(graph, 50)
    way_drawn, end = draw_way(graph, below + 60)
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{end}" viewBox="0 0 {WIDTH} {end}" '
            'font-family="Helvetica, Arial, sans-serif">',
            '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="5" refY="3" orient="auto">'
            f'<path d="M0,0 L6,3 L0,6 z" fill="{LINE}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{end}" fill="white"/>',
            text(WIDTH / 2, 26, "Each room includes those that its arrows lead to. Blue plans, orange needs LibTorch.",
                 14),
            text(WIDTH / 2, below + 16, "A plan's way", 14)]
    return "\n".join(head + rooms_drawn + way_drawn + ["</svg>"]) + "\n"


def main():
    drawn = picture()
    if "--write" in sys.argv:
        PICTURE.write_text(drawn)
    elif not PICTURE.is_file() or PICTURE.read_text() != drawn:
        sys.exit("docs/rooms.svg is not of this tree: python3 docs/draw_rooms.py --write")


if __name__ == "__main__":
    main()
