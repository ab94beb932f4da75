"""Curves of pieces, recomputed with SciPy's nnls.

usage: piecewise_knots.py PROGRAM      (PROGRAM prints random samples and our pieces of them)

Seconds at our knots must be SciPy's; a line's held-out errors too. Of the same number of knots no other set may be
much better, all of them tried. Nothing of the C++ is used.
"""
import itertools
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import modules_or_skip  # noqa: E402

modules_or_skip.need("python3-scipy", "numpy", "scipy.optimize")
import numpy as np
from scipy.optimize import nnls

MUCH = 1.02  # of the best root of the squares
MISSED = 0.1  # of the curves: where a search one knot at a time may end above that


def shares(bounds, sizes):
    """How much of every piece's increment is there at each size, and 1 for the seconds at size 0."""
    begins = np.array([0.0, *bounds[:-1]])
    part = np.clip((sizes[:, None] - begins) / (np.array(bounds) - begins), 0, None)
    part[:, :-1] = np.minimum(part[:, :-1], 1)
    return np.hstack([np.ones((len(sizes), 1)), part])


def fitted(bounds, sizes, seconds):
    return nnls(shares(bounds, sizes) / seconds[:, None], np.ones(len(sizes)))


def check(curve):
    """Returns by how much our knots are worse than the best ones of as many."""
    samples = np.array(sorted(curve["samples"]))
    sizes, seconds = samples.T
    for knots in (curve["line"], curve["knots"]):
        at, ours = np.array(knots).T
        solved, _ = fitted(at[1:], sizes, seconds)
        np.testing.assert_allclose(shares(at[1:], at) @ solved, ours, rtol=1e-8)
    held_out = []
    for i in range(len(sizes)):
        kept = sizes != sizes[i]
        if len(set(sizes)) > 2:
            solved, _ = fitted([sizes[kept].max()], sizes[kept], seconds[kept])
            held_out.append(abs((shares([sizes[kept].max()], sizes[i:i + 1]) @ solved)[0] / seconds[i] - 1))
    np.testing.assert_allclose(curve["line_held_out"], held_out, rtol=1e-7, atol=1e-12)
    inner = sorted(set(sizes))[1:-1]
    bounds = [knot[0] for knot in curve["knots"]][1:]
    best = min(fitted([*some, sizes[-1]], sizes, seconds)[1] for some in itertools.combinations(inner, len(bounds) - 1))
    return fitted(bounds, sizes, seconds)[1] / max(best, 1e-12)


def main():
    curves = json.loads(subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout)
    ratios = np.array([check(curve) for curve in curves])
    missed = (ratios > MUCH).mean()
    pieces = [len(curve["knots"]) - 1 for curve in curves]
    print(f"{len(curves)} curves of {min(pieces)} to {max(pieces)} pieces: "
          f"knots {100 * (ratios.max() - 1):.1f} % worse than the best at most, {100 * missed:.0f} % by over 2 %")
    return 0 if len(curves) > 50 and missed <= MISSED else 1


sys.exit(main())
