"""Ranks that are killed, stopped, hang, throw or differ end the run on all others.

failures_test.py PROGRAM ROUNDS [CASE...]; SEED in the environment repeats what a failed run printed.
"""

import functools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from ranks import start

RANKS, TIMEOUT_S, GRACE_S = 4, 5, 8
START_S = 60  # of four processes on a busy machine
PROGRAM, ROUNDS = sys.argv[1], int(sys.argv[2])


def lines(file):
    file.seek(0)
    return file.read().decode().splitlines()


class Run:
    """RANKS processes in their loop; `odd` is one rank's other arguments."""

    def __init__(self, odd_rank=None, odd=(), usual=("loop",)):
        self.errors = [tempfile.TemporaryFile() for _ in range(RANKS)]
        self.out = tempfile.TemporaryFile()
        self.folder = tempfile.TemporaryDirectory()
        self.processes = start(RANKS,
                               lambda rank: [PROGRAM, str(TIMEOUT_S), *(odd if rank == odd_rank else usual)],
                               lambda rank: dict(stderr=self.errors[rank], stdout=self.out), self.folder.name)

    def wait_until_running(self):
        while not lines(self.out):
            assert all(process.poll() is None for process in self.processes), [lines(file) for file in self.errors]
            time.sleep(0.01)

    def end(self, ranks, within_s):
        """Waits for these processes; returns how long the last took. None may be left."""
        begin = time.monotonic()
        for rank in ranks:
            try:
                self.processes[rank].wait(max(0.01, begin + within_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.clean_up()
                raise AssertionError(f"rank {rank} still runs after {within_s} s: {[lines(f) for f in self.errors]}")
        return time.monotonic() - begin

    def clean_up(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def check_lines(run, ranks, said, code=4):
    for rank in ranks:
        assert run.processes[rank].returncode == code, (rank, run.processes[rank].returncode, lines(run.errors[rank]))
        found = lines(run.errors[rank])
        assert len(found) == 1 and re.search(said, found[0]), f"rank {rank}, expected one line with {said}: {found}"


def fail_one(kind, victim, after_s):
    run = Run()
    run.wait_until_running()
    assert not os.listdir(run.folder.name), "a port file is left after the start"
    time.sleep(after_s)
    process = run.processes[victim]
    others = [rank for rank in range(RANKS) if rank != victim]
    reason = {"killed": f"rank {victim} (closed its connections|has not answered for)",
              "stopped": f"rank {victim} has not answered for 5.0 s",
              "hangs": f"rank {victim} has not answered for 5.0 s",
              "throws": f"rank {victim} failed: no memory for experts",
              "aborts": f"rank {victim} aborted: had enough",
              "disagrees": "rank . (and rank . wait for each other|has not answered for 5.0 s)"}[kind]
    process.send_signal({"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "hangs": signal.SIGUSR2,
                         "throws": signal.SIGUSR1, "aborts": signal.SIGHUP, "disagrees": signal.SIGALRM}[kind])
    took = run.end(others, TIMEOUT_S + GRACE_S)
    for rank in others:
        check_lines(run, [rank], rf"^moetune: rank {rank} (in .*|outside of operations): {reason}")
    if kind == "throws":
        run.end([victim], GRACE_S)
        check_lines(run, [victim], "no memory for experts", code=1)
    if kind in ("hangs", "aborts", "disagrees"):
        run.end([victim], TIMEOUT_S + GRACE_S)
        check_lines(run, [victim], reason)
    run.clean_up()
    return took, lines(run.errors[others[0]])[0]


def differ(what, odd, victim):
    run = Run(victim, odd)
    took = run.end(range(RANKS), START_S)
    named = next(rank for rank in range(1, RANKS) if rank == victim or victim == 0)
    check_lines(run, range(RANKS), f"rank {named} on .*: found {what} '.*', expected '.*' as on rank 0")
    return took, lines(run.errors[0])[0]


def absent(victim):
    """One rank never starts."""
    run = Run(usual=("loop", "1.0", "15"))
    run.processes[victim].kill()
    others = [rank for rank in range(RANKS) if rank != victim]
    took = run.end(others, START_S)
    check_lines(run, others, f"rank {victim} did not .* within 15.0 s")
    run.clean_up()
    return took, lines(run.errors[others[0]])[0]


def pause_is_fine(victim):
    """Stopped for less than the time-out, and then the run goes on and ends well."""
    run = Run()
    run.wait_until_running()
    run.processes[victim].send_signal(signal.SIGSTOP)
    time.sleep(TIMEOUT_S - 2)
    run.processes[victim].send_signal(signal.SIGCONT)
    time.sleep(1)
    run.processes[victim].send_signal(signal.SIGTERM)
    took = run.end(range(RANKS), TIMEOUT_S)
    for rank in range(RANKS):
        assert run.processes[rank].returncode == 0 and not lines(run.errors[rank]), lines(run.errors[rank])
    return took, "all ended well"


CASES = {
    "absent": lambda victim, _: absent(victim),
    **{kind: functools.partial(fail_one, kind)
       for kind in ("killed", "stopped", "hangs", "throws", "aborts", "disagrees")},
    "another job": lambda victim, _: differ("flags", ["other flags"], victim),
    "another version": lambda victim, _: differ("version", ["loop", "2.0"], victim),
    "paused": lambda victim, _: pause_is_fine(victim),
}


def main():
    seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
    random.seed(seed)
    print(f"SEED={seed}")
    with ThreadPoolExecutor(4) as pool:  # they mostly wait
        runs = []
        for name in sys.argv[3:] or CASES:
            for round_ in range(ROUNDS):
                victim = 0 if round_ % 2 else random.randrange(1, RANKS)
                runs.append((name, victim, pool.submit(CASES[name], victim, random.uniform(0, 0.6))))
        failed = 0
        for name, victim, result in runs:
            try:
                took, line = result.result()
                print(f"{name}: rank {victim}: all ended after {took:.1f} s: {line}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name}: rank {victim}: FAILED: {error}", flush=True)
    sys.exit(f"{failed} failed" if failed else 0)


if __name__ == "__main__":
    main()
