"""MoNTA's placement for long contexts: EP and CP on one switch, group order [TP/SP, EP, CP, PP, DP]."""


def expected(q):
    """expansion, ports, EP's mini-batch and strides, or None for what the paper leaves open."""
    if q["cp"] < q["ep"]:
        ports = q["ep"] * q["cp"]
        if ports > q["ports"]:
            return "open", ports, None, None
        cp_stride, block = q["tp"] * q["ep"], ports
        expansion, mini_batch = "horizontal", q["ep"]
    else:
        ports = max(q["ep"], q["cp"])
        if ports > q["ports"] or q["cp"] % q["ep"]:
            return "open", ports, None, None
        cp_stride, block = q["tp"], q["cp"]  # EP inside CP
        expansion, mini_batch = "vertical", 1
    pp_stride = q["tp"] * block
    return expansion, ports, mini_batch, {"TP/SP": 1, "EP": q["tp"], "CP": cp_stride, "PP": pp_stride,
                                          "DP": pp_stride * q["pp"]}


def check_placement(tally, program, seed, rng):
    q = {"tp": rng.choice([1, 2, 4, 8]), "ep": rng.randint(1, 8), "cp": rng.randint(1, 8), "pp": rng.randint(1, 3),
         "dp": rng.randint(1, 3), "ports": rng.choice([2, 4, 8, 16, 32, 64])}
    what = f"seed {seed}, {q}"
    document, error = program.json(["placement", "--tp", q["tp"], "--ep", q["ep"], "--cp", q["cp"], "--pp", q["pp"],
                                    "--dp", q["dp"], "--switch-ports", q["ports"]])
    if document is None:
        tally.failures.append(f"{what}: {error}")
        return
    expansion, ports, mini_batch, strides = expected(q)
    tally.equal("expansion", document["expansion"], expansion, what)
    tally.equal("ports", document["ports_needed"], ports, what)
    tally.equal("mini-batch", document["ep_mini_batch"], mini_batch, what)
    meets = {"EP": q["ep"] > 1, "PP": q["pp"] > 1, "CP": q["cp"] > 1,
             "DP": max(q["ep"], q["cp"], q["dp"]) > 1}  # all ranks but TP's and PP's hold the same dense weights
    tally.equal("traffic priority", document["traffic_priority"], [kind for kind in meets if meets[kind]], what)
    if strides is None:
        tally.equal("groups that are open", document["order"], [], what)
        return
    copies = q["dp"] * (q["cp"] if expansion == "horizontal" else q["cp"] // q["ep"])  # of an expert
    pairs = {("EP", "DP"): meets["EP"] and copies > 1, ("CP", "DP"): meets["CP"],
             ("PP", "DP"): meets["PP"] and meets["DP"], ("CP", "PP"): meets["CP"] and meets["PP"]}
    tally.equal("traffic that meets", [(c["traffic"][:2], c["meets"][:2]) for c in document["conflicts"]],
                [pair for pair in pairs if pairs[pair]], what)
    ranks = strides["DP"] * q["dp"]
    sizes = {"TP/SP": q["tp"], "EP": q["ep"], "CP": q["cp"], "PP": q["pp"], "DP": q["dp"]}
    tally.equal("ranks", document["ranks"], ranks, what)
    tally.equal("order of groups", [o["name"] for o in document["order"]], list(sizes), what)
    for order in document["order"]:
        size, stride = sizes[order["name"]], strides[order["name"]]
        groups = [[first + stride * i for i in range(size)] for first in range(ranks) if first // stride % size == 0]
        tally.equal("groups", sorted(order["groups"]), groups, f"{what}, {order['name']}")
        spans = any(len({rank // 8 for rank in group}) > 1 for group in groups)
        tally.equal("networks", order["network"], "none" if size == 1 else "inter" if spans else "intra",
                    f"{what}, {order['name']}")
