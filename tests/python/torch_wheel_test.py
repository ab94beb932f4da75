"""usage: torch_wheel_test.py VERSION

Builds the package with the layer as a user does, for the torch that is installed, and runs torch_test.py in it."""
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
NEEDED = ("pip", "scikit_build_core", "torch")


def call(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class TorchWheel(unittest.TestCase):
    def test_builds_and_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            call(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder,
                 "-C", "cmake.define.MOETUNE_TORCH=ON", "-C", f"build-dir={ROOT}/build/wheel-torch", ROOT)
            wheel, = folder.glob("*.whl")
            self.assertTrue(wheel.name.startswith(f"moetune-{VERSION}-py3-none-linux_"), wheel)
            held = zipfile.ZipFile(wheel).namelist()
            version = call(sys.executable, "-c", "import torch; print(torch.__version__.split('+')[0])").strip()
            for name in f"moetune/lib/libmoetune_torch-{version}.so", "moetune/torch.py", "moetune/bin/moetune":
                self.assertIn(name, held)
            site = folder / "site"
            call(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
            names = {key: value for key, value in os.environ.items() if not key.startswith("MOETUNE_")}
            print(call(sys.executable, "-B", ROOT / "tests/python/torch_test.py", cwd=folder,
                       env={**names, "PYTHONPATH": str(site)}))


if __name__ == "__main__":
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: {sys.executable} lacks {', '.join(missing)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
