"""usage: address_space_test.py PROGRAM [RUNS]

A small layer on ranks that are threads, under limits on address space between what moetune-run needs to start at all
and what the layer needs: each run ends soon, well or with one line and code 4 (no thread) or 2 (no memory)."""
import collections
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1]) + "-run"
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
LAYER = ["layerbench", "--cluster", "host", "--batch", "1", "--seq", "32", "--model-dim", "32", "--hidden", "64",
         "--heads", "4", "--experts", "2", "--schedule", "fsmoe", "--no-predict", "--degree-forward", "1",
         "--degree-backward", "1", "--iterations", "2", "--timeout", "10", "--out", "records.jsonl"]
MB = 1 << 20
STEP_MB = 10
ENDS = {0: 0, 2: 1, 4: 1}  # codes, and the lines on stderr
SHADOWED = re.search("-fsanitize=(address|thread)", os.environ.get("MOETUNE_CXX_FLAGS", ""))


def run(words, limit_mb, timeout_s):
    """The code (None: it hangs), what it said and how long it took."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (limit_mb * MB, limit_mb * MB))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with tempfile.TemporaryDirectory(prefix="moetune-address-space-") as folder:
        begin_s = time.monotonic()
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen([PROGRAM, *words], cwd=folder, env=environment, preexec_fn=limit, text=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            try:
                said = process.communicate(timeout=timeout_s)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                return None, process.communicate()[1], timeout_s
        return process.returncode, said, time.monotonic() - begin_s


def least_mb(works, low, high):
    """The least limit above `low`, which is too low, at which `works`."""
    while high - low > STEP_MB:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


@unittest.skipIf(SHADOWED, "a sanitizer's shadow memory has terabytes of address space")
class AddressSpace(unittest.TestCase):
    def test_every_limit(self):
        begin_s = time.monotonic()
        code, said, _ = run(LAYER, 1 << 20, 120)
        self.assertEqual(code, 0, said)
        limit_s = 20 + 3 * (time.monotonic() - begin_s)
        starts = least_mb(lambda mb: run(["--version"], mb, limit_s)[0] == 0, 100, 1 << 14)
        ends = least_mb(lambda mb: run(LAYER, mb, limit_s)[0] == 0, starts, 1 << 15)
        print(f"starts at {starts} MB, runs at about {ends} MB", file=sys.stderr)
        self.assertGreater(ends, starts + 5 * STEP_MB, "threads have stacks")
        seen = collections.Counter()
        last = ends + 5 * STEP_MB
        for i in range(RUNS):
            mb = starts + (last - starts) * i // max(1, RUNS - 1)
            code, said, took_s = run(LAYER, mb, limit_s)
            how = signal.Signals(-code).name if code is not None and code < 0 else code
            seen[how, said] += 1
            with self.subTest(limit_mb=mb, code=how, took_s=round(took_s, 1), said=said[:500]):
                self.assertIn(code, ENDS)
                self.assertEqual(len(said.splitlines()), ENDS[code])
        for (how, said), times in seen.most_common():
            print(f"{times} x {how}: {said.strip()[:200]}", file=sys.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
