"""docs/formats.md "A cluster": seconds of an operation, from the rows of a profile."""

class Profile:
    """Rows of a cluster's file, as dicts with the file's keys."""

    def __init__(self, nodes, ranks_per_node):
        self.nodes, self.ranks_per_node = nodes, ranks_per_node
        self.comm, self.compute, self.modules = [], [], []
        self.task_s = 0.0
        self.contention = {}
        self.memory_bytes = None

    def copied(self, size):
        """Copies where they have a row; else, and of nothing, no time."""
        row = next((r for r in self.compute if r["op"] == "copy"), None)
        return 0.0 if row is None or not size else on_row(row, size, "beta_s_per_byte")

    def gemm(self, dtype, count, flops):
        row = next(r for r in self.compute if r["op"] == "gemm" and r["dtype"] == dtype)
        return count * row["alpha_s"] + flops * row["beta_s_per_flop"] + self.task_s

    def copy(self, size):
        row = next((r for r in self.compute if r["op"] == "copy"), None)
        return None if row is None else on_row(row, size, "beta_s_per_byte") + self.task_s

    def expert(self, dtype, ffn, backward, count, flops):
        """A measured module, else the expert as a whole, whose backward doubles alpha and work, else its GEMMs."""
        module = self.module("expert:" + ffn, backward)
        if module:
            return on_row(module, flops, "beta_s_per_flop") + self.task_s
        for row in self.compute:
            if row["op"] == "expert" and row["ffn"] == ffn and row.get("dtype", dtype) == dtype:
                return (2 if backward else 1) * row["alpha_s"] + flops * row["beta_s_per_flop"] + self.task_s
        return self.gemm(dtype, count, flops)

    def module(self, name, backward, seq=None):
        phase = "backward" if backward else "forward"
        return next((m for m in self.modules if m["name"] == name and m["phase"] == phase
                     and m.get("seq") in (None, seq)), None)


def on_row(row, size, beta):
    """alpha + size beta, or the curve: straight between its points and beyond them, from 0 s on and never falling at
    its end."""
    points = row.get("points")
    if not points:
        return row["alpha_s"] + size * row[beta]
    upper = next((i for i in range(1, len(points)) if size <= points[i][0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[upper - 1], points[upper]
    if size < x0 and y0 - (y1 - y0) / (x1 - x0) * x0 < 0:
        return y0 * size / x0
    if size > x1 and y1 < y0:
        return y1
    return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
