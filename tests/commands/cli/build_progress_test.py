"""`./moetune` while it builds: how far it is, on a terminal and in a log; nothing where nothing is to be built.

The script runs in a folder of its own, with a cmake in its path that configures nothing and builds with the real ninja:
steps that sleep instead of compiling.
"""

import fcntl
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

ROOT = pathlib.Path(__file__).parents[3]
STEP = re.compile(r"moetune: building plan: step (\d+) of (\d+), about (\d+) (s|min) left")
CMAKE = """#!/bin/sh
[ "$1" = --build ] || exit 0
cd build/plan && exec ninja -j 1
"""


class BuildProgress(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="moetune-progress-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copy(ROOT / "moetune", self.root / "moetune")
        (self.root / "cmake").mkdir()
        shutil.copy(ROOT / "cmake" / "libtorch.sh", self.root / "cmake")
        (self.root / "commands/cli").mkdir(parents=True)
        shutil.copy(ROOT / "commands/cli/verbs.cpp", self.root / "commands/cli")
        (self.root / "moe").mkdir()
        (self.root / "bin").mkdir()
        self.program(self.root / "bin" / "cmake", CMAKE)
        self.program(self.root / "bin" / "ccache", "#!/bin/sh\n")  # not worth installing for this
        if (ROOT / ".staged").exists():
            (self.root / ".staged").symlink_to(ROOT / ".staged")
        build = self.root / "build" / "plan"
        build.mkdir(parents=True)
        self.program(build / "moetune", "#!/bin/sh\necho ran $*\n")

    @staticmethod
    def program(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def steps(self, count, seconds, last="touch $out"):
        names = [f"o{i}" for i in range(count)]
        rules = f"rule slow\n  command = sleep {seconds} && touch $out\nrule last\n  command = {last}\n"
        builds = "".join(f"build {name}: slow\n" for name in names)
        text = rules + builds + f"build all: last {' '.join(names)}\ndefault all\n"
        (self.root / "build" / "plan" / "build.ninja").write_text(text)

    def environment(self):
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "CI": "true", "MOETUNE_TORCH_DIR": "/nonexistent"}

    def run_verb(self):
        return subprocess.run([self.root / "moetune", "list"], env=self.environment(), capture_output=True, text=True,
                              timeout=120)

    def test_a_log_has_a_line_each_tenth(self):
        self.steps(29, 0.15)
        ran = self.run_verb()
        self.assertEqual((ran.returncode, ran.stdout), (0, "ran list\n"), ran.stderr)
        lines = [STEP.fullmatch(line) for line in ran.stderr.splitlines() if ": step " in line]
        self.assertNotIn(None, lines, ran.stderr)
        steps = [int(line[1]) for line in lines]
        self.assertEqual(steps, sorted(set(steps)), ran.stderr)
        self.assertEqual({line[2] for line in lines}, {"30"}, ran.stderr)
        self.assertTrue(4 <= len(steps) <= 11, ran.stderr)
        left = [int(line[3]) for line in lines]
        self.assertGreater(left[0], left[-1], ran.stderr)
        self.assertNotIn("\r", ran.stderr)

    def test_a_step_that_fails_says_why(self):
        self.steps(3, 0.5, last="echo what the compiler says && false")
        ran = self.run_verb()
        self.assertEqual(ran.returncode, 2, ran.stderr)
        self.assertIn("\nwhat the compiler says\n", ran.stderr)
        self.assertTrue(ran.stderr.endswith("moetune: the build failed\n"), ran.stderr)
        self.assertEqual(ran.stdout, "")

    def test_nothing_to_build_is_nothing_to_show(self):
        self.steps(2, 0.01)
        self.assertEqual(self.run_verb().returncode, 0)
        (self.root / "moe" / "newer.cpp").touch()  # a source that no step reads
        ran = self.run_verb()
        self.assertEqual((ran.returncode, ran.stdout), (0, "ran list\n"))
        self.assertNotIn("step", ran.stderr)
        self.assertNotIn("ninja", ran.stderr)

    def test_a_terminal_has_one_line_that_rewrites_itself(self):
        self.steps(12, 0.25)
        try:
            screen, terminal = pty.openpty()
        except OSError as error:
            self.skipTest(f"no terminal to be had: {error}")
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))
        self.program(self.root / "build" / "plan" / "moetune", "#!/bin/sh\necho ran in $COLUMNS columns\n")
        ran = subprocess.Popen([self.root / "moetune", "list"], env={**self.environment(), "COLUMNS": "200"},
                               stdin=terminal, stdout=subprocess.PIPE, stderr=terminal)
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(screen, 4096)
            except OSError:  # all of its writers have ended
                break
            if not part:
                break
            shown += part
        self.assertEqual(ran.communicate(timeout=60)[0], b"ran in 200 columns\n")
        self.assertEqual(ran.returncode, 0, shown)
        last = shown.decode().split("\n")[-1]
        rewritten = [STEP.fullmatch(text) for text in last.split("\r\x1b[K") if text]
        self.assertGreaterEqual(len(rewritten), 3, shown)
        self.assertNotIn(None, rewritten, shown)
        self.assertTrue(last.endswith("\r\x1b[K"), shown)

    def test_the_version_is_the_projects(self):
        ran = subprocess.run([ROOT / "moetune", "--version"], capture_output=True, text=True, timeout=60)
        project = re.search(r"project\(moetune VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertEqual((ran.returncode, ran.stdout), (0, f"moetune {project[1]}\n"), ran.stderr)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
