"""usage: answers_test.py PROGRAM

Twenty answers of `tune --no-verify`: terminal, JSON, record and page show the same numbers in every cell. Without a
Chromium the page's data stand for what it shows."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, find_browser
from page_of import ROOT, data_of, lines_of, report

PROGRAM = os.path.abspath(sys.argv[1])
ANSWERS = [
    "--batch 2", "--batch 4 --seq 512", "--batch 1 --model-dim 4096", "--cluster testbed-a --batch 2",
    "--batch 4 --current tutel:2", "--batch 4 --current ds-moe", "--batch 2 --framework megatron",
    "--batch 4 --mp 2 --esp 4 --nearest", "--cluster testbed-a --batch 2 --shape auto",
    "--cluster a800 --dtype bfloat16 --batch 8 --seq 1024", "--layers 2 --micro-batches 4 --nearest",
    "--model gpt2-xl@fsmoe --layers 3", "--model gpt2-xl@fsmoe --layers 2 --current fsmoe:2:1",
    "--model mixtral-7b --layers 2", "--model olmoe-1b-7b --cluster h100-8 --layers 4",
    "--model olmoe-1b-7b --cluster h100-8 --layers 2 --global-batch 16",
    "--model qwen3-30b-a3b --cluster h100-8 --layers 2 --mp 2",
    "--model gpt-oss-20b --cluster h100-8 --layers 2 --dp 4 --ep 4 --pp 2 --mp 1 --esp 1 --micro-batches 4",
    "--grid GRID --schedule all", "--grid GRID --schedule ds-moe,tutel,fsmoe",
]
SHOWN = """(() => {
  const cells = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  const parts = [...document.querySelectorAll("#card [data-part]")].map((part) => [part.dataset.part,
    [...part.querySelectorAll(":scope > p, .copyable")].map((one) => (one.matches("p") ? one.textContent :
      [one.firstChild.firstChild.textContent, one.querySelector("pre").textContent])),
    [...part.querySelectorAll("table")].map(cells)]);
  return { parts, verdict: document.querySelector("#card .verdict")?.textContent,
    strong: document.querySelector("#card .best strong")?.textContent,
    facts: [...document.querySelectorAll("#card .fact")].map((one) => [one.querySelector("span").textContent,
      one.querySelector("b").textContent]),
    summary: [...document.querySelectorAll("#summary-parts table")].map(cells) };
})()"""


def tables_of(text):
    """The tables of a terminal's text as rows of {head: cell}; the line above a rule has the heads."""
    lines, found = text.split("\n"), []
    for i, line in enumerate(lines):
        if not re.fullmatch(r" +-{2,}( +-{2,})+ *", line):
            continue
        spans = [(run.start(), run.end()) for run in re.finditer("-+", line)]
        heads = [lines[i - 1][begin:end].strip() for begin, end in spans]
        rows = []
        for row in lines[i + 1:]:
            between = [row[end:begin] for (_, end), (begin, _) in zip(spans, spans[1:])]
            if not row.startswith("  ") or row.startswith("  and ") or len(row) < spans[1][0] or \
                    any(map(str.strip, between)):
                break
            rows.append(dict(zip(heads, (row[begin:end].strip() for begin, end in spans), strict=True)))
        found.append((heads, rows))
    return found


