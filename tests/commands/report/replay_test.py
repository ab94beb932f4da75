"""usage: replay_test.py RANDOM_PLANS

The replay of the page against the simulator, on random plans. Exit code 77 without Node."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

PLANS = os.path.abspath(sys.argv[1])
HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[2] / "commands/report/page"
MOST = 1e-9  # relative to the plan's time


class Replay(unittest.TestCase):
    def checked(self, plans):
        ran = subprocess.run([NODE, HERE / "replay_check.js", PAGE], input=plans, capture_output=True, check=True)
        return json.loads(ran.stdout)

    def test_agrees_with_the_simulator(self):
        plans = subprocess.run([PLANS], capture_output=True, check=True).stdout
        found = self.checked(plans)
        print(f"{found['plans']} plans of {found['tasks']} tasks, {found['slowed']} of which slow themselves: off by "
              f"{found['worst']:.2e} at worst")
        self.assertEqual(found["plans"], 2000)
        self.assertGreater(found["slowed"], 300)
        self.assertLessEqual(found["worst"], MOST)
        self.assertEqual(found["gaps"], 0, "critical paths with gaps")
        self.assertGreater(len({json.loads(line)["schedule"] for line in plans.splitlines()}), 15)

    def test_sees_a_plan_that_is_another(self):
        plan = json.loads(subprocess.run([PLANS], capture_output=True, check=True).stdout.splitlines()[0])
        plan["seconds"] = [second * 1.001 for second in plan["seconds"]]
        self.assertGreater(self.checked(json.dumps(plan).encode())["worst"], MOST)


if __name__ == "__main__":
    NODE = shutil.which("node")
    if NODE is None:
        print("skipped: there is no node")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
