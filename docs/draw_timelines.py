"""usage: draw_timelines.py PROGRAM [--write]

docs/timelines.svg, the picture of the README: one MoE layer under two schedules, from the timeline that PROGRAM (a
built `moetune`) simulates. Without --write, checks the file and exits with 1 if it is out of date."""
import json
import pathlib
import subprocess
import sys
import tempfile

from pictures import text, write_or_check

PICTURE = pathlib.Path(__file__).with_name("timelines.svg")
SIMULATE = "simulate --batch 1 --seq 512 --model-dim 1024 --hidden 4096 --schedule tutel,fsmoe --trace".split()
TITLES = {"tutel": "Tutel: one communication lane", "fsmoe": "FSMoE: one lane per network, gradients beside attention"}
LANES = {"compute": "compute", "comm": "both networks", "inter": "between nodes", "intra": "inside a node"}
KINDS = {"attention, gate": (("attention", "gate"), "#8c8c8c"), "experts": (("expert",), "#ef8a1d"),
         "AlltoAll (dispatch, combine)": (("dispatch", "combine"), "#3b7cc4"),
         "AllGather, ReduceScatter": (("allgather", "reducescatter"), "#4fae7c"),
         "tensor parallelism": (("mp_allgather", "mp_reducescatter"), "#b0b88f"),
         "gradient AllReduce": (("gradient",), "#c9302c")}
WIDTH, LEFT, RIGHT, LANE, BAR = 960, 120, 20, 26, 20
LINE = "#c9ced6"


def colour_of(name):
    kind = name.split(" ")[0]
    return next(colour for kinds, colour in KINDS.values() if kind in kinds)


def rectangle(x, y, width, height, fill):
    return f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height}" fill="{fill}" stroke="white"/>'


def timelines(program):
    """For each schedule: its name, and its lanes with their tasks as (name, begin, end) in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder, "trace.json")
        subprocess.run([program, *SIMULATE, trace], check=True, capture_output=True)
        events = json.loads(trace.read_text())["traceEvents"]
    found = {}
    for event in events:
        if event["name"] == "process_name":
            found[event["pid"]] = (event["args"]["name"].split(" ")[0], {})
        elif event["name"] == "thread_name":
            found[event["pid"]][1][event["tid"]] = (event["args"]["name"], [])
        elif event["ph"] == "X" and event["dur"] > 0:
            begin = event["ts"] / 1e3
            found[event["pid"]][1][event["tid"]][1].append((event["name"], begin, begin + event["dur"] / 1e3))
    return [(name, list(lanes.values())) for name, lanes in found.values()]


def legend(y):
    lines, x = [], RIGHT
    for label, (_, colour) in KINDS.items():
        lines += [rectangle(x, y, 14, 14, colour), text(x + 19, y + 12, label, 11, "start")]
        x += 40 + 5.8 * len(label)
    return lines


def picture(program):
    schedules = timelines(program)
    longest = max(end for _, lanes in schedules for _, tasks in lanes for _, _, end in tasks)
    scale = (WIDTH - LEFT - RIGHT) / longest
    lines, y = [], 14
    for name, lanes in schedules:
        total = max(end for _, tasks in lanes for _, _, end in tasks)
        lines.append(text(LEFT, y + 12, f"{TITLES[name]}: {total:.1f} ms", 13, "start", bold=True))
        y += 22
        for lane, tasks in lanes:
            lines += [text(LEFT - 8, y + 15, LANES[lane], 12, "end"),
                      f'<path d="M{LEFT},{y + BAR:g} H{WIDTH - RIGHT}" stroke="{LINE}"/>']
            lines += [rectangle(LEFT + begin * scale, y, (end - begin) * scale, BAR, colour_of(task))
                      for task, begin, end in tasks]
            y += LANE
        y += 14
    axis = [f'<path d="M{LEFT},{y:g} H{WIDTH - RIGHT}" stroke="{LINE}"/>']
    axis += [text(LEFT + ms * scale, y + 16, f"{ms} ms", 11, "middle") for ms in range(0, int(longest) + 1, 2)]
    lines += axis + legend(y + 28)
    height = y + 56
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    return "\n".join(head + lines + ["</svg>"]) + "\n"


if __name__ == "__main__":
    write_or_check(PICTURE, picture(sys.argv[1]), "docs/draw_timelines.py PROGRAM")
