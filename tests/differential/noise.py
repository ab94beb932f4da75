"""docs/metrics.md "simulate", its noise: all ranks replayed, some of them slow.

A rank's factor slows all of its tasks. A collective begins once its last rank is there, and goes at its slowest rank's
rate. Without jitter there is one sample.
"""
import groups
import questions
import schedules

SCHEDULES = sorted((schedules.AFTER_BACKWARD | schedules.SPLIT) - {"ds-moe-replicated"})


def random_factors(rng, ranks):
    slow = rng.sample(range(ranks), rng.randint(1, min(3, ranks)))
    return {rank: round(rng.uniform(1.1, 3), 3) for rank in slow}


def join(forward, backward):
    """Both phases as one plan: what the backward begins with waits for what the forward ends with."""
    base = len(forward.kind)
    followed = {a for waits in forward.after for a in waits}
    last = [task for task in range(base) if task not in followed]
    after = forward.after + [[base + a for a in waits] or last for waits in backward.after]
    orders = [one + [base + task for task in two] for one, two in zip(forward.orders, backward.orders)]
    return orders, after, forward.seconds + backward.seconds, forward.groups + backward.groups


def replay_ranks(plan, layer, factors):
    """When the last rank ends."""
    orders, after, seconds, kinds = plan
    ranks = range(layer.replicas * layer.mp * layer.pp)
    members = {kind: {rank: group for group in groups.members(layer, kind) for rank in group}
               for kind in set(kinds) - {None}}
    lane_of = {task: lane for lane, order in enumerate(orders) for task in order}
    position = {(rank, lane): 0 for rank in ranks for lane in range(len(orders))}
    free, end = {}, {}

    def ready(rank, task):
        lane = lane_of[task]
        order = orders[lane]
        if position[rank, lane] == len(order) or order[position[rank, lane]] != task:
            return None
        if any((rank, a) not in end for a in after[task]):
            return None
        return max([free.get((rank, lane), 0.0)] + [end[rank, a] for a in after[task]])

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            for lane, order in enumerate(orders):
                while position[rank, lane] < len(order):
                    task = order[position[rank, lane]]
                    group = members[kinds[task]][rank] if kinds[task] else [rank]
                    starts = [ready(member, task) for member in group]
                    if None in starts:
                        break
                    done = max(starts) + seconds[task] * max(factors.get(member, 1) for member in group)
                    for member in group:
                        end[member, task] = free[member, lane] = done
                        position[member, lane] += 1
                    moved = True
    assert len(end) == len(ranks) * len(seconds), "ranks wait for each other"
    return max(end.values())


def check_noise(tally, program, seed, rng):
    profile = questions.random_cluster(rng)
    layer = questions.random_layer(rng, profile, dtype="float32")
    factors = random_factors(rng, profile.nodes * profile.ranks_per_node)
    cluster = program.write("cluster.toml", questions.toml_of(profile))
    flags = ["simulate", "--cluster", cluster, "--schedule", ",".join(SCHEDULES)] + questions.flags_of(layer)
    slow = ",".join(f"{rank}:{factor}" for rank, factor in factors.items())
    document, error = program.json(flags + ["--straggler", slow])
    if document is None:
        tally.failures.append(f"seed {seed}: {error}")
        return
    for answer in document["schedules"]:
        if answer["status"] != "ok":
            continue
        what = f"seed {seed}, {answer['schedule']} with slow ranks {slow}"
        noise = answer["noise"]
        total = answer["forward_s"] + answer["backward_s"]
        tally.same("even ranks", noise["even_s"], total, what)
        own = (answer["degree_forward"], answer["degree_backward"])
        if answer["schedule"] in ("monta-o2", "monta-o3") and own != (1, 1):
            continue
        split = schedules.split_of(answer, layer)
        phases = [schedules.phase(answer["schedule"], profile, layer, backward, own[::-1] if backward else own, split)
                  for backward in (False, True)]
        tally.same("slow ranks", noise["median_s"], replay_ranks(join(*phases), layer, factors), what)
        tally.at_most("slow ranks gain nothing", total, noise["median_s"], what)
    if layer.capacity_factor == "none":
        document, error = program.json(flags + ["--zipf", "1.1"])
        for answer in document["schedules"] if document else []:
            if answer["status"] == "ok":
                tally.at_most("uneven routing gains nothing", answer["noise"]["even_s"], answer["noise"]["median_s"],
                              f"seed {seed}, {answer['schedule']} with zipf 1.1")
