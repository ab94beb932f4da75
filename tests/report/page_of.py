"""The data of a page, and the records that it was made of, each read as simply as can be."""
import gzip
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
GRID = ROOT / "results/fsmoe-b-emulated.jsonl.gz"
MODELS = ROOT / "results/fsmoe-fig6-models.json.gz"
LAYER = ROOT / "tests/plots/data/layer.jsonl"
PLAN = ROOT / "tests/plots/data/plan.jsonl"
OPERATIONS = ROOT / "tests/plots/data/microbench.jsonl"
VERIFIED = ROOT / "tests/plots/data/verified.jsonl"
PUBLISHED = ROOT / "tests/plots/data/fsmoe-fig6.jsonl"


def report(program, folder, *words, page="page.html"):
    """What the verb ends with; the page is FOLDER/page.html."""
    return subprocess.run([program, "report", *map(str, words), "-o", page], cwd=folder, capture_output=True, text=True)


def data_of(page):
    text = pathlib.Path(page).read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def column(table, name):
    """The cells of a column, by row."""
    cells = table["columns"].get(name)
    if cells is None:
        return [None] * table["rows"]
    if "all" in cells:
        return [cells["all"]] * table["rows"]
    if "values" in cells:
        return cells["values"]
    return [None if at is None else cells["words"][at] for at in cells["at"]]


def lines_of(path):
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)
    with opened as lines:
        return [json.loads(line) for line in lines]


def cases_of(path):
    """The cases of a file with one run."""
    for line in lines_of(path):
        if line["kind"] == "case":
            yield line
        for of in line.get("tables", []):
            for row in of["rows"]:
                yield case_of_row(line, of["columns"], list(row))


def case_of_row(line, columns, cells):
    case = {"parameters": line["parameters"], "summary": {}, "prediction": {}, "samples": {}}
    for name in columns:
        for key, value in name.items() if isinstance(name, dict) else [(name, cells.pop(0))]:
            part, _, field = key.partition(".")
            if field:
                case[part][field] = value
            else:
                case[key] = value
    case["key"] = line["key"] + case["key"]
    return case