def three_digits(seconds):
    scale, unit = (1, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    value = scale * seconds
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def shown_item(item):
    """A command has a button that copies it, behind its title and what stands in brackets."""
    command = re.fullmatch(r"(?:(.*): )?((?:\./)?moetune [^(]*[^( ])(?: (\(.*\)))?", item)
    return [" ".join(filter(None, (command[1], command[3]))), command[2]] if command else item


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser(find_browser()) if find_browser() else None

    @classmethod
    def tearDownClass(cls):
        if cls.browser:
            cls.browser.close()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.cells = 0

    def tune(self, words, *more):
        asked = words.replace("GRID", str(ROOT / "tests/plots/grid.toml")).split()
        ran = subprocess.run([PROGRAM, "tune", "--no-verify", *asked, "--out", "answer.jsonl", "--overwrite", *more],
                             cwd=self.folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "400"})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def same_tables(self, text, tables):
        """Every row of the terminal's tables is one of the record's, cell by cell."""
        of_heads = {tuple(cells[0][:2]): cells for cells in tables if cells}
        for heads, rows in tables_of(text):
            self.assertIn(tuple(heads[:2]), of_heads, text)
            known = [dict(zip(of_heads[tuple(heads[:2])][0], row, strict=True))
                     for row in of_heads[tuple(heads[:2])][1:]]
            self.assertGreater(len(rows), 0, text)
            for row in rows:
                if "groups, micro-batches" in heads and row["schedule"] == "":
                    continue  # the second line of a row
                matching = [one for one in known if all(one.get(head) == cell for head, cell in row.items()
                                                        if not head.startswith("groups"))]
                self.assertTrue(matching, f"{row}\n{known}")
                self.cells += len(row)

    def same_json(self, document, parts):
        use = document["use"]
        heads, *rows = next(part["table"] for part in parts if part["label"] == "USE")
        by_name = {row["schedule"]: row for row in document["ranking"] if row["status"] == "ok"}
        for cells in rows:
            row = dict(zip(heads, cells, strict=True))
            if "(yours)" in row["schedule"]:
                of = document["current"]
            else:
                of = by_name.pop(row["schedule"].removesuffix(" (use)"))
            self.assertEqual(row["r_f"], str(of["degree_forward"]))
            self.assertEqual(row["predicted"], three_digits(of["total_s"]))
            self.assertEqual(row["of own bound"], f"{100 * of['bound_s'] / of['total_s']:.1f} %")
            self.assertEqual(row["schedule"].endswith(" (use)"), of["schedule"] == use["schedule"]
                             and "(yours)" not in row["schedule"])
            if "over tutel" in row:
                tutel = next(one for one in document["ranking"] if one["schedule"] == "tutel")["total_s"]
                self.assertEqual(row["over tutel"], f"{tutel / of['total_s']:.3f}x")
        self.assertEqual(by_name, {})
        self.assertEqual(document["verdict"], parts[0]["items"][0])
        settings = next(part for part in parts if part["label"] == "SET IT")
        for of in document["frameworks"]:
            if of["status"] != "ok":
                continue
            heads, *rows = settings["table"]
            row = next(dict(zip(heads, cells, strict=True)) for cells in rows if cells[0] == of["framework"])
            self.assertEqual((row["schedule"], row["r_f"], row["predicted"]),
                             (of["schedule"], str(of["degree_forward"]), three_digits(of["total_s"])))
            self.assertEqual(row["slower"], f"{100 * (of['total_s'] / use['total_s'] - 1):+.1f} %")

    def same_page(self, record, case):
        [answer] = data_of(self.folder / "page.html")["answers"]
        self.assertEqual([{**part, "table": part.get("table", [])} for part in record], answer["parts"])
        if not self.browser:
            return
        self.browser.open(self.folder / "page.html")
        shown = self.browser.value(SHOWN)
        if record[0]["label"] == "SUMMARY":
            self.assertEqual(shown["summary"], [record[0]["table"]])
            return
        self.assertEqual(shown["verdict"], record[0]["items"][0])
        self.assertEqual(shown["strong"], case["schedule"])
        for part, (label, items, tables) in zip(record[1:], shown["parts"], strict=True):
            self.assertEqual((label, items), (part["label"], [shown_item(item) for item in part["items"]]))
            self.assertEqual(tables, [part["table"]] if part.get("table") else [])
        use = next(part["table"] for part in record if part["label"] == "USE")
        row = next(cells for cells in use[1:] if cells[0] == f"{case['schedule']} (use)")
        for name, cell in shown["facts"]:
            self.assertEqual(cell, row[use[0].index(name)], name)
        self.assertEqual(self.browser.faults, [])

    def test_have_the_same_numbers_everywhere(self):
        self.assertEqual(len(set(ANSWERS)), 20)
        cells = 0
        for words in ANSWERS:
            with self.subTest(words):
                grid = "--grid" in words
                text = self.tune(words, *([] if grid else ["--top", "99"]))
                (self.folder / "answer.jsonl").unlink()
                document = json.loads(self.tune(words, "--json"))
                [case] = [line for line in lines_of(self.folder / "answer.jsonl")
                          if line.get("key", "").startswith("answer/")]
                self.same_tables(text, [part.get("table", []) for part in case["answer"]])
                if not grid:
                    self.same_json(document, case["answer"])
                    for part in case["answer"][1:]:
                        if part["label"] in ("WHY", "SAFE?", "NEXT"):
                            for item in part["items"]:
                                self.assertIn(item, " ".join(text.replace(";", "").split())
                                              if part["label"] == "WHY" else text)
                self.assertEqual(report(PROGRAM, self.folder, "answer.jsonl", "--timelines", 1).returncode, 0)
                self.same_page(case["answer"], case)
            cells += self.cells
            self.cells = 0
        print(f"{cells} cells of tables compared{'' if self.browser else ', without a browser'}")
        self.assertGreater(cells, 2000)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
