"""Measured times and fitted lines: series of microbench records, and the rows of a profile that belong to them."""
import statistics
from collections import namedtuple

from records import BadInput

MIB, GFLOP = 2.0**20, 1e9
# For each panel: its title, the label of its sizes, their unit, the label of its rates.
PANELS = (("collectives", "volume, MiB", MIB, "volume over time, GB/s"),
          ("GEMM", "work, GFLOP", GFLOP, "work over time, GFLOP/s"),
          ("modules priced by work", "work, GFLOP", GFLOP, "work over time, GFLOP/s"),
          ("modules priced by bytes", "volume, MiB", MIB, "volume over time, GB/s"))
PER_SECOND = 1e9  # bytes or FLOPs a second

# A measured size: bytes or FLOPs; seconds of the median, the fastest and the slowest sample.
Point = namedtuple("Point", "size seconds least most")


class Line:
    """t(n) = alpha + n beta, or a measured curve inside its range; seconds of bytes or FLOPs."""

    def __init__(self, name, panel, row, where):
        self.name, self.panel = name, panel
        beta = "beta_s_per_byte" if panel in (0, 3) else "beta_s_per_flop"
        for key in ("alpha_s", beta):
            if not isinstance(row.get(key), (int, float)):
                raise BadInput(f"{where}: {name}: {key}: found {row.get(key)!r}, expected a number")
        self.alpha, self.beta, self.r_squared = row["alpha_s"], row[beta], row.get("r_squared")
        self.curve = row.get("points", [])

    def seconds(self, size):
        for (a, left), (b, right) in zip(self.curve, self.curve[1:]):
            if a <= size <= b:
                return left + (right - left) * (size - a) / (b - a)
        return self.alpha + size * self.beta


def lines_of(profile, where):
    """Returns the lines of a profile by the name of their series, except lines of other algorithms and of copies."""
    lines = []
    for row in profile.get("comm", []):
        if row.get("algorithm", "direct") == "direct":
            lines.append(Line(f"{row.get('op')} {row.get('network')} {row.get('ranks')}", 0, row, where))
    for row in profile.get("compute", []):
        if row.get("op") == "gemm":
            lines.append(Line(f"gemm {row.get('dtype', 'float32')}", 1, row, where))
    for row in profile.get("module", []):
        seq = f" {row['seq']}" if "seq" in row else ""
        panel = 3 if "beta_s_per_byte" in row else 2
        lines.append(Line(f"{row.get('name')} {row.get('phase')}{seq}", panel, row, where))
    return {line.name: line for line in lines}


def _series_and_panel(case):
    op, p = case.text("op"), case["parameters"]
    if op == "gemm":
        return f"gemm {p.get('dtype', 'float32')}", 1
    if op == "module":
        name = f"{case.text('name')} {case.text('phase')}" + (f" {p['seq']}" if "seq" in p else "")
        return name, 3 if "bytes" in p else 2
    algorithm = p.get("algorithm", "direct")
    return f"{op} {case.text('network')} {p.get('ranks')}" + ("" if algorithm == "direct" else f" {algorithm}"), 0


def series_of(cases):
    """Returns measured points by series: (panel, [Point]), ascending. Repeated measurements of a size are one point:
    the median of the medians, the least and the most of all."""
    found = {}
    for case in cases:
        if case["status"] != "ok" or not case["key"].startswith("op/"):
            continue
        name, panel = _series_and_panel(case)
        size = case.number("parameters", "flops" if panel in (1, 2) else "bytes")
        seconds = case.number("summary", "median_s")
        if not (size > 0 and seconds > 0):
            raise BadInput(f"{case.where}: found {size:g} bytes or FLOPs in {seconds:g} s, expected both above 0")
        least, most = (case["summary"].get(key, seconds) for key in ("least_s", "most_s"))
        found.setdefault(name, (panel, {}))[1].setdefault(size, []).append((seconds, least, most))
    return {name: (panel, [Point(size, statistics.median(s for s, _, _ in times), min(low for _, low, _ in times),
                                 max(high for _, _, high in times)) for size, times in sorted(by_size.items())])
            for name, (panel, by_size) in found.items()}


def emulation_of(cases):
    """Returns the caption's text on the origin of the times."""
    return "emulated cluster" if any(case.get("emulated") for case in cases) else "measured"
