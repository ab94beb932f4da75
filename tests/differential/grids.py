"""docs/formats.md "A grid", and the command line's defaults: all layers of a grid, as `tune` plans them.

MP = ESP = ranks a node, on one node 1; one expert a node, on one node one a rank; EP = experts; "*" drops nothing and
is planned as f = 1. These groups divide the hidden sizes drawn here; where they don't, the program takes others.
"""
import layers
import questions
from volumes import Layer


def layer_of(name, profile, rounding):
    """The layer that a name like B1-h8-L48-M64-H128-f1.2-gpt says."""
    batch, heads, seq, model_dim, hidden, factor, ffn = name.split("-")
    layer = Layer(batch=int(batch[1:]), heads=int(heads[1:]), seq=int(seq[1:]), model_dim=int(model_dim[1:]),
                  hidden=int(hidden[1:]), capacity_factor=1.0 if factor == "fnone" else float(factor[1:]), ffn=ffn,
                  experts=profile.nodes, top_k=1, rounding=rounding, ep=profile.nodes)
    if profile.nodes > 1:
        layer.mp = layer.esp = profile.ranks_per_node
    else:
        layer.experts = layer.ep = profile.ranks_per_node
    ranks = profile.nodes * profile.ranks_per_node
    layer.dp, layer.edp = ranks // layer.mp, ranks // layer.ep // layer.esp
    return layer


def check_grid(tally, program, seed, rng):
    profile = questions.random_cluster(rng, seqs=(48,))
    if seed % 3 == 0:
        questions.add_contention(rng, profile)
    rounding = rng.choice(["ragged", "exact", "lcm"])
    cluster = "./" + program.write("cluster.toml", questions.toml_of(profile))
    grid = "./" + program.write("grid.toml", f"""schema = 1
name = "drawn-grid"
source = "drawn at random"
cluster = "drawn"
capacity_rounding = "{rounding}"
[layers]
batch = [1, {rng.randint(2, 4)}]
heads = [8]
seq = [48, {24 * rng.randint(3, 12)}]
model_dim = [{24 * rng.randint(1, 14)}]
hidden_scale = [{rng.randint(3, 6)}]
capacity_factor = [{rng.choice([1.2, 2.4])}, "*"]
ffn = ["gpt", "mixtral"]
top_k = 1
experts = "nodes"
""")
    document, error = program.json(["tune", "--no-verify", "--grid", grid, "--cluster", cluster, "-o", "tuned.jsonl",
                                    "--overwrite"])
    if document is None:
        tally.failures.append(f"seed {seed}: {error}")
        return
    tally.equal("layers of a grid", len(document["layers"]), 16, f"seed {seed}")
    for tuned in document["layers"]:
        if tuned["status"] != "ok":
            continue
        layer = layer_of(tuned["layer"], profile, rounding)
        for answer in tuned["schedules"]:
            layers.check_answer(tally, {"status": "ok", **answer}, profile, layer, f"{seed}, {tuned['layer']}")
