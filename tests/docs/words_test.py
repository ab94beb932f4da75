"""usage: words_test.py PROGRAM [--running]

What docs/metrics.md, docs/formats.md and docs/json.md define against what there is: columns of tables in the sources,
keys that the readers of files know, keys of JSON documents and of records that the program writes (with --running, of
verbs that run layers too) or that lie in the tree."""
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from pages import ROOT, Page

PROGRAM = os.path.abspath(sys.argv[1])
LAYER = "--batch 1 --seq 256 --model-dim 512 --hidden 1024".split()
DOCUMENTS = [["simulate", *LAYER, "--schedule", "fsmoe"], ["simulate", *LAYER, "--schedule", "fsmoe,lina,parm,monta"],
             ["simulate", *LAYER, "--schedule", "fsmoe-interleaved", "--cluster", "testbed-a"],
             ["simulate", *LAYER, "--schedule", "fsmoe", "--jitter", "0.1"],
             ["simulate", "--model", "gpt2-xl", "--layers", "2", "--schedule", "fsmoe,lina-packed"],
             ["tune", "--no-verify", "--grid", "fsmoe-30-b", "--out", "r.jsonl"], ["memory", "--model", "mixtral-7b"],
             ["memory", "--parm"], ["placement", "--ep", "8", "--cp", "4", "--switch-ports", "32"],
             ["doctor"],
             ["fit", "--records", str(ROOT / "tests/plots/data/microbench.jsonl"), "--out", "p.toml"],
             ["reproduce", "monta-fig13", "--out", "r.jsonl", "--overwrite"], ["list"]]
RECORDS = [["simulate", *LAYER, "--schedule", "fsmoe", "--sweep-degrees"],
           ["tune", "--no-verify", "--grid", "fsmoe-30-b"], ["reproduce", "monta-fig14", "--assume", "monta-a800"]]
if "--running" in sys.argv:
    SMALL = ["layerbench", "--batch", "1", "--seq", "64", "--model-dim", "256", "--iterations", "1"]
    OPS = ["microbench", "-b", "64K", "-e", "256K", "--repetitions", "2"]
    MODEL = ["modelbench", "--layers", "1", "--steps", "1", "--schedule", "fsmoe"]
    DOCUMENTS += [SMALL + ["--schedule", "fsmoe", "--out", "l.jsonl"], OPS + ["--out", "m.jsonl"],
                  MODEL + ["--out", "t.jsonl"]]
    RECORDS += [SMALL + ["--schedule", "fsmoe,parm-s2"], OPS, MODEL]
# Keys that name things of the user's choice, or of a paper's table: their values are not formats.
OPEN = {"libraries", "environment", "software", "unsupported", "tensors", "left_out", "machine", "git", "figures"}
# Kinds of tasks, which name shares.
KINDS = re.findall(r'"(\w+)"', (ROOT / "moe/plan/task_kind.h").read_text())
READERS = re.compile(r"(?:TableReader \w+\(\s*file, |\.tables?\(\s*\"\w+\",\s*|\bk(?:Parallel|Model)Keys(?:, )?)"
                     r"\{([^{}]*)\}")
COLUMNS = re.compile(r"(?:\bTable \w+\(\s*\{|Table table_\{\{|header\{|header\.insert\(header\.end\(\), \{)(.*?)\}",
                     re.DOTALL)
OF_DATA = re.compile(r"of $|of \{\}$|$")  # columns that are named after the data


def spans(page):
    return set(page.spans())


def sources(*folders):
    return [path for folder in folders for path in (ROOT / folder).rglob("*.cpp") if (ROOT / folder).is_dir()]


def keys_of(json_value):
    found = set()
    if isinstance(json_value, dict):
        for key, value in json_value.items():
            found.add(key)
            if key not in OPEN:
                found |= keys_of(value)
    elif isinstance(json_value, list):
        for item in json_value:
            found |= keys_of(item)
    return found


def keys_of_record(line):
    """As keys_of; for a line of several cases its columns, whose parts are dotted."""
    found = set()
    for table in line.pop("tables", []):
        found |= {"tables", "columns", "rows"}
        for column in table["columns"]:
            for name in [column] if isinstance(column, str) else column:
                found |= set(name.split(".", 1))
    return found | keys_of(line)


class Columns(unittest.TestCase):
    """Each table's columns are defined in one section."""

    def test_of_every_table_are_defined(self):
        pages = [Page(f"docs/{name}.md").prose for name in ("metrics", "tuning", "serving")]
        sections = [set(re.findall(r"`([^`]+)`", part)) for page in pages for part in page.split("\n## ")]
        tables = 0
        with_tables = sources("commands/shared", "commands/doctor", "tuner", "microbench", "layerbench", "modelbench")
        for path in [*(ROOT / "commands").glob("*.cpp"), *with_tables]:
            for heads in COLUMNS.findall(path.read_text()):
                names = {name for name in re.findall(r'"([^"]*)"', heads) if not OF_DATA.match(name)}
                best = min((names - section for section in sections), key=len)
                self.assertEqual(best, set(), f"{path.relative_to(ROOT)}: a table's columns")
                tables += bool(names)
        self.assertGreater(tables, 15)


