"""usage: unwritable_test.py PROGRAM

Answers where no file can be written, and output on a narrow terminal."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
LAYER = ["--schedule", "fsmoe,tutel"]
DATA = pathlib.Path(__file__).parents[2] / "plots" / "data"
TABLES = (["simulate"], ["simulate", "--jitter", "0.1"], ["simulate", "--layers", "4", "--micro-batches", "2"],
          ["memory"], ["memory", "--model", "mixtral-7b"], ["placement", "--ep", "8", "--cp", "4"],
          ["tune", "--no-verify", "--model", "gpt2-xl@fsmoe", "--current", "tutel:2"],
          ["tune", "--no-verify", "--model", "gpt2-xl@fsmoe", "--top", "30"],
          ["tune", "--no-verify", "--grid", "fsmoe-30-b", "--strategy-layers", "3"],
          ["fit", "--records", str(DATA / "microbench.jsonl"), "--out", "fitted.toml"],
          ["reproduce", "fsmoe-table5"], ["reproduce", "lina-training"])


def timeless(text):
    """A text without the times that searches took."""
    return re.sub(r"planned in .*| *[\d.]+ [mu]?s$", "", text, flags=re.M)


def headers(text):
    """The columns of each table, whose names are two blanks apart or more."""
    lines = text.splitlines()
    return [re.split(r"  +", above.strip()) for above, line in zip(lines, lines[1:])
            if re.fullmatch(r"  -+(  -+)+", line)]


class Output(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_there(self, *words, **how):
        return subprocess.run([PROGRAM, *words], cwd=self.folder, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, **how)

    def test_an_answer_without_its_records(self):
        if NOBODY and not os.access(PROGRAM, os.X_OK):
            self.skipTest("the program is not for others")
        for words, file in ((["tune", "--no-verify", *LAYER], "results"),
                            (["simulate", *LAYER, "--out", "r.jsonl"], "r.jsonl"),
                            (["tune", "--no-verify", *LAYER, "--out", "r.jsonl", "--json"], "r.jsonl")):
            self.folder.chmod(0o777)
            whole = self.run_there(*words)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            for made in self.folder.rglob("*.jsonl"):
                made.unlink()
            for made in self.folder.iterdir():
                made.rmdir()
            self.folder.chmod(0o555)
            ran = self.run_there(*words, "--quiet", **NOBODY)
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1), ran.stderr)
            self.assertRegex(ran.stderr, rf"^moetune: {file}: cannot be (made|opened) \(Permission denied\), expected")
            self.assertEqual(ran.stdout.count("\n"), whole.stdout.count("\n"))

    def test_lines_fit_the_width(self):
        for words in (["simulate"], ["simulate", "--schedule", "fsmoe"], ["list"], ["simulate", "--help"], ["memory"],
                      *TABLES):
            for columns in (80, 100, 120):
                ran = self.run_there(*words, env={**os.environ, "COLUMNS": str(columns)})
                self.assertEqual(ran.returncode, 0, ran.stderr)
                wide = [line for line in ran.stdout.splitlines() if len(line) > columns and "./moetune" not in line]
                self.assertEqual(wide, [], (words, columns))
        without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        for bad in ("", "0", "-5", "many"):
            self.assertEqual(self.run_there("simulate", env={**without, "COLUMNS": bad}).stdout,
                             self.run_there("simulate", env=without).stdout)

    def test_wide_has_all_columns(self):
        narrow = {**os.environ, "COLUMNS": "80"}
        wide = {**os.environ, "COLUMNS": "1000000"}
        for words in TABLES:
            whole = self.run_there(*words, env=wide).stdout
            self.assertEqual(timeless(self.run_there(*words, "--wide", env=narrow).stdout), timeless(whole), words)
            shown = self.run_there(*words, env=narrow).stdout
            named = re.findall(r"^  not shown: (.*) \(--wide\)$", shown, re.M)
            kept = {column for header in headers(shown) for column in header}
            for header in headers(whole):
                self.assertLessEqual(set(header), kept | set(", ".join(named).split(", ")), words)
        every = "simulate", "--schedule", "all"
        shown = self.run_there(*every, env=narrow).stdout
        self.assertIn("  not shown: MoE ms, of own bound, bwd ms, fwd ms (--wide)\n", shown)
        for of in (shown, self.run_there(*every, env=wide).stdout):
            rows = re.findall(r"^  (\S+)  +\d+  +\d+  ", of, re.M)
            equal = re.search(r"^  equal: (.*?)\s+\(--wide\)$", of, re.M | re.S)
            named = re.findall(r"([\w+-]+)(?=,|\s+as\s)", equal[1]) if equal else []
            self.assertEqual(len({*rows, *named}), 25, of)
            self.assertEqual(bool(named), of is shown)

    def test_an_element_type_has_a_suggestion(self):
        for given, meant in {"bf16": "bfloat16", "fp16": "float16", "f32": "float32", "fp64": "float64"}.items():
            ran = self.run_there("simulate", "--dtype", given)
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1))
            self.assertIn(f"did you mean '{meant}'?", ran.stderr)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
