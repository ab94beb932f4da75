"""usage: failure_test.py PROGRAM [ROUNDS] [SEED]

`launch`, when a rank dies, stops, runs out of memory or runs something else, at random moments: every other process
ends within the time-out and a few seconds, with one line that names that rank; code 4; nothing is left. And Ctrl-C."""
import concurrent.futures
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from runs import Run, text_of

PROGRAM = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
RANKS, TIMEOUT_S = 4, 5
FEW_SECONDS = 8  # beyond the time-out: to find out who is to blame (2), and the grace of the others' own code (3)
LAYER = ["--ranks-per-node", "2", "--dtype", "float64", "--seq", "64", "--experts", "4", "--heads", "4", "--schedule",
         "fsmoe", "--degree-forward", "2", "--degree-backward", "2"]
SMALL = ["--batch", "8", "--model-dim", "128", "--hidden", "128"]
LARGE = ["--batch", "4", "--model-dim", "1024", "--hidden", "4096"]  # 270 MB of weights and gradients a rank
BESIDES_KB = 30_000, 230_000  # address space of a rank that goes some of the way, beside its libraries'
SHADOWED = re.search("-fsanitize=(address|thread)", os.environ.get("MOETUNE_CXX_FLAGS", ""))

# In the place of moetune-run: what befalls one rank.
WRAPPER = '#!/bin/sh\n[ "$RANK" != "$VICTIM" ] || eval "$DEED"\nexec "$TRUE_PROGRAM" "$@"\n'
OF_LAUNCH = re.compile(r"moetune: rank \d was ended by signal ")
OF_A_RANK = re.compile(r"moetune rank (\d): rank \1 (in (.+)|outside of operations): (.*rank \d .+)")


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="moetune-wrapped-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.wrapped = shutil.copy(PROGRAM, cls.folder)
        with open(cls.wrapped + "-run", "w") as wrapper:
            wrapper.write(WRAPPER)
        os.chmod(wrapper.name, 0o755)
        cls.timeout_s = TIMEOUT_S
        with cls.start(cls, ["--check-only", *SMALL]) as run:
            code = run.wait(300)
            took_s = time.monotonic() - run.started_s
        assert code == 0, run.lines
        # On a machine at full load ranks are silent for long and everything takes longer.
        cls.timeout_s = max(TIMEOUT_S, math.ceil(took_s))
        cls.limit_s = cls.timeout_s + FEW_SECONDS + took_s
        print(f"a run that ends by itself: {took_s:.1f} s; time-out {cls.timeout_s} s", file=sys.stderr)

    def start(self, layer=SMALL, victim="", deed=""):
        """Starts 4 ranks that would run for days, the lanes of both networks busy."""
        passes = [] if "--check-only" in layer else ["--iterations", "1000000"]
        layerbench = ["layerbench", "--cluster", "profile.toml", *passes, "--timeout",
                      str(self.timeout_s), "--json", "--out", "records.jsonl", *LAYER, *layer]
        return Run([self.wrapped, "launch", "--ranks", str(RANKS), "--", *layerbench],
                   {"VICTIM": str(victim), "DEED": deed, "TRUE_PROGRAM": PROGRAM + "-run"}, (2, 2))

    def each_round(self, body):
        """body(the round's random numbers, its victim)."""
        def one(number):
            own = random.Random(f"{SEED} {self.id()} {number}")
            body(own, 0 if number % 2 else own.randrange(1, RANKS))

        self.each(one, range(ROUNDS))

    def each(self, one, values):
        """one(value); two at once, since they mostly wait."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(one, value) for value in values]:
                done.result()

    def at_a_random_moment(self, run, random_numbers, victim):
        """The victim's pid: while the ranks still start, or later."""
        joined = random_numbers.random() < 0.7
        pid = run.wait_for_rank(victim, joined)
        time.sleep(random_numbers.uniform(0, 3 if joined else 0.5))
        run.note_sockets()
        return pid

    def check_end(self, run, speakers, named, since_s, limit_s):
        """All that its ranks printed: a line of each that prints, all of which name a rank."""
        code = run.wait(limit_s)
        took_s = time.monotonic() - since_s
        said = [line for line in run.lines if not OF_LAUNCH.match(line)]
        print(f"{self._testMethodName}, rank {named}: {took_s:.1f} s", *said, sep="\n  ", file=sys.stderr)
        self.assertEqual(code, 4, [run.lines, run.members().keys()])
        self.assertEqual(run.left_behind(), [])
        self.assertEqual(run.out, "")
        self.assertEqual(len(said), speakers, run.lines)
        for line in said:
            self.assertIn(f"rank {named} ", line)
        return said

    def check_tasks(self, said):
        for line in said:
            self.assertRegex(line, OF_A_RANK)
        self.assertEqual(len({OF_A_RANK.match(line)[1] for line in said}), len(said), said)

    def test_killed(self):
        def one(random_numbers, victim):
            with self.start() as run:
                pid = self.at_a_random_moment(run, random_numbers, victim)
                os.kill(pid, signal.SIGKILL)
                said = self.check_end(run, RANKS - 1, victim, time.monotonic(), self.limit_s)
                self.assertIn(f"moetune: rank {victim} was ended by signal 9 (Killed)", run.lines)
                self.check_tasks(said)

        self.each_round(one)

    def test_stopped(self):
        def one(random_numbers, victim):
            with self.start() as run:
                pid = self.at_a_random_moment(run, random_numbers, victim)
                os.kill(pid, signal.SIGSTOP)
                said = self.check_end(run, RANKS - 1, victim, time.monotonic(), self.limit_s)
                self.check_tasks(said)

        self.each_round(one)

    @unittest.skipIf(SHADOWED, "a limit on address space leaves no room for the terabytes of a sanitizer's shadow "
                               "memory, and its allocator ends the process where others let new throw")
    def test_out_of_memory(self):
        libraries_kb = 100_000
        while subprocess.run(["sh", "-c", f'ulimit -v {libraries_kb}; exec "$0" --version', PROGRAM + "-run"],
                             capture_output=True).returncode:
            libraries_kb += libraries_kb // 20

        def one(random_numbers, victim):
            limit_kb = libraries_kb + random_numbers.randrange(*BESIDES_KB)
            with self.start(LARGE, victim, f"ulimit -v {limit_kb}") as run:
                print(f"rank {victim}, limit {limit_kb} KB", file=sys.stderr)
                run.wait_for_rank(victim, joined=False)
                code = run.wait(120)
                print(f"rank {victim}:", *run.lines, sep="\n  ", file=sys.stderr)
                self.assertEqual(code, 4, run.lines)
                self.assertEqual(run.left_behind(), [])
                named = [line for line in run.lines if f"rank {victim} " in line and not OF_LAUNCH.match(line)]
                self.assertGreaterEqual(len(named), RANKS - 1, run.lines)

        self.each_round(one)

    def test_other_flags(self):
        def one(_, victim):
            with self.start(victim=victim, deed='set -- "$@" --seed 7') as run:
                said = self.check_end(run, RANKS, max(victim, 1), time.monotonic(), 60)
                for line in said:
                    self.assertRegex(
                        line, r"rank \d on .+: found flags '(--seed 7)?', expected '(--seed 7)?' as on rank 0")

        self.each_round(one)

    def expect_other_build(self, before, after):
        """One rank runs a copy of the program, in which some bytes are others."""
        other = os.path.join(self.folder, "other-build")
        with open(PROGRAM + "-run", "rb") as source, open(other, "wb") as target:
            target.write(source.read().replace(before, after))
        os.chmod(other, 0o755)

        def one(_, victim):
            with self.start(victim=victim, deed=f"TRUE_PROGRAM={other}") as run:
                said = self.check_end(run, RANKS, max(victim, 1), time.monotonic(), 60)
                for line in said:
                    self.assertRegex(line, r"rank \d on .+: found version '.+', expected '.+' as on rank 0")

        self.each_round(one)

    def test_other_version(self):
        version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout.split()[-1]
        self.expect_other_build(version[:4], b"9" + version[1:4])

    def test_other_commit(self):
        with open(os.path.join(os.path.dirname(PROGRAM), "commands/cli/built_commit.h"), encoding="utf-8") as header:
            commit = re.search('MOETUNE_COMMIT "(.+)"', header.read())[1]
        if commit == "unknown":
            self.skipTest("the sources were built without git")
        self.expect_other_build(commit[:8].encode(), b"01234567")  # compilers cut a text into pieces

    def test_other_text(self):
        """One rank finds another text under the same name, as on a node to which an older one was copied."""
        def one(_, victim):
            words = ["modelbench", "--check-only", "--cluster", "host", "--model", "tiny-gpt", "--schedule", "tutel",
                     "--text", "text", "--out", "records.jsonl", "--timeout", str(self.timeout_s)]
            deed = 'mkdir other; head -c 20000 /dev/zero | tr "\\0" b > other/text; cd other'
            with Run(["sh", "-c", 'head -c 20000 /dev/zero | tr "\\0" a > text; exec "$@"', "sh", self.wrapped,
                      "launch", "--ranks", str(RANKS), "--", *words],
                     {"VICTIM": str(victim), "DEED": deed, "TRUE_PROGRAM": PROGRAM + "-run"}) as run:
                self.assertEqual(run.wait(120), 2, run.lines)
                self.assertEqual(run.lines, [line for line in run.lines if "text: found other contents on rank "
                                             f"{victim or 1} than on rank 0" in line])
                self.assertEqual(len(run.lines), 1)

        self.each_round(one)

    def test_few_open_files(self):
        """Libraries say where in their sources they failed; we say what is short."""
        def one(files):
            with self.start(victim=1, deed=f"ulimit -n {files}") as run:
                self.assertEqual(run.wait(self.limit_s + 60), 4, run.lines)
                said = "\n".join(run.lines)
                print(f"{files} open files:", said, sep="\n", file=sys.stderr)
                self.assertNotRegex(said, r"enforce fail|Exception raised|frame #|\.c(pp|c):")
                self.assertIn(f"rank 1 found a limit of {files} open files, expected at least 40 (ulimit -n)", said)
                self.assertEqual(run.left_behind(), [])

        self.each(one, (12, 30, 38))

    def test_one_rank_asked_to_stop(self):
        """All ranks of a training end after the same step, and rank 0 says who was asked."""
        def one(random_numbers, victim):
            words = ["modelbench", "--cluster", "profile.toml", "--model", "tiny-gpt", "--dtype", "float64",
                     "--schedule", "tutel", "--steps", "1000000", "--out", "records.jsonl", "--timeout",
                     str(self.timeout_s), "--ranks-per-node", "2"]
            with Run([PROGRAM, "launch", "--ranks", str(RANKS), "--", *words], cluster=(2, 2)) as run:
                pid = run.wait_for_rank(victim, joined=True)
                caught = 1 << (signal.SIGTERM - 1)
                while not int(re.search(r"SigCgt:\s*(\w+)", text_of(f"/proc/{pid}/status"))[1], 16) & caught:
                    time.sleep(0.05)
                time.sleep(random_numbers.uniform(0, 2))
                os.kill(pid, signal.SIGTERM)
                self.assertEqual(run.wait(self.limit_s), 4, run.lines)
                self.assertEqual(len(run.lines), 1, run.lines)
                self.assertRegex(run.lines[0], rf"stopped after step \d+ of 1000000: rank {victim} was asked to stop")
                self.assertEqual(run.left_behind(), [])

        self.each_round(one)

    def test_interrupted(self):
        """Ctrl-C signals every process of a terminal's group, a script launch alone."""
        def one(random_numbers, victim):
            with self.start() as run:
                self.at_a_random_moment(run, random_numbers, victim)
                (os.killpg if victim else os.kill)(run.process.pid, signal.SIGINT)
                since_s = time.monotonic()
                code = run.wait(self.limit_s - self.timeout_s)
                print(f"{self._testMethodName}: {time.monotonic() - since_s:.1f} s", file=sys.stderr)
                self.assertEqual((code, run.lines, run.out), (130, [], ""))
                self.assertEqual(run.left_behind(), [])

        self.each_round(one)

    def test_launch_killed(self):
        def one(random_numbers, victim):
            with self.start() as run:
                self.at_a_random_moment(run, random_numbers, victim)
                run.process.kill()
                run.process.wait()
                self.assertEqual(run.left_behind(), [])

        self.each_round(one)


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
