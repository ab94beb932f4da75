"""usage: compare_shapes.py PROGRAM [--write]

The table of docs/tuning.md between published training shapes (configs/published/training-shapes.csv) and those that
PROGRAM (a built `moetune`) finds for the same model, ranks and global batch. Without --write it says whether the page
has it as it is, with exit code 1 where it has not."""
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PAGE = HERE / "tuning.md"
SHAPES = HERE.parent / "configs" / "published" / "training-shapes.csv"
DRAWN = re.compile(r"(<!-- drawn: published shapes -->\n\n?```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
SEQ = 4096
HEAD = ("model", "ranks", "batch", "shape", "precision", "measured", "predicted", "slower", "GiB")


def published():
    with SHAPES.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def fastest(program, row, *flags):
    """The recommended shape, its seconds and a rank's GiB under DeepSpeed-MoE's schedule, which Megatron-Core has."""
    with tempfile.TemporaryDirectory() as scratch:
        ran = subprocess.run(
            [program, "tune", "--no-verify", "--shape", "auto", "--cluster", row["cluster"], "--model", row["model"],
             "--schedule", "ds-moe", "--json", "--quiet", "--out", f"{scratch}/r.jsonl", *flags],
            capture_output=True, text=True, check=False)
    if too_large := re.search(r"none of \d+ shapes fits: the smallest needs ([\d.]+) GiB", ran.stderr):
        return "", None, float(too_large[1])
    if ran.returncode:
        sys.exit(f"{row['model']}: {ran.stderr}")
    found = json.loads(ran.stdout)["shapes"]
    if found["at_least_s"] < (1 - 1e-9) * min(shape["total_s"] for shape in found["ranked"]):
        sys.exit(f"{row['model']}: the search met its limit of time, and may not have found the fastest")
    shape = found["ranked"][0]
    groups = " ".join(f"{name.upper()} {shape[name]}" for name in ("dp", "mp", "ep", "esp", "pp") if shape[name] > 1)
    text = f"{groups}, {shape['micro_batches']} of {shape['batch']}"
    text += f" ZeRO {shape['zero']}" if "zero" in shape else ""
    text += f" {shape['recompute']}" if "recompute" in shape else ""
    return text, shape["total_s"], shape["memory_bytes"] / 2**30


def of_published(program, row):
    dp = int(row["ranks"]) // int(row["pp"])
    count = int(row["global_batch"]) // (dp * int(row["micro_batch"]))
    found = fastest(program, row, "--dp", str(dp), "--mp", "1", "--ep", row["ep"], "--esp", "1", "--pp", row["pp"],
                   "--batch", row["micro_batch"], "--micro-batches", str(count), "--pipeline", "1f1b")
    if found[1] is not None:
        return found
    groups = " ".join(f"{name} {size}" for name, size in (("DP", dp), ("EP", row["ep"]), ("PP", row["pp"]))
                      if int(size) > 1)
    return f"{groups}, {count} of {row['micro_batch']} ZeRO 1 full", None, found[2]


def table(program):
    lines, least_s = [HEAD], {}
    for row in published():
        ranks, batch = int(row["ranks"]), int(row["global_batch"])

        def line(found, precision, measured, slower):
            text, seconds, gib = found
            predicted = f"{batch * SEQ / ranks / seconds:,.0f}" if seconds else "-"
            return (row["model"], row["ranks"], row["global_batch"], text, precision, measured, predicted,
                    slower, f"{gib:.1f}")

        precision = row["precision"] + (f" VP {row['vp']}" if row["vp"] != "1" else "")
        question = (row["model"], ranks, batch)
        if question not in least_s:
            found = fastest(program, row, "--global-batch", str(batch))
            least_s[question] = found[1]
            lines.append(line(found, "found", "-", "-"))
        own = of_published(program, row)
        slower = f"{100 * (own[1] / least_s[question] - 1):+.1f} %" if own[1] else "too large"
        lines.append(line(own, precision, f"{int(row['tokens_s_rank']):,}", slower))
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(HEAD))]
    left = {0, 3, 4}
    text = "".join("  ".join(cell.ljust(width) if i in left else cell.rjust(width)
                             for i, (cell, width) in enumerate(zip(cells, widths))).rstrip() + "\n" for cells in lines)
    return text


def main():
    page = PAGE.read_text(encoding="utf-8")
    drawn = DRAWN.sub(lambda match: match[1] + table(sys.argv[1]) + match[3], page)
    if "--write" in sys.argv:
        PAGE.write_text(drawn, encoding="utf-8")
    elif drawn != page:
        sys.exit(f"{PAGE.name}: not what {pathlib.Path(sys.argv[1]).name} finds; {pathlib.Path(__file__).name} --write")


if __name__ == "__main__":
    main()
