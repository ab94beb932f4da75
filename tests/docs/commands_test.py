"""usage: commands_test.py PROGRAM PARSER [--running]

Runs the commands and the Python of README and docs, a page from top to bottom in a folder of its own: those that plan,
or with --running those that run layers too. What is not run is parsed, or stands in a table with the reason. What a
page shows of a command's output is what it prints."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from pages import PLACEHOLDER, ROOT, commands, moetune_words, pages

RUNNING = "--running" in sys.argv
PROGRAM, PARSER = map(os.path.abspath, sys.argv[1:3])
PLANNING_VERBS = ("list", "doctor", "simulate", "fit", "memory", "model", "placement", "plannerbench", "reproduce",
                  "export", "import", "report")
SCRIPTS_OWN = ("test", "--version")  # of ./moetune itself

# Commands of others: how each begins, and why it is not run here.
OTHERS = {
    "torchrun": "a launcher; tests/launch/launchers_test.py starts ranks by it",
    "mpirun": "a launcher; tests/launch/launchers_test.py starts ranks by it",
    "srun": "a launcher of clusters; tests/launch/launchers_test.py sets its variables",
    "cmake": "the build itself; tests/examples/installed_test.py installs it, tests/package makes packages",
    "cpack": "packages; tests/package makes and tries them",
    "ctest": "runs this very test",
    "cmake/gpu_day.sh": "needs a GPU; tests/gpu_day runs it with stand-ins",
    "pip": "installs into this machine; tests/python lays the package out and runs it",
    "cmake/wheel.sh": "builds for minutes; tests/python builds a wheel",
    "tests/plots/samples.sh": "writes into the checkout",
}
# Commands that run layers for minutes, or write into the checkout: parsed, never run here.
LONG = {
    "tune --grid fsmoe-30-b --measure all": "30 layers under four schedules: minutes",
    "launch --ranks 4 -- layerbench --serve --ranks-per-node 2 --batches 8 --layers 4 --batch 1 --seq 128 "
    "--model-dim 128 --hidden 256 --experts 8": "measures processes for minutes; tests/launch has a profile",
    "microbench --kernels": "two minutes; tests/microbench checks the kernels",
    "reproduce --all --write docs/reproduction.md": "tests/reproduce holds the page to it",
    "self-test --cases tiny": "minutes; tests/regress calls it with quick programs",
    "self-test --simulate --resamples 4200": "minutes; tests/regress studies the rule on fewer gates",
    "ab --base ../before --head . --cases tiny": "two checkouts; tests/regress calls it with quick programs",
    "ab --base ../megatron-main --head ../megatron --metric megatron -- bash train.sh":
        "other people's programs; tests/regress has stand-ins",
    "ab --base ../before --head . --metric ([0-9.]+) tokens/s --unit 1/s -- python3 train.py --steps 20":
        "other people's programs; tests/regress has stand-ins",
    "ab --base ../before --head . --metric nsys:iteration -- nsys profile --trace cuda,nvtx --export sqlite "
    "--force-overwrite true -o run python3 train.py --steps 20": "other people's programs; tests/regress has stand-ins",
    "ab --base ../base --head . --cases gpu --markdown": "needs a GPU and two checkouts",
    "ab --head-flags --slow expert:1.1 -- layerbench --cluster host --no-predict --schedule fsmoe "
    "--degree-forward 2 --degree-backward 2": "twelve launches at least; tests/regress has quicker ones",
}
CHECKS_A_DUMP = "tests/dump/check_dump.py"
SKIPPED = 77  # a script without its modules
NEEDS = {"--device": "a GPU", "--backend": "processes that a launcher starts"}
# Files that a page's commands read and a machine without LibTorch cannot make.
SEEDS = {"results/microbench-testbed-b.jsonl": "tests/plots/data/microbench.jsonl",
         "results/microbench-host.jsonl": "tests/plots/data/microbench.jsonl",
         "results/fsmoe-b-emulated.jsonl.gz": "results/fsmoe-b-emulated.jsonl.gz",
         "results/fsmoe-fig6-models.json.gz": "results/fsmoe-fig6-models.json.gz",
         "results/layerbench-testbed-b.jsonl": "tests/plots/data/verified.jsonl",
         "results/layerbench-a100-8.jsonl": "tests/plots/data/served.jsonl",
         "results/modelbench-host.jsonl": "tests/plots/data/training.jsonl",
         "results/tune-gloo-2x4.toml": "tests/plots/data/fitted.toml"}


def plans_only(words):
    return words[0] in PLANNING_VERBS or "--no-verify" in words or "--help" in words


def reason_not_to_run(words):
    call = moetune_words(words)
    if words[0] == "python3" and words[1] == CHECKS_A_DUMP:
        return None if RUNNING else "needs what layers leave"
    if words[:3] == ["python3", "-m", "moetune.torch_bench"]:
        return "needs a package built for torch; tests/python runs it"
    if words[0] == "python3" and call is None:
        return None if PLOTTING or "plots/" not in words[1] else "no matplotlib; tests/plots draws every picture"
    if call is None:
        return OTHERS[words[0]]
    if call[0] in SCRIPTS_OWN:
        return "the script's own: builds and runs all tests"
    if " ".join(call) in LONG:
        return LONG[" ".join(call)]
    for flag, need in NEEDS.items():
        if flag in call:
            return f"needs {need}"
    return None if RUNNING or plans_only(call) else "runs layers"


def plotting_python():
    for python in filter(os.path.exists, (sys.executable, "/usr/bin/python3")):
        if subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0:
            return python
    return None


PLOTTING = plotting_python()


class Folder:
    """A checkout to run in: the tree's folders by links, docs and results of its own, `./moetune` the built program."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        for entry in ROOT.iterdir():
            if entry.is_dir() and entry.name not in ("build", "results", "docs", ".git"):
                (self.path / entry.name).symlink_to(entry)
        shutil.copytree(ROOT / "docs", self.path / "docs")
        (self.path / "results").mkdir()
        for name, source in SEEDS.items():
            shutil.copy(ROOT / source, self.path / name)
        shim = self.path / "moetune"
        shim.write_text(f'#!/bin/sh\nexec {PROGRAM} "$@"\n')
        shim.chmod(0o755)

    def run(self, words):
        if words[0] == "python3":
            words = [PLOTTING or sys.executable, "-B", *words[1:]]
        elif words[0] == "moetune":
            words = ["./moetune", *words[1:]]
        modules = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        package = {**os.environ, "PYTHONPATH": modules, "MOETUNE_PROGRAM": PROGRAM}
        return subprocess.run(words, cwd=self.path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=package)


