"""usage: perfetto_query.py PROGRAM

Loads a trace that `simulate --trace` wrote into Perfetto's trace_processor_shell and asks it what it understood: every
task a slice of its lane, lanes as busy as `simulate --json` says, every arrow bound at both ends, no import errors.
Skipped where trace_processor_shell is not on the PATH (https://perfetto.dev/docs/analysis/trace-processor)."""
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # as CTest is told
SHELL = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
LANES = """select thread.name as lane, count(*) as slices, sum(slice.dur) as busy_ns from slice
join thread_track on slice.track_id = thread_track.id join thread using (utid) group by thread.name;"""
ARROWS = """select count(*) as arrows, sum(slice_out is null or slice_in is null) as loose from flow;"""
ERRORS = """select ifnull(sum(value), 0) as errors from stats where severity = 'error';"""


def rows_of(trace, query):
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(query)
        file.flush()
        found = subprocess.run([SHELL, "-q", file.name, trace], capture_output=True, text=True, check=True, timeout=120)
    return list(csv.DictReader(io.StringIO(found.stdout.strip() + "\n")))


def main():
    if SHELL is None:
        print("skipped: found no trace_processor_shell")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "t.json")
        out = subprocess.run([sys.argv[1], "simulate", "--schedule", "fsmoe", "--json", "--trace", trace], check=True,
                             capture_output=True, text=True).stdout
        printed = json.loads(out)
        with open(trace) as file:
            arrows = sum(event["ph"] == "s" for event in json.load(file)["traceEvents"])
        lanes = {row["lane"]: row for row in rows_of(trace, LANES)}
        flow, errors = rows_of(trace, ARROWS)[0], rows_of(trace, ERRORS)[0]
    wrong = []
    for lane in printed["lanes"]:
        tasks = sum(task["lane"] == lane["name"] for task in printed["tasks"])
        found = lanes.get(lane["name"], {"slices": 0, "busy_ns": 0})
        off = abs(float(found["busy_ns"]) - 1e9 * lane["busy_s"])
        if int(found["slices"]) != tasks or off > 1.01 * tasks:
            wrong.append(f"{lane['name']}: found {found}, expected {tasks} slices and {lane['busy_s']} s")
    if (int(flow["arrows"]), int(flow["loose"] or 0)) != (arrows, 0):
        wrong.append(f"arrows: found {flow}, expected {arrows}, none loose")
    if int(float(errors["errors"])) != 0:
        wrong.append(f"import errors: {errors}")
    print("\n".join(wrong) or f"{len(lanes)} lanes, {arrows} arrows as written")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
