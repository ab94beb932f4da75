"""docs/formats.md "A cluster": seconds of an operation, from the rows of a profile."""


class Profile:
    """Rows of a cluster's file, as dicts with the file's keys."""

    def __init__(self, nodes, ranks_per_node):
        self.nodes, self.ranks_per_node = nodes, ranks_per_node
        self.comm, self.compute, self.modules = [], [], []
        self.task_s = 0.0
        self.contention = {}
        self.memory_bytes = None

    def _comm_row(self, op, network, ranks, algorithm="direct"):
        for row in self.comm:
            if (row["op"], row["network"], row["ranks"]) == (op, network, ranks) and \
                    row.get("algorithm", "direct") == algorithm:
                return row
        return None

    def collective(self, op, network, ranks, size, algorithm="direct"):
        """alpha + size beta, or the measured curve inside its range; plus what every task takes."""
        row = self._comm_row(op, network, ranks, algorithm)
        if row:
            return on_row(row, size, "beta_s_per_byte") + self.task_s
        if op == "allreduce" and network == "intra":  # derived: the two halves, one after the other
            return (on_row(self._comm_row("reducescatter", network, ranks), size, "beta_s_per_byte")
                    + on_row(self._comm_row("allgather", network, ranks), size, "beta_s_per_byte") + self.task_s)
        raise KeyError((op, network, ranks, algorithm))

    def by_row(self, op, network, ranks, size):
        """By its own row alone, without what every task takes; None without one."""
        row = self._comm_row(op, network, ranks)
        return None if row is None else on_row(row, size, "beta_s_per_byte")

    def line(self, op, network, ranks, size):
        """alpha + size beta, whatever the curve."""
        row = self._comm_row(op, network, ranks)
        return row["alpha_s"] + size * row["beta_s_per_byte"]

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
    points = row.get("points")
    if points and points[0][0] <= size <= points[-1][0]:
        for (x0, y0), (x1, y1) in zip(points, points[1:]):
            if size <= x1:
                return y0 + (y1 - y0) * (size - x0) / (x1 - x0)
    return row["alpha_s"] + size * row[beta]
