"""Orders of whole iterations (wave) against those of OR-tools' CP-SAT.

usage: wave_cpsat.py PROGRAM      (PROGRAM prints random iterations and what our order takes)

A problem is tasks with a lane, seconds and what they wait for. The solver gets a limited time for each and keeps the
best order that it found by then: ours must not take longer by more than 2 %. Nothing of the C++ is used.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-ortools, or pip install ortools", "ortools")
from ortools.sat.python import cp_model

UNITS = 1_000_000  # of a whole iteration
SECONDS = 8  # a problem, on two workers
MOST = 1.02


def solve(tasks, longest):
    """Returns makespan and bound as shares of `longest`, which an order is known to take."""
    model = cp_model.CpModel()
    horizon = 2 * UNITS
    ends, lanes = [], {}
    for task in tasks:
        units = round(task["seconds"] / longest * UNITS)
        begin = model.NewIntVar(0, horizon, "")
        end = model.NewIntVar(0, horizon, "")
        lanes.setdefault(task["lane"], []).append(model.NewIntervalVar(begin, units, end, ""))
        for before in task["after"]:
            model.Add(begin >= ends[before])
        ends.append(end)
    for intervals in lanes.values():
        model.AddNoOverlap(intervals)
    makespan = model.NewIntVar(0, horizon, "")
    model.AddMaxEquality(makespan, ends)
    model.Minimize(makespan)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 2
    status = solver.Solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return solver.ObjectiveValue() / UNITS, solver.BestObjectiveBound() / UNITS


def main():
    lines = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout.splitlines()
    solved, optimal, worst, slower = 0, 0, 0.0, []
    for line in lines:
        problem = json.loads(line)
        answer = solve(problem["tasks"], problem["wave"])
        if answer is None:
            continue
        makespan, bound = answer
        solved += 1
        optimal += makespan <= bound + 2 / UNITS
        worst = max(worst, 1 / makespan)
        if 1 / makespan > MOST:
            slower.append(f"{1 / makespan:.4f} times the solver's: {problem['text']}")
    print(f"{solved} of {len(lines)} problems solved, {optimal} to the optimum; at worst {worst:.4f} times as long")
    print("\n".join(slower))
    sys.exit(bool(slower) or solved < len(lines) // 2)


if __name__ == "__main__":
    main()
