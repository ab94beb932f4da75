"""Random clusters and layers, as the files and flags that the program takes (docs/formats.md)."""
from prices import Profile
from volumes import Layer


def random_cluster(rng, dtypes=("float32",), ffns=("gpt", "mixtral"), seqs=()):
    """Any number of nodes and ranks; a row of every operation, network and size that a group may have."""
    nodes = rng.choice([1, 2, 2, 3, 4, 4, 5, 6, 8])
    ranks = rng.choice([1, 2, 2, 3, 4, 4, 6, 8])
    while nodes * ranks == 1 or nodes * ranks > 32:
        nodes, ranks = rng.choice([1, 2, 3, 4, 8]), rng.choice([1, 2, 4, 8])
    profile = Profile(nodes, ranks)
    curves = rng.random() < 0.3
    for network in ("inter", "intra"):
        scale = 10 ** rng.uniform(-1, 1)
        for op in ("alltoall", "allgather", "reducescatter", "allreduce", "sendrecv", "a2a-ep-esp"):
            most = ranks if network == "intra" else nodes * ranks
            for size in range(2, 3 if op == "sendrecv" else most + 1):
                if size > most or (network == "inter" and nodes == 1):
                    continue
                for of_node in [0, *random_spreads(rng, op, network, min(ranks, size // 2))]:
                    row = {"op": op, "network": network, "ranks": size,
                           "alpha_s": round(10 ** rng.uniform(-5.5, -3.5), 12),
                           "beta_s_per_byte": scale * 10 ** rng.uniform(-10.5, -9.5)}
                    if of_node:
                        row["ranks_per_node"] = of_node
                    if curves and rng.random() < 0.5:
                        row["points"] = random_curve(rng, row["alpha_s"], row["beta_s_per_byte"])
                    profile.comm.append(row)
    for dtype in dtypes:
        profile.compute.append({"op": "gemm", "dtype": dtype, "alpha_s": 10 ** rng.uniform(-6, -4),
                                "beta_s_per_flop": 10 ** rng.uniform(-14, -12.5)})
        if rng.random() < 0.2:
            profile.compute.append({"op": "expert", "ffn": rng.choice(ffns), "dtype": dtype,
                                    "alpha_s": 10 ** rng.uniform(-5, -4),
                                    "beta_s_per_flop": 10 ** rng.uniform(-14, -12.5)})
    if rng.random() < 0.5:
        profile.compute.append({"op": "copy", "alpha_s": 10 ** rng.uniform(-6, -5),
                                "beta_s_per_byte": 10 ** rng.uniform(-12, -10.5)})
    for seq in seqs:
        if rng.random() < 0.3:
            for phase in ("forward", "backward"):
                profile.modules.append({"name": "attention", "phase": phase, "seq": seq,
                                        "alpha_s": 10 ** rng.uniform(-5, -3),
                                        "beta_s_per_flop": 10 ** rng.uniform(-14, -12.5)})
    if rng.random() < 0.3:
        profile.task_s = 10 ** rng.uniform(-6, -4.5)
    return profile


def random_spreads(rng, op, network, most):
    """Ranks a node for which a group's size has rows of its own, in any order."""
    if network == "intra" or op == "sendrecv" or rng.random() < 0.6:
        return []
    return rng.sample(range(1, most + 1), rng.randint(1, most))


def random_curve(rng, alpha, beta):
    sizes = sorted({int(10 ** rng.uniform(3, 7.5)) for _ in range(rng.randint(2, 6))})
    if len(sizes) < 2:
        sizes = [1000, 1000000]
    points, least = [], 0.0
    for size in sizes:
        least = max(least, (alpha + size * beta) * rng.uniform(0.7, 1.3))
        points.append([size, least])
    return points


def toml_of(profile, name="drawn"):
    lines = ["schema = 1", f'name = "{name}"', 'source = "drawn at random"', "[topology]",
             f"nodes = {profile.nodes}", f"ranks_per_node = {profile.ranks_per_node}"]
    if profile.memory_bytes:
        lines.append(f"memory_bytes = {profile.memory_bytes}")
    for table, rows in (("comm", profile.comm), ("compute", profile.compute), ("module", profile.modules)):
        for row in rows:
            lines.append(f"[[{table}]]")
            lines += [f"{key} = {toml_value(value)}" for key, value in row.items()]
    if profile.task_s:
        lines += ["[overhead]", f"task_s = {profile.task_s!r}"]
    if profile.contention:
        lines.append("[contention]")
        lines += [f"{key} = {value!r}" for key, value in profile.contention.items()]
    return "\n".join(lines) + "\n"


def toml_value(value):
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def random_layer(rng, profile, **fixed):
    """A layer whose groups divide the cluster's ranks."""
    ranks = profile.nodes * profile.ranks_per_node
    layer = Layer()
    layer.pp = fixed.get("pp", 1)
    stage = ranks // layer.pp
    layer.mp = rng.choice([d for d in divisors(stage) if d <= 8])
    layer.dp = stage // layer.mp
    layer.ep = rng.choice(divisors(stage))
    layer.esp = rng.choice([d for d in divisors(stage // layer.ep) if d <= 8])
    layer.edp = stage // layer.ep // layer.esp
    layer.placement = rng.choice(["esp-inside", "esp-inside", "ep-inside"])
    layer.experts = layer.ep * rng.choice([1, 1, 1, 2, 3])
    layer.top_k = rng.randint(1, min(layer.experts, 4))
    layer.batch = rng.choice([1, 1, 2, 3, 4])
    tokens = rng.choice([16, 24, 32, 48, 64, 96, 128, 256, 512])
    layer.seq = layer.mp * tokens
    layer.heads = rng.choice([h for h in (4, 5, 7, 8, 12, 16, 25, 32) if h >= layer.mp])
    layer.kv_heads = layer.heads if rng.random() < 0.6 else rng.choice(
        [d for d in divisors(layer.heads)])
    layer.model_dim = layer.heads * rng.choice([4, 8, 16, 32, 64])
    if rng.random() < 0.3:
        layer.head_dim, layer.model_dim = rng.choice([4, 24, 64, 128]), rng.choice([40, 96, 336, 1024])
    layer.window = rng.choice([1, 7, 64, 1000]) if rng.random() < 0.2 else 0
    if rng.random() < 0.2:
        layer.kv_heads, layer.head_dim = layer.heads, 0
        layer.q_lora_rank, layer.kv_lora_rank = rng.choice([0, 12, 96]), rng.choice([8, 64])
        layer.qk_nope_head_dim, layer.qk_rope_head_dim = rng.choice([8, 32]), rng.choice([2, 16])
        layer.v_head_dim = rng.choice([8, 24])
    layer.hidden = layer.esp * rng.choice([8, 40, 64, 128, 300, 512, 1024])
    layer.shared_hidden = layer.mp * rng.choice([16, 64, 200]) if rng.random() < 0.25 else 0
    layer.capacity_factor = rng.choice([1.0, 1.2, 1.25, 2.4, 0.7, "none"])
    layer.rounding = rng.choice(["ragged", "ragged", "ragged", "exact", "lcm", "tutel", "deepspeed",
                                 "megatron"])
    layer.ffn = rng.choice(["gpt", "mixtral"])
    layer.dtype = rng.choice(["float32", "float32", "bfloat16", "float16", "float64"])
    for key, value in fixed.items():
        setattr(layer, key, value)
    if rng.random() < 0.4 and layer.dp > 1:  # some of DP share samples, each of which is two pieces a rank
        layer.cp = rng.choice([d for d in divisors(layer.dp) if 1 < d <= 8])
        layer.dp //= layer.cp
        layer.seq *= rng.choice([2, 2 * layer.cp]) if layer.seq % layer.cp == 0 else 2 * layer.cp
        while layer.batch * layer.seq // layer.cp % layer.mp:
            layer.seq *= layer.cp
        if not layer.window:
            layer.cp_exchange = rng.choice(["allgather", "ring"])
    return layer


def cut_samples(rng, layer):
    """Cuts samples that no CP ranks share into parts. Those have no gates that choose among a batch's tokens, and need
    their keys, so that layers aren't recomputed in full."""
    if layer.cp > 1 or rng.random() < 0.4:
        return
    layer.parts = rng.choice([n for n in (2, 3, 4) if layer.batch * layer.seq % (n * layer.mp) == layer.seq % n == 0])
    if layer.gate in ("softmoe", "expert-choice"):
        layer.gate = "gshard"
    if layer.recompute == "full":
        layer.recompute = "selective"


def random_recompute(rng):
    drawn = rng.random()
    return "selective" if drawn < 0.2 else "full" if drawn < 0.4 else "none"


def flags_of(layer):
    flags = ["--batch", layer.batch, "--seq", layer.seq, "--model-dim", layer.model_dim, "--hidden", layer.hidden,
             "--heads", layer.heads, "--kv-heads", layer.kv_heads, "--experts", layer.experts, "--top-k", layer.top_k,
             "--capacity-factor", layer.capacity_factor, "--capacity-rounding", layer.rounding, "--ffn", layer.ffn,
             "--dtype", layer.dtype, "--dp", layer.dp, "--cp", layer.cp, "--mp", layer.mp, "--ep", layer.ep,
             "--esp", layer.esp,
             "--pp", layer.pp, "--placement", layer.placement]
    if layer.blocks:
        flags += ["--cp-exchange", "ring"]
    if layer.head_dim:
        flags += ["--head-dim", layer.head_dim]
    if layer.window:
        flags += ["--window", layer.window]
    if layer.parts > 1:
        flags += ["--parts", layer.parts]
    if layer.kv_lora_rank:
        flags += ["--q-lora-rank", layer.q_lora_rank, "--kv-lora-rank", layer.kv_lora_rank, "--qk-nope-head-dim",
                  layer.qk_nope_head_dim, "--qk-rope-head-dim", layer.qk_rope_head_dim, "--v-head-dim",
                  layer.v_head_dim]
    if layer.shared_hidden:
        flags += ["--shared-hidden", layer.shared_hidden]
    if layer.gate != "gshard":
        flags += ["--gate", layer.gate]
    if layer.norm:
        flags += ["--norm", layer.norm]
    if layer.zero:
        flags += ["--zero", layer.zero]
    if layer.recompute != "none":
        flags += ["--recompute", layer.recompute]
    return [str(flag) for flag in flags]


def add_contention(rng, profile):
    lanes = ("compute", "inter", "intra", "copy")
    for slowed in lanes:
        for by in lanes:
            if slowed != by and rng.random() < 0.5:
                profile.contention[f"{slowed}_by_{by}"] = 1 + rng.random()
            if slowed != by and rng.random() < 0.15:
                profile.contention[f"{slowed}_by_{by}_stall_s"] = rng.random() * 1e-4
