"""The data of a page, and the records that it was made of, each read as simply as can be."""
import gzip
import json
import pathlib
import re
import subprocess
from string import ascii_lowercase, ascii_uppercase

ROOT = pathlib.Path(__file__).parents[3]
GRID = ROOT / "results/fsmoe-b-emulated.jsonl.gz"
MODELS = ROOT / "results/fsmoe-fig6-models.json.gz"
LAYER = ROOT / "tests/plots/data/layer.jsonl"
PLAN = ROOT / "tests/plots/data/plan.jsonl"
OPERATIONS = ROOT / "tests/plots/data/microbench.jsonl"
VERIFIED = ROOT / "tests/plots/data/verified.jsonl"
TRAINING = ROOT / "tests/plots/data/training.jsonl"
PUBLISHED = ROOT / "tests/plots/data/fsmoe-fig6.jsonl"


def report(program, folder, *words, page="page.html"):
    """Runs the verb; the page is FOLDER/page.html."""
    return subprocess.run([program, "report", *map(str, words), "-o", page], cwd=folder, capture_output=True, text=True)


def data_of(page):
    """The data of a page; each column of a table is the list of its cells."""
    def unpacked(value):
        if "columns" in value:
            value["columns"] = {name: cells_of(cells, value["rows"]) for name, cells in value["columns"].items()}
        return value
    text = pathlib.Path(page).read_text()
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    return json.loads(held, object_hook=unpacked)


def cells_of(packed, rows):
    if "all" in packed:
        return [packed["all"]] * rows
    if "values" in packed:
        return packed["values"]
    width = len(packed["at"]) // rows
    digits = {digit: value for value, digit in enumerate(f"{ascii_uppercase}{ascii_lowercase}0123456789+/")}
    indices = [[digits[digit] for digit in packed["at"][row * width:(row + 1) * width]] for row in range(rows)]
    return [packed["words"][sum(one * 64 ** i for i, one in enumerate(reversed(index)))] for index in indices]


def column(table, name):
    """The cells of a column, by row."""
    return table["columns"].get(name, [None] * table["rows"])


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
