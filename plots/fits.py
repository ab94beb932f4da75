"""Measured times and fitted lines: series of microbench records, and the rows of a profile that belong to them."""
from records import BadInput

MIB, GFLOP = 2.0**20, 1e9
PANELS = (("collectives", "volume, MiB", MIB), ("GEMM", "work, GFLOP", GFLOP), ("modules", "work, GFLOP", GFLOP))


class Line:
    """t(n) = alpha + n beta; seconds of bytes or FLOPs."""

    def __init__(self, name, panel, row, where):
        self.name, self.panel = name, panel
        beta = "beta_s_per_byte" if panel == 0 else "beta_s_per_flop"
        for key in ("alpha_s", beta):
            if not isinstance(row.get(key), (int, float)):
                raise BadInput(f"{where}: {name}: {key}: found {row.get(key)!r}, expected a number")
        self.alpha, self.beta, self.r_squared = row["alpha_s"], row[beta], row.get("r_squared")

    def seconds(self, size):
        return self.alpha + size * self.beta


def lines_of(profile, where):
    """Lines of a profile by the name of their series, those of curves and copies left out."""
    lines = []
    for row in profile.get("comm", []):
        if row.get("algorithm", "direct") == "direct":
            lines.append(Line(f"{row.get('op')} {row.get('network')} {row.get('ranks')}", 0, row, where))
    for row in profile.get("compute", []):
        if row.get("op") == "gemm":
            lines.append(Line(f"gemm {row.get('dtype', 'float32')}", 1, row, where))
    for row in profile.get("module", []):
        seq = f" {row['seq']}" if "seq" in row else ""
        lines.append(Line(f"{row.get('name')} {row.get('phase')}{seq}", 2, row, where))
    return {line.name: line for line in lines}


def series_of(cases):
    """Measured points by series: (panel, [(size, median seconds)]), ascending. `gemms` of a case share its work."""
    series = {}
    for case in cases:
        if case["status"] != "ok" or not case["key"].startswith("op/"):
            continue
        op, p = case.text("op"), case["parameters"]
        if op == "gemm":
            panel, name = 1, f"gemm {p.get('dtype', 'float32')}"
        elif op == "module":
            panel, name = 2, f"{case.text('name')} {case.text('phase')}" + (f" {p['seq']}" if "seq" in p else "")
        else:
            panel, name = 0, f"{op} {case.text('network')} {p.get('ranks')}"
        size = case.number("parameters", "bytes" if panel == 0 else "flops")
        series.setdefault(name, (panel, []))[1].append((size, case.number("summary", "median_s")))
    for _, points in series.values():
        points.sort()
    return series


def emulation_of(cases):
    """What a caption must say of where times come from."""
    return "emulated cluster" if any(case.get("emulated") for case in cases) else "measured"
