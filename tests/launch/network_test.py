"""usage: network_test.py PROGRAM

Two machines of two ranks each, made of network namespaces (needs root, ip, tc) on a link of 1 Gbit/s: tune measures
it, fits it, plans with the fit, and runs what it planned; communication between and inside nodes overlaps."""
import json
import os
import re
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


def remove_network_when_this_ends():
    """However this process ends: a process that outlives this one waits for the end of what we never write to it."""
    remove = "cat; for node in 0 1; do ip netns del $0-$node; done"  # and with them their ends of the link
    return subprocess.Popen(["sh", "-c", remove, PREFIX], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            start_new_session=True)


def busiest_lane(profile, run, folder):
    """The busiest lane of a verified run, as simulated on the fit."""
    shape = re.match(r"B(\d+)-h(\d+)-L(\d+)-M(\d+)-H(\d+)-", run["layer"])
    flags = zip(("--batch", "--heads", "--seq", "--model-dim", "--hidden"), shape.groups())
    degrees = "--degree-forward", str(run["degree_forward"]), "--degree-backward", str(run["degree_backward"])
    command = [PROGRAM, "simulate", "--cluster", profile, "--schedule", run["schedule"], *degrees, "--json"]
    command += (word for flag in flags for word in flag)
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if found.returncode != 0:
        raise AssertionError(found.stderr)
    return max(json.loads(found.stdout)["lanes"], key=lambda lane: lane["busy_s"])["name"]


class Network(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        remover = remove_network_when_this_ends()
        cls.addClassCleanup(remover.wait)
        cls.addClassCleanup(remover.stdin.close)
        make_network()

    def start(self, limit_s, *words):
        """Starts a run; returns it once it ended well, and its JSON."""
        variables = {"PREFIX": PREFIX, "WORLD_SIZE": "4", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511"}
        run = Run(["sh", "-c", EACH_RANK, "ranks", PROGRAM, *words, "--backend", "gloo", "--json", "--out",
                   "records.jsonl"], variables)
        self.addCleanup(run.__exit__)
        code = run.wait(limit_s)
        with open(run.path("err")) as err:
            said = err.read()
        self.assertEqual(code, 0, said)
        self.assertIn(f"2 nodes x 2, over {PREFIX}v0: 10.77.0.1, 10.77.0.2", said)
        self.assertEqual(run.left_behind(), [])
        return run, json.loads(run.out)

    def test_lanes_of_both_networks_overlap(self):
        run, _ = self.start(300, "microbench", "-b", "6M", "-e", "7M", "--repetitions", "7")
        with open(run.path("records.jsonl")) as file:
            records = {record.get("key"): record for record in map(json.loads, file)}
        found = records["overlap/inter/intra"]["summary"]
        print(found, file=sys.stderr)
        self.assertGreater(found["overlap"], 0.5)

    def test_tune(self):
        run, found = self.start(900, "tune", "--grid", "processes")
        self.assertEqual((found["cluster"], found["emulated"]), ("gloo-2x2", False))
        self.assertGreaterEqual(len({each["layer"] for each in found["verified"]}), 6)
        errors = {True: [], False: []}
        for each in found["verified"]:
            self.assertEqual(each["status"], "ok", each)
            lane = busiest_lane(found["profile"], each, run.folder)
            error = each["measured_s"] / each["predicted_s"] - 1
            errors[lane in ("inter", "comm")].append(abs(error))  # comm: AlltoAll and AllGather on one lane
            print(f"{each['layer']}, {each['schedule']}: {1e3 * each['predicted_s']:.1f} ms predicted, "
                  f"{1e3 * each['measured_s']:.1f} measured, {100 * error:+.1f} %, most on {lane}", file=sys.stderr)
        for of_inter, limit in ((True, LIMIT_OF_INTER), (False, LIMIT)):
            if not errors[of_inter]:
                continue
            median = statistics.median(errors[of_inter])
            print(f"median error of {len(errors[of_inter])} runs most on {'inter' if of_inter else 'other lanes'}: "
                  f"{100 * median:.1f} %, limit {100 * limit:.0f} %", file=sys.stderr)
            self.assertLess(median, LOADED * limit)


class Loopback(unittest.TestCase):
    def test_of_ipv6_alone(self):
        alone = 'ip link set lo up && ip -4 addr flush dev lo && exec "$@"'
        layer = ["--seq", "32", "--model-dim", "32", "--hidden", "64", "--heads", "4", "--experts", "4"]
        with Run(["unshare", "--net", "sh", "-c", alone, "sh", PROGRAM, "launch", "--ranks", "2", "--", "layerbench",
                  "--check-only", "--schedule", "fsmoe", *layer, "--out", "records.jsonl"]) as run:
            self.assertEqual(run.wait(120), 0, run.lines)
            with open(run.path("err")) as err:
                self.assertIn("2 ranks, 1 node x 2, over lo: ::1", err.read())
            self.assertEqual(run.left_behind(), [])


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("skipped: needs root, ip and tc (apt-get install iproute2)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
