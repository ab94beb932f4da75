"""usage: network_test.py PROGRAM

Two machines of two ranks each, made of network namespaces (needs root, ip, tc) on a link of 1 Gbit/s: tune measures
it, fits it, plans with the fit, and runs what it planned; communication between and inside nodes overlaps."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import unittest

from runs import Run

PROGRAM = os.path.abspath(sys.argv[1])
SKIPPED = 77
PREFIX = f"mt{os.getpid()}"
LINK = ["rate", "1gbit", "burst", "128k", "latency", "50ms"]
# Of forward + backward, in the median over layers and schedules. The limits are for a machine of its own; processes
# that share their cores with others wait for them, and then it is twice as much that would be a defect.
LIMIT_OF_INTER, LIMIT, LOADED = 0.15, 0.30, 2

EACH_RANK = """
for rank in 0 1 2 3; do
  node=$((rank / 2))
  RANK=$rank ip netns exec "$PREFIX-$node" unshare --uts sh -c 'hostname "$0"; exec "$@"' "node-$node" "$@" &
  started="$started $!"
done
code=0
for process in $started; do wait "$process" || code=$?; done
exit $code
"""


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def make_network():
    for node in (0, 1):
        ip("netns", "add", f"{PREFIX}-{node}")
        ip("-n", f"{PREFIX}-{node}", "link", "set", "lo", "up")
    ip("link", "add", f"{PREFIX}v0", "netns", f"{PREFIX}-0", "type", "veth", "peer", "name", f"{PREFIX}v1", "netns",
       f"{PREFIX}-1")
    for node in (0, 1):
        device = f"{PREFIX}v{node}"
        ip("-n", f"{PREFIX}-{node}", "addr", "add", f"10.77.0.{node + 1}/24", "dev", device)
        ip("-n", f"{PREFIX}-{node}", "link", "set", device, "mtu", "65000", "up")
        ip("netns", "exec", f"{PREFIX}-{node}", "tc", "qdisc", "add", "dev", device, "root", "tbf", *LINK)


def remove_network():
    for node in (0, 1):  # and with them their ends of the link
        ip("netns", "del", f"{PREFIX}-{node}", check=False)


class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(remove_network)
        make_network()

    def run_verb(self, *words, limit_s):
        """The JSON on stdout, and the records."""
        variables = {"PREFIX": PREFIX, "WORLD_SIZE": "4", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511"}
        with Run(["sh", "-c", EACH_RANK, "ranks", PROGRAM, *words, "--backend", "gloo", "--json", "--out",
                  "records.jsonl"], variables) as run:
            code = run.wait(limit_s)
            with open(run.path("err")) as err:
                said = err.read()
            self.assertEqual(code, 0, said)
            self.assertIn(f"2 nodes x 2, over {PREFIX}v0: 10.77.0.1, 10.77.0.2", said)
            self.assertEqual(run.left_behind(), [])
            with open(run.path("records.jsonl")) as file:
                records = [json.loads(line) for line in file]
            return json.loads(run.out), records

    def test_lanes_of_both_networks_overlap(self):
        found, records = self.run_verb("microbench", "-b", "6M", "-e", "7M", "--repetitions", "7", limit_s=300)
        print(json.dumps([r for r in records if "overlap" in r.get("key", "")]), file=sys.stderr)

    def test_tune(self):
        found, records = self.run_verb("tune", "--grid", "processes", limit_s=600)
        print(json.dumps(found)[:6000], file=sys.stderr)
        ran = [r for r in records if r.get("key", "").startswith("run/")]
        print(json.dumps(ran)[:8000], file=sys.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("skipped: needs root, ip and tc (apt-get install iproute2)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
