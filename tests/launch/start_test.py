"""usage: start_test.py PROGRAM [ROUNDS] [SEED]

Ranks that no launcher watches, one of which is killed in its first second: the others end with code 4 and a line each
within the time-out and a few seconds, rank 0 as early as they do."""
import concurrent.futures
import os
import random
import signal
import sys
import time
import unittest

from runs import Run, free_port

PROGRAM = os.path.abspath(sys.argv[1])
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
RANKS, TIMEOUT_S, LIMIT_S = 4, 8, 12
LAYER = ["--batch", "1", "--seq", "32", "--model-dim", "32", "--hidden", "64", "--heads", "4", "--experts", "4",
         "--schedule", "fsmoe", "--degree-forward", "1", "--degree-backward", "1", "--no-predict"]

# Each rank leaves its code and when it ended.
EACH_RANK = """
for rank in 0 1 2 3; do
  (RANK=$rank WORLD_SIZE=4 "$@"; echo "$? $(cut -d ' ' -f 1 /proc/uptime)" > "ended.$rank") &
done
wait
"""


def uptime():
    with open("/proc/uptime") as file:
        return float(file.read().split()[0])


class Start(unittest.TestCase):
    def test_killed_in_its_first_second(self):
        def one(number):
            moment_s = random.Random(f"{SEED} {number}").uniform(0, 1)
            self.kill(number % RANKS, moment_s)

        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # since they mostly wait
            for done in [pool.submit(one, number) for number in range(ROUNDS)]:
                done.result()

    def kill(self, victim, moment_s):
        command = [PROGRAM, "layerbench", "--cluster", "host", "--backend", "gloo", "--rendezvous",
                   f"127.0.0.1:{free_port()}", "--iterations", "1000000", "--timeout", str(TIMEOUT_S),
                   "--out", "records.jsonl", *LAYER]
        with Run(["sh", "-c", EACH_RANK, "ranks", *command], {"OMP_NUM_THREADS": "1"}) as run:
            pid = run.wait_for_rank(victim, joined=False)
            time.sleep(moment_s)
            os.kill(pid, signal.SIGKILL)
            killed_s = uptime()
            self.assertEqual(run.wait(LIMIT_S + TIMEOUT_S), 0, [run.lines, run.members().keys()])
            took = {}
            for rank in range(RANKS):
                with open(run.path(f"ended.{rank}")) as file:
                    code, ended_s = file.read().split()
                took[rank] = float(ended_s) - killed_s
                self.assertEqual(int(code), 128 + signal.SIGKILL if rank == victim else 4, run.lines)
            del took[victim]
            print(f"rank {victim} after {moment_s:.2f} s:", {r: round(s, 1) for r, s in took.items()}, *run.lines,
                  sep="\n  ", file=sys.stderr)
            self.assertLess(max(took.values()), LIMIT_S, run.lines)
            if victim != 0:
                self.assertLess(took.pop(0) - max(took.values()), 2, "rank 0 serves the others, and waits for no more")
            said = [line for line in run.lines if "Killed" not in line]
            self.assertEqual(len(said), RANKS - 1, run.lines)
            self.assertEqual(run.left_behind(), [])


if __name__ == "__main__":
    print(f"seed {SEED}")
    unittest.main(argv=sys.argv[:1], verbosity=2)
