"""usage: package_test.py BUILD VERSION

Lays the package out as the wheel does, with what the components planning and data install, and runs it by several
Pythons, as another user, from a folder that nobody may write."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
BUILD, VERSION = sys.argv[1], sys.argv[2]
LAYER = ["--batch", "1", "--seq", "256", "--model-dim", "512", "--hidden", "1024"]
NOBODY = 65534
SYSTEMS = "/usr/bin/python3"


def pythons():
    """One of each release from 3.9 on: the system's, which any user may run, this one, and those of pyenv."""
    found = {}
    for path in filter(os.path.exists, [SYSTEMS, sys.executable,
                                        *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")))]):
        done = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True,
                              text=True, check=False)
        release = done.stdout.strip()
        if done.returncode == 0 and tuple(map(int, release.split("."))) >= (3, 9):
            found.setdefault(release, path)
    return found


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="moetune-python-"))
        cls.scratch.chmod(0o755)
        cls.site = cls.scratch / "site-packages"
        shutil.copytree(ROOT / "python", cls.site, ignore=shutil.ignore_patterns("__pycache__"))
        for component in "planning", "data":
            subprocess.run(["cmake", "--install", BUILD, "--component", component, "--prefix", cls.site / "moetune"],
                           check=True, capture_output=True)
        for path in [cls.site, *cls.site.rglob("*")]:
            path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)

    @classmethod
    def tearDownClass(cls):
        for path in [cls.site, *(each for each in cls.site.rglob("*") if each.is_dir())]:
            path.chmod(0o755)
        shutil.rmtree(cls.scratch)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moetune-python-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_as_user(self, python, *words, code=0):
        user = {}
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
            if python == SYSTEMS:  # others may be in a home folder
                user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        names = {key: value for key, value in os.environ.items() if not key.startswith("MOETUNE_")}
        done = subprocess.run([python, *words], cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**names, "PYTHONPATH": str(self.site), "HOME": "/nonexistent"}, **user)
        self.assertEqual(done.returncode, code, f"{python} {words}\n{done.stdout}{done.stderr}")
        return done

    def test_runs_by_every_python(self):
        ran = pythons()
        for release, python in ran.items():
            with self.subTest(release=release):
                done = self.run_as_user(python, "-m", "moetune", "--version")
                self.assertEqual(done.stdout, f"moetune {VERSION}\n")
                self.run_as_user(python, "-m", "moetune", "tune", "--no-verify", *LAYER, "--cluster", "testbed-b")
                self.assertTrue((self.folder / "results" / "plan-testbed-b.jsonl").exists())
                shutil.rmtree(self.folder / "results")
                done = self.run_as_user(python, "-c", "from moetune import plan\n"
                                        "print(plan.memory('mixtral-7b').model, plan.tune(batch=1).use.schedule)")
                self.assertRegex(done.stdout, r"^mixtral-7b [a-z-]+\n$")
        print("ran by Python", ", ".join(f"{release} ({python})" for release, python in ran.items()))

    def test_verbs_that_run_layers_say_what_to_do(self):
        python = next(iter(pythons().values()))
        for words, advice in ((["layerbench"], "Debian package moetune"), (["modelbench"], "./moetune modelbench"),
                              (["tune", "--cluster", "host"], "add --no-verify"), (["microbench"], "checkout")):
            done = self.run_as_user(python, "-m", "moetune", *words, code=2)
            self.assertEqual(done.stdout, "")
            self.assertRegex(done.stderr, rf"^moetune: {words[0]} runs layers, but .*{re.escape(advice)}.*\n$")
        done = self.run_as_user(python, "-m", "moetune", "layerbench", code=2)
        self.assertNotIn("--no-verify", done.stderr)

    def test_completion_asks_the_command(self):
        completion = self.site / "moetune/share/bash-completion/completions/moetune"
        command = self.folder / "moetune"
        command.write_text(f"#!/bin/sh\nexec {next(iter(pythons().values()))} -m moetune \"$@\"\n")
        command.chmod(0o755)
        asked = (f"source {completion}; COMP_LINE='{command} simulate --recom'; COMP_POINT=${{#COMP_LINE}}; "
                 f"_moetune {command}; echo \"${{COMPREPLY[@]}}\"")
        self.assertEqual(self.run_as_user("bash", "-c", asked).stdout.strip(), "--recompute")


if __name__ == "__main__":
    if shutil.which("cmake") is None:
        print("skipped: there is no cmake")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
