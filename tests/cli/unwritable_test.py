"""usage: unwritable_test.py PROGRAM

Answers where no file can be written, and output on a narrow terminal."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
LAYER = ["--schedule", "fsmoe,tutel"]


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
        for words in (["simulate"], ["simulate", "--schedule", "fsmoe"], ["list"], ["simulate", "--help"], ["memory"]):
            for columns in (80, 100, 120):
                ran = self.run_there(*words, env={**os.environ, "COLUMNS": str(columns)})
                self.assertEqual(ran.returncode, 0, ran.stderr)
                wide = [line for line in ran.stdout.splitlines() if len(line) > columns and "./moetune" not in line]
                self.assertEqual(wide, [], (words, columns))
        without = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        for bad in ("", "0", "-5", "many"):
            self.assertEqual(self.run_there("simulate", env={**without, "COLUMNS": bad}).stdout,
                             self.run_there("simulate", env=without).stdout)

    def test_an_element_type_has_a_suggestion(self):
        for given, meant in {"bf16": "bfloat16", "fp16": "float16", "f32": "float32", "fp64": "float64"}.items():
            ran = self.run_there("simulate", "--dtype", given)
            self.assertEqual((ran.returncode, ran.stderr.count("\n")), (2, 1))
            self.assertIn(f"did you mean '{meant}'?", ran.stderr)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
