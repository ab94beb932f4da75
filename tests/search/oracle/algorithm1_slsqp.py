"""Algorithm 1 of FSMoE (section 4.3) as the paper solves it: SLSQP on each case, here from several starts.

usage: algorithm1_slsqp.py PROGRAM      (PROGRAM prints the problems and our minima)

Ours must not be worse than SciPy's by more than 1e-6 of it, must be where the case holds, and must exist wherever SciPy
finds a degree. Written from the paper's formulas, nothing of the C++ is used.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-scipy", "numpy", "scipy.optimize")
from scipy.optimize import minimize

STARTS = (1.0, 4.0, 30.0)
WORSE = 1e-6      # relative
VIOLATION = 1e-8  # of a constraint, relative to the times in it
# Section 4.2: each case as the ways to come to it; +k: question k is yes, -k: no.
CASES = {
    1: [(1, -2, 4), (1, 2, 5), (-1, -3, 6), (-1, 3, 7)],
    2: [(1, 2, -5), (-1, 3, -7)],
    3: [(1, -2, -4)],
    4: [(-1, -3, -6)],
}


SECONDS = {
    1: lambda r, a, g, s, e, gar: 2 * r * a + gar,
    2: lambda r, a, g, s, e, gar: 2 * a + g + s + r * e,
    3: lambda r, a, g, s, e, gar: 2 * r * a + g + s,
    4: lambda r, a, g, s, e, gar: 2 * a + r * g + r * s,
}
# Above 0 where the answer is yes.
QUESTIONS = {
    1: lambda r, a, g, s, e, gar: a - g,
    2: lambda r, a, g, s, e, gar: r * e - 2 * (r - 1) * a,
    3: lambda r, a, g, s, e, gar: r * e - (r - 1) * (g + s),
    4: lambda r, a, g, s, e, gar: gar - (g + s),
    5: lambda r, a, g, s, e, gar: gar - (r * e - 2 * (r - 1) * a + g + s),
    6: lambda r, a, g, s, e, gar: gar - (r * g + r * s - 2 * (r - 1) * a),
    7: lambda r, a, g, s, e, gar: gar - (g + s + r * e - 2 * (r - 1) * a),
}


class Problem:
    def __init__(self, raw):
        self.lines = [raw[op] for op in ("alltoall", "allgather", "reducescatter", "expert")]
        self.gar = raw["gar_s"]
        self.scale = self.seconds(2, 1.0) + self.seconds(1, 1.0)

    def at(self, r):
        return (r, *(alpha + whole / r for alpha, whole in self.lines), self.gar)

    def seconds(self, case, r):
        return SECONDS[case](*self.at(r))

    def margins(self, way, r):
        """Above 0 where all answers are as `way` says; in units of the problem's times."""
        at = self.at(r)
        return [(1 if q > 0 else -1) * QUESTIONS[abs(q)](*at) / self.scale for q in way]

    def solve(self, case, way, start, most):
        seconds = lambda r: [self.seconds(case, r) / self.scale]
        margins = lambda r: self.margins(way, r)
        found = minimize(lambda x: seconds(float(x[0]))[0], [start], jac=lambda x: slopes(seconds, x), method="SLSQP",
                         bounds=[(1, most)], options={"ftol": 1e-13, "maxiter": 100},
                         constraints={"type": "ineq", "fun": lambda x: margins(float(x[0])),
                                      "jac": lambda x: [[slope] for slope in slopes(margins, x)]})
        r = min(max(float(found.x[0]), 1.0), most)
        return self.seconds(case, r) if min(margins(r)) >= -VIOLATION else None


def slopes(functions, x):
    """Slopes by central differences: SciPy's own would take most of this test's time."""
    r = float(x[0])
    h = 1e-6 * r
    return [(above - below) / (2 * h) for above, below in zip(functions(r + h), functions(r - h))]


def main():
    data = json.loads(subprocess.run(sys.argv[1:2], check=True, capture_output=True).stdout)
    failures, worst, compared, ours_alone, ours_better = [], 0.0, 0, 0, 0
    for number, raw in enumerate(data["problems"]):
        problem = Problem(raw)
        for case, ways in CASES.items():
            ours = raw["minima"][case - 1]
            theirs = [problem.solve(case, way, start, data["most"]) for way in ways for start in STARTS]
            theirs = min((t for t in theirs if t is not None), default=None)
            where = f"seed {data['seed']}, problem {number}, case {case}: ours {ours}, SLSQP {theirs}"
            if ours is None:
                if theirs is not None:
                    failures.append(f"{where}: missed")
                continue
            if not any(min(problem.margins(way, ours[0])) >= -VIOLATION for way in ways):
                failures.append(f"{where}: the case does not hold there")
            if abs(problem.seconds(case, ours[0]) / ours[1] - 1) > 1e-9:
                failures.append(f"{where}: not the time of that degree, {problem.seconds(case, ours[0])}")
            if theirs is None:
                ours_alone += 1
                continue
            compared += 1
            worst = max(worst, ours[1] / theirs - 1)
            ours_better += ours[1] < theirs * (1 - WORSE)
            if ours[1] > theirs * (1 + WORSE):
                failures.append(f"{where}: worse")
    print(f"{len(data['problems'])} problems, {compared} minima of both: ours worse than SLSQP by at most {worst:.1e}, "
          f"better by more than {WORSE} in {ours_better}; SLSQP found none of ours in {ours_alone}")
    print("\n".join(failures))
    sys.exit(1 if failures or compared < 200 else 0)


if __name__ == "__main__":
    main()
