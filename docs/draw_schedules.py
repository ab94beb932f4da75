"""usage: draw_schedules.py PROGRAM [--write]

The pictures and the tables of docs/schedules.md, as PROGRAM (a built `moetune`) computes them: the text below each
`<!-- drawn: NAME -->`. Without --write it says whether the page has them as they are, exit code 1 if not."""
import collections
import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).with_name("schedules.md")
DRAWN = re.compile(r"(<!-- drawn: ([\w+-]+) -->\n\n?```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
LAYER = "--batch 1 --seq 512 --model-dim 1024 --hidden 4096".split()
# MoNTA's cluster has a price for copies; its plans of several chunks are drawn there.
MONTA = "--cluster a800 --batch 1 --seq 8192 --dtype bfloat16 --model-dim 8192 --hidden 4096".split()
CHUNKS = "--degree-forward 3 --degree-backward 3".split()
OWN_LAYER = {"monta-baseline": MONTA, "monta-o1": MONTA, "monta-o2": MONTA + CHUNKS, "monta-o3": MONTA + CHUNKS,
             "monta": MONTA}
GRIDS = [("fsmoe-b", "testbed-b"), ("fsmoe-a", "testbed-a")]
MODELS = ["gpt2-xl", "mixtral-7b"]  # on testbed-b
DUELS = [("tutel", "ds-moe"), ("tutel-improved", "tutel"), ("pipemoe+lina", "tutel-improved"),
         ("fsmoe-no-iio", "tutel-improved"), ("fsmoe-no-partition", "fsmoe-no-iio"), ("fsmoe", "fsmoe-no-iio"),
         ("fsmoe", "fsmoe-no-partition"), ("fsmoe-interleaved", "fsmoe"), ("fsmoe-dw", "fsmoe"),
         ("fsmoe", "lina"),
         ("parm", "ds-moe-replicated"), ("parm-s1", "parm-s2"), ("parm-s2", "parm-s2-aas"),
         ("monta-o1", "monta-baseline"), ("monta-o2", "monta-o1"), ("lina", "tutel"), ("lina-baseline", "lina"),
         ("lina-priority", "lina-fixed"), ("lina-partition", "lina-priority"), ("lina", "lina-partition"),
         ("lina-packed", "lina"), ("lina-baseline", "fsmoe")]
TIE = 1e-9  # relative: the last bits of a sum


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def picture(program, name):
    """The lanes of one schedule, below them how long they take."""
    printed = run(program, "simulate", *OWN_LAYER.get(name, LAYER), "--schedule", name)
    title, *lanes = printed[printed.index(f"\n{name} "):].strip().splitlines()
    chosen = re.match(r"\S+ = (\S+)", title)
    axis = next(i for i, lane in enumerate(lanes) if lane.startswith(" " * 8 + "0"))  # behind it the legend
    lines = [lane.removesuffix(" busy") for lane in lanes[:axis + 1]]
    if chosen:
        lines.append(f"chosen: {chosen[1]}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def seconds_by_schedule(program, grid, cluster):
    """For each layer that can be planned: schedule -> forward + backward."""
    with tempfile.TemporaryDirectory() as scratch:
        tuned = json.loads(run(program, "tune", "--no-verify", "--schedule", "all", "--json", "--nearest",
                               "--grid", grid, "--cluster", cluster, "--out", f"{scratch}/r.jsonl"))
    layers = [{s["schedule"]: s["forward_s"] + s["backward_s"] for s in layer["schedules"]}
              for layer in tuned["layers"]]
    return [layer for layer in layers if layer]


def over_tutel(program, model):
    """schedule -> tutel's iteration of the whole model over its own, as `simulate` prints it."""
    printed = run(program, "simulate", "--model", model, "--schedule", "all", "--wide")
    return dict(re.findall(r"^ +(\S+) +\d\S* +\d\S* +[\d.]+ +([\d.]+x) ", printed, re.MULTILINE))


def wins(program, grids):
    """For each grid: the mean of tutel's time over a schedule's, on how many layers it is faster than tutel, and on how
    many none is faster than it; of orders of iterations there is none. For each model: tutel's time over the
    schedule's."""
    of_no_grid = len(grids) * f"  {'-':>8}{'-':>13}{'-':>7}"
    rows, heads = collections.defaultdict(str), f"{'':<18}"
    for grid, layers in grids.items():
        heads += f"  {f'{grid}: {len(layers)} layers':>28}"
        for name in layers[0]:
            times = [(layer["tutel"], layer[name], min(layer.values())) for layer in layers if name in layer]
            mean = sum(tutel / own for tutel, own, _ in times) / len(times)
            beats = sum(own < tutel * (1 - TIE) for tutel, own, _ in times)
            best = sum(own <= least * (1 + TIE) for _, own, least in times)
            rows[name] += f"  {mean:>7.3f}x{beats:>13}{best:>7}"
    for model in MODELS:
        heads += f"  {model:>10}"
        for name, ratio in over_tutel(program, model).items():
            rows[name] = (rows[name] or of_no_grid) + f"  {ratio:>10}"
    lines = [heads, f"{'schedule':<18}" + f"  {'mean':>8}{'beats tutel':>13}{'best':>7}" * len(grids)]
    return "\n".join(lines + [f"{name:<18}{cells}" for name, cells in rows.items()]) + "\n"


def duels(grids):
    """On how many layers of each grid the first of two schedules is faster than the second, and on how many slower."""
    lines = [f"{'':<37}" + "".join(f"  {grid:>16}" for grid in grids),
             f"{'schedule':<18} {'than':<18}" + f"  {'faster':>8}{'slower':>8}" * len(grids)]
    for one, other in DUELS:
        cells = ""
        for layers in grids.values():
            ratios = [layer[one] / layer[other] for layer in layers if one in layer and other in layer]
            cells += f"  {sum(r < 1 - TIE for r in ratios):>8}{sum(r > 1 + TIE for r in ratios):>8}"
        lines.append(f"{one:<18} {other:<18}{cells}")
    return "\n".join(lines) + "\n"


def main():
    program = sys.argv[1]
    grids = {grid: seconds_by_schedule(program, grid, cluster) for grid, cluster in GRIDS}
    tables = {"wins": lambda: wins(program, grids), "duels": lambda: duels(grids)}

    def drawn(match):
        table = tables.get(match[2])
        return match[1] + (table() if table else picture(program, match[2])) + match[4]

    page = PAGE.read_text()
    anew = DRAWN.sub(drawn, page)
    if "--write" in sys.argv:
        PAGE.write_text(anew)
    elif anew != page:
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), anew.splitlines(True), "the page", "drawn"))
        sys.exit("docs/schedules.md is not what the program draws: python3 docs/draw_schedules.py PROGRAM --write")


if __name__ == "__main__":
    main()
