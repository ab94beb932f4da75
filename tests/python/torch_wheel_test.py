"""usage: torch_wheel_test.py VERSION

Builds the wheel with the layer by cmake/wheel.sh --torch, for the torch that is installed, and runs torch_test.py in
it; with another torch it says in one line which one it was built for."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
VERSION = sys.argv[1]
MOST_BYTES = 16 << 20
NEEDED = ("pip", "venv", "torch")


def call(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class TorchWheel(unittest.TestCase):
    def test_builds_and_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            call(ROOT / "cmake/wheel.sh", "--torch", folder,
                 env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"})
            wheel, = folder.glob("*.whl")
            version = call(sys.executable, "-c", "import torch; print(torch.__version__.split('+')[0])").strip()
            self.assertTrue(wheel.name.startswith(f"moetune-{VERSION}-1torch{version}-py3-none-manylinux_"), wheel)
            self.assertLess(wheel.stat().st_size, MOST_BYTES)
            held = zipfile.ZipFile(wheel).namelist()
            self.assertFalse([name for name in held if "libtorch" in name or "libc10" in name], held)
            for name in f"moetune/lib/libmoetune_torch-{version}.so", "moetune/torch.py", "moetune/bin/moetune":
                self.assertIn(name, held)
            site = folder / "site"
            call(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
            names = {key: value for key, value in os.environ.items() if not key.startswith("MOETUNE_")}
            refused = subprocess.run([sys.executable, "-c", "import torch; torch.__version__ = '2.99.0+cpu'; "
                                      "import moetune.torch"], capture_output=True, text=True, check=False,
                                     env={**names, "PYTHONPATH": str(site)})
            self.assertEqual(refused.stderr.splitlines()[-1], "ImportError: moetune.torch: found torch 2.99.0, "
                             f"expected {version}, which it was built for")
            print(call(sys.executable, "-B", ROOT / "tests/python/torch_test.py", cwd=folder,
                       env={**names, "PYTHONPATH": str(site)}))


if __name__ == "__main__":
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} lacks {', '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