class Formats(unittest.TestCase):
    maxDiff = None
    page, documents = Page("docs/formats.md"), Page("docs/json.md")

    def check(self, keys, what, more=frozenset()):
        of_kinds = ("ratio_", "excess_s_")  # ratio_PHASE_KIND, excess_s_KIND
        missing = sorted({key for key in keys if not key.startswith(of_kinds)} - spans(self.page) - more)
        self.assertEqual(missing, [], f"{what}: not in docs/formats.md")

    def check_document(self, keys, what):
        self.check(keys, f"{what}: not in docs/json.md either", spans(self.documents))

    def test_define_what_readers_of_toml_know(self):
        known = set(re.findall(r'\.key = "(\w+)"', (ROOT / "moe/shape/layer_fields.h").read_text()))
        for path in [*sources("moe", "commands/reproduce"), ROOT / "moe/shape/layer_file.h"]:
            for keys in READERS.findall(path.read_text()):
                known |= set(re.findall(r'"(\w+)"', keys))
        self.assertGreater(len(known), 60)
        self.check(known, "keys of TOML files")
        traits = set(re.findall(r'ModelTrait<[^>]*>\{"(\w+)"', (ROOT / "moe/shape/model_traits.h").read_text()))
        self.assertGreater(len(traits), 15)
        self.assertEqual(sorted(traits - spans(Page("docs/exchange.md"))), [], "not in docs/exchange.md")
        known |= traits
        toml = self.page.section("Files that you write")
        cells = re.findall(r"^\| (`[^|]*`) \|", toml, re.MULTILINE)
        said = set(re.findall(r"`(\w+)`", " ".join(cells)))
        self.assertEqual(sorted(said - known - {"s_per_TERM", "range_TERM"}), [], "keys that no reader knows")

    def run_program(self, folder, words):
        return subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, check=True).stdout

    def test_define_the_documents(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in DOCUMENTS:
                if words[0] == "tune":
                    words = words[:1] + ["--strategy-layers", "1"] + words[1:]
                with self.subTest(words=words):
                    document = json.loads(self.run_program(folder, words + ["--json"]))
                    self.check_document(set(document) if words == ["list"] else keys_of(document), " ".join(words))

    def test_of_commits_define_their_documents(self):
        """Documents of compare and history, on made-up samples."""
        said = spans(Page("docs/ci.md"))
        records = (ROOT / "tests/plots/data/microbench.jsonl").read_text()
        with tempfile.TemporaryDirectory() as folder:
            for name, seconds in (("base", 1), ("head", 2)):
                measured = records.replace('"samples":{}', f'"samples":{{"seconds":[[{seconds}]]}}')
                pathlib.Path(folder, f"{name}.jsonl").write_text(measured)
            for words in (["compare", "base.jsonl", "head.jsonl"], ["history", "."]):
                keys = keys_of(json.loads(self.run_program(folder, words + ["--json"])))
                self.assertGreater(len(keys), 10)
                self.assertEqual(sorted(keys - said), [], f"{words}: not in docs/ci.md")

    def test_of_one_layer_or_model_define_their_documents(self):
        said = spans(self.documents) | spans(self.page)
        with tempfile.TemporaryDirectory() as folder:
            for words in (["--shape", "auto", *LAYER], ["--model", "gpt-2", "--layers", "2", "--current", "tutel:2"]):
                keys = keys_of(json.loads(self.run_program(folder, ["tune", "--no-verify", *words, "--json"])))
                self.assertEqual(sorted(keys - said - set(KINDS)), [], f"{words}: not in docs/json.md")

    def test_of_serving_define_its_document(self):
        said = spans(Page("docs/serving.md")) | spans(self.documents) | spans(self.page)
        words = ["simulate", "--serve", "--cluster", "h100-8", "--dtype", "bfloat16", "--layers", "5", "--batch", "1",
                 "--seq", "32", "--batches", "6", "--json"]
        keys = keys_of(json.loads(self.run_program(".", words)))
        self.assertEqual(sorted(keys - said), [], f"{words}: not in docs/serving.md")

    def test_define_the_records(self):
        texts = {path.name: path.read_text() for path in (ROOT / "tests/plots/data").glob("*.jsonl")}
        with gzip.open(ROOT / "results/fsmoe-b-emulated.jsonl.gz", "rt") as lines:
            texts["fsmoe-b-emulated"] = "".join(line for i, line in enumerate(lines) if i % 40 == 0 or i < 300)
        with tempfile.TemporaryDirectory() as folder:
            for i, words in enumerate(RECORDS):
                self.run_program(folder, words + ["--out", f"{i}.jsonl"])
                texts[" ".join(words)] = pathlib.Path(folder, f"{i}.jsonl").read_text()
        for name, text in texts.items():
            with self.subTest(records=name):
                keys = set()
                for line in map(json.loads, text.splitlines()):
                    if line.get("key", "").startswith("reproduce/"):  # fields as the paper's table says
                        line["parameters"], line["summary"], line["prediction"] = {}, {}, {}
                    keys |= keys_of_record(line)
                serving = spans(Page("docs/serving.md")) if '"key":"serve/' in text else set()
                self.check(keys, name, spans(self.documents) | serving)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
