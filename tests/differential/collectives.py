"""docs/formats.md "A cluster": seconds of a collective, by its own row or by the rules for derived prices."""
import collections

from prices import on_row

MET = collections.Counter()  # rules that were used, and parts of curves


class Collectives:
    """Prices of one layer's groups: kind -> (network, ranks), and kind -> fewest ranks on a node."""

    def __init__(self, profile, groups, spreads, met=MET):
        self.profile, self.groups, self.spreads, self.met = profile, groups, spreads, met

    def row(self, op, kind):
        """Of the rows for a group of that size, the one with the most ranks a node that each node of the group has."""
        network, ranks = self.groups[kind]
        same = [row for row in self.profile.comm if row.get("algorithm", "direct") == "direct" and
                (row["op"], row["network"], row["ranks"]) == (op, network, 2 if op == "sendrecv" else ranks)]
        stated = sorted((row["ranks_per_node"] for row in same if "ranks_per_node" in row), reverse=True)
        for of_node in stated:
            if of_node <= self.spreads[kind]:
                self.met[f"a row of {'all' if of_node == self.spreads[kind] else 'fewer'} ranks a node"] += 1
                return next(row for row in same if row.get("ranks_per_node") == of_node)
        return next((row for row in same if "ranks_per_node" not in row), None)

    def by_row(self, op, kind, size):
        row = self.row(op, kind)
        if row is None:
            return None
        if "points" in row:
            least, most = row["points"][0][0], row["points"][-1][0]
            place = "before" if size < least else "behind" if size > most else "on"
            self.met[place + " a curve"] += 1
        return on_row(row, size, "beta_s_per_byte")

    def seconds(self, op, kind, size):
        """Without what every task takes; None without a price."""
        if self.groups[kind][1] == 1:
            return 0.0
        own = self.by_row(op, kind, size)
        if own is not None:
            return own
        for rule, parts in self.rules(op, kind):
            prices = [self.by_row(*part, size) if strict else self.seconds(*part, size) for strict, part, _ in parts]
            if None not in prices:
                self.met[rule] += 1
                return sum(times * price for price, (_, _, times) in zip(prices, parts))
        return None

    def rules(self, op, kind):
        """The table's rules that apply, in its order: what each sums, and how often. Strict: by a row alone."""
        if op == "allreduce" and kind == "mp-dp":
            yield "allreduce over a stage", [(False, (op, "mp"), 1), (False, (op, "dp"), 1)]
        if op == "allreduce" and kind == "edp":
            network, ranks = self.groups["dp"]
            if network == self.groups["edp"][0] and ranks >= self.groups["edp"][1]:
                yield "allreduce over EDP", [(False, (op, "dp"), 1)]
        if op == "allreduce":
            yield "allreduce of halves", [(True, ("reducescatter", kind), 1), (True, ("allgather", kind), 1)]
        if op in ("allgather", "reducescatter"):
            yield "half an allreduce", [(False, ("allreduce", kind), 0.5)]
        if op == "a2a-ep-esp":
            same_network = self.groups["ep"][0] == self.groups[kind][0]
            exchanged = "ep" if self.groups["ep"][1] > 1 and same_network else kind
            yield "alltoall over EP and ESP", [(False, ("alltoall", exchanged), 1)]


def drop_derivable(rng, profile, groups, spreads):
    """Drops rows of the groups' collectives so that none is without a price, but many have a derived one."""
    collectives = Collectives(profile, groups, spreads, collections.Counter())
    needed = [("allreduce", kind) for kind in ("mp", "dp", "esp", "edp")]
    needed += [(op, kind) for op in ("allgather", "reducescatter") for kind in ("mp", "cp", "esp")]
    needed += [("allgather", "dp"), ("allgather", "edp"), ("alltoall", "ep"), ("a2a-ep-esp", "ep-esp")]
    if groups["cp"][1] > 1 and groups["pp"][1] == 1 and rng.random() < 0.5:  # a ring's sends are steps of an AllGather
        profile.comm = [row for row in profile.comm if row["op"] != "sendrecv"]
    for op, kind in rng.sample(needed, len(needed)):
        if rng.random() < 0.4:
            continue
        kept = profile.comm
        profile.comm = [row for row in kept if (row["op"], row["network"], row["ranks"]) != (op, *groups[kind])]
        if any(collectives.seconds(*question, 1.0) is None for question in needed):
            profile.comm = kept
