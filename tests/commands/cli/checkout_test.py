"""`./moetune` in a checkout that its user may not write, and what it says before it builds or fetches anything.

The script runs in a folder of its own, whose program prints its arguments."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[3]
NOBODY = 65534


class Checkout(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="moetune-checkout-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copy(ROOT / "moetune", self.root / "moetune")
        (self.root / "cmake").mkdir()
        shutil.copy(ROOT / "cmake" / "libtorch.sh", self.root / "cmake")
        (self.root / "commands/cli").mkdir(parents=True)
        shutil.copy(ROOT / "commands/cli/verbs.cpp", self.root / "commands/cli")
        (self.root / "bin").mkdir()
        self.root.chmod(0o755)

    def built(self, preset, torch=""):
        """A build that is older than the sources."""
        program = self.root / "build" / preset / "moetune"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho {preset} ran $*\n")
        program.chmod(0o755)
        stamp = self.root / "build" / preset / ".built"
        stamp.write_text(torch)
        os.utime(stamp, (1, 1))

    def fresh(self, preset):
        os.utime(self.root / "build" / preset / ".built")

    def run_verb(self, *words, **environment):
        """As another user where this one may write everything, else with the rights taken away."""
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        folders = [path for path in (self.root, *self.root.rglob("*")) if path.is_dir()]
        for folder in folders:
            folder.chmod(0o555)
        try:
            return subprocess.run([self.root / "moetune", *words], capture_output=True, text=True, timeout=60,
                                  cwd=self.root, env={**os.environ, "CI": "true", **environment}, **other)
        finally:
            for folder in folders:
                folder.chmod(0o755)

    def test_what_is_built_runs(self):
        for preset in ("plan", "release"):
            self.built(preset, torch="/root/not-for-others" if preset == "release" else "")
            for verb in (["list"], ["simulate"], ["tune", "--no-verify"], ["tune", "--help"]):
                ran = self.run_verb(*verb)
                self.assertEqual(ran.stdout, f"{preset} ran {' '.join(verb)}\n", ran.stderr)
                self.assertEqual(ran.stderr.count("\n"), 1)
                self.assertIn("can't be written: running what was built there", ran.stderr)
        self.fresh("release")
        ran = self.run_verb("list")
        self.assertEqual((ran.stdout, ran.stderr), ("release ran list\n", ""))

    def test_nothing_built_is_a_line(self):
        for verb in ("list", "tune", "test"):
            ran = self.run_verb(verb)
            self.assertEqual((ran.returncode, ran.stdout, ran.stderr.count("\n")), (2, "", 1), ran.stderr)
            self.assertIn(f"moetune: {self.root}/build can't be written", ran.stderr)

    def test_history_looks_for_its_input_first(self):
        self.built("plan")
        self.fresh("plan")
        python = self.root / "bin" / "python3"
        python.write_text("#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
        (self.root / "empty").mkdir()
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        for folder in ("nowhere", "empty"):
            ran = self.run_verb("history", folder, PATH=path, HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
            self.assertEqual((ran.stdout, ran.stderr), (f"plan ran history {folder}\n", ""))

    def test_a_typo_has_a_suggestion(self):
        for typo, meant in {"tuen": "tune", "simlate": "simulate", "histroy": "history", "simul": "simulate"}.items():
            ran = self.run_verb(typo)
            self.assertEqual(ran.returncode, 2)
            self.assertTrue(ran.stderr.endswith(f"; did you mean '{meant}'?\n"), ran.stderr)
        self.assertNotIn("did you mean", self.run_verb("xyzzy").stderr)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
