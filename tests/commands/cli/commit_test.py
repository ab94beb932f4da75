"""The commit in records is the one that a program was built from: commit_test.py CMAKE PROGRAM."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[3]
CMAKE, PROGRAM = sys.argv[1], sys.argv[2]
ENVIRONMENT = {**os.environ, **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER")
                                for what in ("NAME", "EMAIL")}}


class Commit(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moetune-commit-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.sources, self.header = self.folder / "sources", self.folder / "built_commit.h"
        self.sources.mkdir()

    def git(self, *words):
        return subprocess.run(["git", "-C", self.sources, *words], env=ENVIRONMENT, check=True, text=True,
                              capture_output=True).stdout.strip()

    def write_header(self):
        subprocess.run([CMAKE, "-D", f"SOURCE={self.sources}", "-D", f"HEADER={self.header}", "-P",
                        ROOT / "cmake" / "commit.cmake"], check=True, env={**ENVIRONMENT, "GIT_CEILING_DIRECTORIES":
                                                                           str(self.folder)})
        return self.header.read_text(encoding="utf-8")

    def expect(self, commit, dirty):
        self.assertEqual(self.write_header(), f'#define MOETUNE_COMMIT "{commit}"\n#define MOETUNE_DIRTY {dirty}\n')

    def test_the_header_follows_the_sources(self):
        self.expect("unknown", 0)
        self.git("init", "-q")
        self.expect("unknown", 0)
        (self.sources / "a").write_text("1")
        self.git("add", "a")
        self.git("commit", "-qm", "a")
        self.git("tag", "v1")
        self.expect(self.git("rev-parse", "HEAD"), 0)
        os.utime(self.header, (1, 1))
        self.expect(self.git("rev-parse", "HEAD"), 0)
        self.assertEqual(self.header.stat().st_mtime, 1, "a header that says so already is not written again")
        (self.sources / "a").write_text("2")
        self.expect(self.git("rev-parse", "HEAD"), 1)

    def test_a_program_says_what_it_was_built_from(self):
        built = (pathlib.Path(PROGRAM).parent / "commands/cli/built_commit.h").read_text(encoding="utf-8")
        subprocess.run([PROGRAM, "simulate", "--schedule", "tutel", "--out", self.folder / "r.jsonl"], check=True,
                       capture_output=True, env={**ENVIRONMENT, "PATH": "/nowhere"})
        with (self.folder / "r.jsonl").open(encoding="utf-8") as records:
            git = json.loads(next(records))["git"]
        self.assertIn(f'MOETUNE_COMMIT "{git["commit"]}"', built)
        self.assertIn(f'MOETUNE_DIRTY {int(git.get("dirty", False))}', built)


if __name__ == "__main__":
    if shutil.which("git") is None:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