def headings(text):
    """The heads of a text's tables, as words."""
    lines = text.splitlines()
    return [" ".join(line.split()) for line, below in zip(lines, lines[1:]) if re.fullmatch(r"\s*-[- ]*", below)]


class Pages(unittest.TestCase):
    maxDiff = None

    def parse(self, calls):
        """`calls`: (where, words of moetune)."""
        split = []
        for where, words in calls:
            split.append((where, words))
            if "--" in words and "--metric" not in words:  # what launch starts, as it does
                started = words[words.index("--") + 1:]
                split.append((where, started + ([] if "--backend" in started else ["--backend", "gloo"])))
        lines = "".join("\t".join(words) + "\n" for _, words in split)
        verdicts = subprocess.run([PARSER], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
        for (where, words), verdict in zip(split, verdicts, strict=True):
            self.assertEqual(verdict, "ok", f"{where}: {' '.join(words)}")

    def test_every_command_can_be_parsed(self):
        calls = []
        for page in pages():
            for block in page.blocks:
                if block.language == "sh":
                    calls += [(block, moetune_words(words)) for words in commands(block.text) if moetune_words(words)]
            for span in page.spans():
                if span.startswith(("./moetune ", "moetune ")) and not PLACEHOLDER.search(span):
                    calls.append((page.path, span.split()[1:]))
        calls = [(where, words) for where, words in calls if words[0] not in SCRIPTS_OWN and "--help" not in words]
        self.assertGreater(len(calls), 40)
        self.parse(calls)

    def test_every_command_that_is_not_run_has_its_reason(self):
        others, calls = set(), set()
        for page in pages():
            for block in page.blocks:
                for words in commands(block.text) if block.language == "sh" else []:
                    self.assertIn(words[0], ["./moetune", "moetune", "python3", *OTHERS], f"{block}: {' '.join(words)}")
                    others.add(words[0])
                    calls.add(" ".join(moetune_words(words) or []))
        self.assertEqual(set(OTHERS) - others, set(), "reasons for no command")
        self.assertEqual(set(LONG) - calls, set(), "reasons for no command")

    def check_output(self, block, shown, printed):
        if not plans_only(moetune_words(commands(block.text)[-1])):  # measured: the tables alone are alike
            missing = [head for head in headings(shown.text) if head not in headings(printed)]
            self.assertEqual(missing, [], f"{shown}: tables that the command does not print")
            return
        pattern = "".join("(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + " *\n"
                          for line in shown.text.splitlines())
        if not re.fullmatch(pattern + "(?:\\s*records.*\n)?", printed):
            self.assertEqual(shown.text, printed, f"{shown} is not what {block} prints")

    def run_page(self, page, folder):
        ran = 0
        for block in page.blocks:
            if block.name and block.language in ("toml", "csv"):
                (folder.path / block.name).write_text(block.text)
            if block.language == "python" and "moetune.torch" not in block.text:  # tests/python/torch_test.py runs it
                done = folder.run(["python3", "-c", block.text])
                self.assertEqual(done.returncode, 0, f"{block}\n{done.stderr}")
                shown = page.output_of(block)
                self.assertEqual(shown.text if shown else "", done.stdout, block)
                ran += 1
            if block.language != "sh":
                continue
            calls = commands(block.text)
            for words in calls:
                reason = reason_not_to_run(words)
                if reason:
                    continue
                done = folder.run(words)
                fine = (0, SKIPPED) if words[0] == "python3" else (0,)
                self.assertIn(done.returncode, fine, f"{block}: {' '.join(words)}\n{done.stdout[-2000:]}{done.stderr}")
                ran += 1
                shown = page.output_of(block)
                if shown and words is calls[-1]:
                    self.check_output(block, shown, done.stdout)
        return ran

    def test_commands_run(self):
        ran = 0
        for page in pages():
            with self.subTest(page=page.path), tempfile.TemporaryDirectory() as scratch:
                ran += self.run_page(page, Folder(scratch))
        print(f"{ran} commands ran")
        self.assertGreater(ran, 20)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
