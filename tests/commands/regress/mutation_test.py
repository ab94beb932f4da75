"""usage: mutation_test.py PROGRAM SOURCE

Builds this project once more with one copy too many in a kernel, the order of rows, and holds `ab` to finding it: that
kernel's case is slower and named, the one of a kernel that was left alone is not."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
del sys.argv[1:3]
KERNEL = "moe/layer/orders/tutel.cpp"
COPIES = """    for_each_token(routing, width, [&](int64_t token) {
      for_each_kept(routing, rows.layout, token, [&](int64_t, int64_t at) {
        std::copy_n(tokens.as<T>() + token * width, width, rows.data.as<T>() + at);
      });
    });
"""
CASE = ["microbench", "--cluster", "host", "--op", "module", "--modules=order:tutel,gate:gshard"]


class Mutation(unittest.TestCase):
    def setUp(self):
        self.tree = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=SOURCE, capture_output=True, text=True)
        if listed.returncode != 0:
            self.skipTest("no checkout: which files are the project's is not known")
        for name in filter(None, listed.stdout.split("\0")):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, self.tree / name)

    def test_a_copy_too_many_is_found(self):
        kernel = self.tree / KERNEL
        text = kernel.read_text()
        self.assertEqual(text.count(COPIES), 1)
        kernel.write_text(text.replace(COPIES, COPIES + COPIES))
        # Builds it; a compiler cache knows its sources again in another folder.
        env = {**os.environ, "CI": "1", "CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1"}
        subprocess.run([self.tree / "moetune", *CASE, "--out", self.tree / "first.jsonl"], check=True,
                       stdout=subprocess.DEVNULL, env=env)
        command = [PROGRAM, "ab", "--base", PROGRAM, "--head", self.tree, "--json", "--quiet", "--out",
                   self.tree / "ab.jsonl", "--", *CASE]
        found = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
        verdicts = {case["case"]: case["verdict"] for case in json.loads(found.stdout)["cases"]}
        slow = {case for case, verdict in verdicts.items() if verdict == "SLOW"}
        print(json.dumps(verdicts, indent=1), file=sys.stderr)
        self.assertTrue(slow)
        for case in slow:
            self.assertIn("order:tutel", case)


if __name__ == "__main__":
    unittest.main()
