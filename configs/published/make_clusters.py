"""usage: make_clusters.py [FOLDER]

Writes the clusters of which others published measurements, from the figures beside this file, into FOLDER (by default
configs/clusters). Each row says whether it is measured, or bounded by a data sheet.
"""
import csv
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMMENTS = 112  # columns
HALF = ("bfloat16", "float16")
NODE_LIMIT = 4  # nodes that a token of DeepSeek-V3 goes to at most
NIC = 50e9  # B/s a GPU: 400 Gb/s, as DeepEP's own tests have
# Least tokens of the eight ranks from which experts are bound by computing: 512 rows an expert.
EXPERT_TOKENS = 2048
OPS = ("alltoall", "allgather", "reducescatter", "allreduce")
AICONFIGURATOR = "AIConfigurator (ai-dynamo/aiconfigurator, commit 095f58a51c)"


class Gpu:
    def __init__(self, name, shown, memory, bandwidth, link):
        self.name, self.shown, self.memory, self.bandwidth, self.link = name, shown, memory, bandwidth, link


# Memory and its bandwidth are those of NVIDIA's data sheets.
GPUS = [Gpu("a100", "A100 SXM (80 GB)", 80e9, 2.039e12, "NVLink 3"),
        Gpu("h100", "H100 SXM (80 GB)", 80e9, 3.35e12, "NVLink 4"),
        Gpu("h200", "H200 SXM (141 GB)", 141e9, 4.8e12, "NVLink 4"),
        Gpu("b200", "B200 (180 GB)", 180e9, 8e12, "NVLink 5")]


def table(name):
    """The rows of a CSV file, numbers as such."""
    def cell(text):
        try:
            return float(text)
        except ValueError:
            return text

    with open(HERE / f"{name}.csv", encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return [{key: cell(value) for key, value in row.items()} for row in csv.DictReader(lines)]


class Line:
    """t = alpha + n beta by relative least squares, alpha >= 0; samples may be taken out again."""

    def __init__(self, samples):
        self.sums = [0.0] * 5
        for sample in samples:
            self.add(sample, 1)

    def add(self, sample, sign):
        size, seconds = sample
        terms = (1, size, size * size, seconds, seconds * size)
        self.sums = [total + sign * term / seconds ** 2 for total, term in zip(self.sums, terms)]

    def solved(self):
        ones, sizes, squares, seconds, products = self.sums
        alpha = (seconds * squares - products * sizes) / (ones * squares - sizes * sizes)
        if alpha < 0:
            return 0.0, products / squares
        return alpha, (ones * products - sizes * seconds) / (ones * squares - sizes * sizes)


def held_out(samples):
    """The median and the worst relative error of samples, each by the line of the other sizes."""
    line = Line(samples)
    errors = []
    for size in sorted({size for size, _ in samples}):
        same = [sample for sample in samples if sample[0] == size]
        for sample in same:
            line.add(sample, -1)
        alpha, beta = line.solved()
        errors += [abs((alpha + beta * size) / seconds - 1) for _, seconds in same]
        for sample in same:
            line.add(sample, 1)
    errors.sort()
    return (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2, errors[-1]


def number(value):
    return f"{value:.10e}" if value else "0.0"


def wrapped(text, first, rest, columns=COMMENTS):
    """Prose broken at blanks."""
    lines, line = [], first
    for word in text.split():
        if len(line) + len(word) > columns and line.strip("# "):
            lines.append(line.rstrip())
            line = rest
        line += word + " "
    return lines + [line.rstrip()]


def comm(op, network, ranks, alpha, beta, why, points=(), node_limit=0):
    lines = [f"[[comm]]  # {why}", f'op = "{op}"', f'network = "{network}"', f"ranks = {ranks}",
             f"alpha_s = {number(alpha)}", f"beta_s_per_byte = {number(beta)}"]
    if node_limit:
        lines.append(f"node_limit = {node_limit}  # assumed, as DeepSeek-V3 was trained")
    if points:
        lines.append(f"range_bytes = [{points[0][0]:.0f}, {points[-1][0]:.0f}]")
        lines.append("points = [")
        for i in range(0, len(points), 4):
            lines.append("  " + " ".join(f"[{size:.0f}, {seconds:.9g}]," for size, seconds in points[i:i + 4]))
        lines.append("]")
    return lines + [""]


def nccl_points(gpu, op, ranks):
    return sorted((row["bytes"], row["seconds"]) for row in table("nccl")
                  if (row["gpu"], row["op"], row["ranks"]) == (gpu, op, ranks))


def nccl_rows(gpu, without=()):
    lines = []
    for op in OPS:
        for ranks in (2, 4, 8):
            points = nccl_points(gpu, op, ranks)
            if (op, ranks) not in without:
                lines += comm(op, "intra", ranks, *Line(points).solved(), "measured", points)
    alpha, beta = Line(nccl_points(gpu, "alltoall", 2)).solved()
    return lines + comm("sendrecv", "intra", 2, alpha, 2 * beta, "derived: an alltoall of two ranks, twice the bytes")


def compute(op, samples, why, ffn=None):
    alpha, beta = Line(samples).solved()
    median, worst = held_out(samples)
    lines = []
    for dtype in HALF:
        lines += [f"[[compute]]  # {why if dtype == HALF[0] else 'taken as bfloat16'}", f'op = "{op}"']
        lines += [f'ffn = "{ffn}"'] * (ffn is not None)
        lines += [f'dtype = "{dtype}"', f"alpha_s = {number(alpha)}", f"beta_s_per_flop = {number(beta)}",
                  f"held_out_error = {median:.4f}", f"held_out_worst = {worst:.4f}",
                  f"range_flops = [{min(samples)[0]:.0f}, {max(samples)[0]:.0f}]", ""]
    return lines


def expert_samples(gpu):
    """(FLOPs of a rank, seconds): three GEMMs, a multiplication and an addition each."""
    return [(6 * row["tokens"] * row["top_k"] / 8 * row["model_dim"] * row["hidden"], row["seconds"])
            for row in table("experts") if row["gpu"] == gpu and row["tokens"] >= EXPERT_TOKENS]


def compute_rows(gpu):
    gemms = [(2 * row["m"] * row["n"] * row["k"], row["seconds"]) for row in table("gemm") if row["gpu"] == gpu.name]
    lines = compute("gemm", gemms, f"measured, {len(gemms)} shapes")
    experts = expert_samples(gpu.name)
    if experts:
        lines += compute("expert", experts, "measured: Mixtral 8x7B, an expert a rank, 512 rows or more", "mixtral")
    copy = number(2 / gpu.bandwidth)
    lines += ["[[compute]]  # bound: a byte read and written", 'op = "copy"', "alpha_s = 0.0",
              f"beta_s_per_byte = {copy}", ""]
    for phase in ("forward", "backward"):
        lines += ["[[module]]  # bound: rows read and written", 'name = "order:tutel"', f'phase = "{phase}"',
                  "alpha_s = 0.0", f"beta_s_per_byte = {copy}", ""]
    return lines


def head(name, summary, source, remarks, topology):
    lines = wrapped(remarks, "# ", "# ") + ["# Made by configs/published/make_clusters.py: change that.", "schema = 1"]
    lines += [f'name = "{name}"', f'summary = "{summary}"', 'source = """\\']
    text = wrapped(source, "", "")
    lines += [line + " \\" for line in text[:-1]] + [text[-1] + '"""', "", "[topology]"]
    return lines + [f"{key} = {value}" for key, value in topology] + [""]


def bounds_of(gpu):
    return (f"Bounds: copies and order (tutel) by {gpu.bandwidth / 1e12:g} TB/s of the data sheet; attention and gates "
            "by the GEMM row, which is faster than they are. Not known, so none: what lanes lose side by side, what a "
            "task costs beside its work.")


def measured_of(gpu, versions):
    experts = "experts" if expert_samples(gpu.name) else "no experts with even routing: by the GEMM row"
    return (f"{AICONFIGURATOR}: nccl-tests with NCCL {versions[gpu.name]}, half precision; GEMMs in bfloat16; "
            f"{experts}.")


def one_node(gpu, versions):
    name = f"{gpu.name}-8"
    remarks = (f"One node of 8 {gpu.shown}. Collectives are measured curves; their alpha and beta, a relative "
               "least-squares line through them, hold outside. GEMMs and experts are such lines.")
    text = head(name, f"1 node x 8 {gpu.shown}, {gpu.link}; nccl-tests, GEMMs; half precision",
                f"{measured_of(gpu, versions)} {bounds_of(gpu)}", remarks,
                [("nodes", 1), ("ranks_per_node", 8), ("memory_bytes", f"{gpu.memory / 1e9:g}e9")])
    return name, text + nccl_rows(gpu.name) + compute_rows(gpu)


def deepep_points(nodes):
    return sorted((row["tokens"] * row["top_k"] * row["model_dim"] * 2, row["combine_s"] + row["combine_notify_s"])
                  for row in table("deepep-h100") if row["nodes"] == nodes)


def between_nodes(nodes):
    """What is not measured there: bounds by a GPU's network card, one of which each GPU has."""
    lines = comm("alltoall", "inter", nodes, 0, (nodes - 1) / nodes / NIC, "bound: a card a GPU at 50 GB/s")
    ring = 2 * (nodes - 1) / nodes / NIC
    lines += comm("allreduce", "inter", nodes, 0, ring, "bound: a ring, a card a GPU at 50 GB/s")
    lines += comm("sendrecv", "inter", 2, 0, 1 / NIC, "bound: a card at 50 GB/s")
    inside = [Line(nccl_points("h100", op, 8)).solved() for op in ("reducescatter", "allgather")]
    return lines + comm("allreduce", "inter", 8 * nodes, sum(alpha for alpha, _ in inside),
                        sum(beta for _, beta in inside) + ring / 8,
                        "reducescatter and allgather of a node as measured, an eighth between nodes by that bound")


def deepep(gpu, nodes, versions):
    name = f"h100-deepep-{nodes}-node{'s' if nodes > 1 else ''}"
    ranks, points = 8 * nodes, deepep_points(nodes)
    remarks = (f"{nodes} node{'s' if nodes > 1 else ''} of 8 H100 whose AlltoAll over all {ranks} ranks is DeepEP's "
               "(M 7168, k 8, E 256, 20 SMs): its combine, with what announces it, by the bytes of k copies of a token "
               "though it sends fewer. Measured dispatch sends FP8, by its speed; in 16 bits it moves what combine "
               "does, so that both have combine's time. Everything inside a node is h100-8's.")
    between = " Between nodes, other collectives: 50 GB/s a GPU, a bound." if nodes > 1 else ""
    text = head(name, f"{nodes} node{'s' if nodes > 1 else ''} x 8 H100 SXM; DeepEP over {ranks} ranks; half precision",
                f"{measured_of(gpu, versions)} AlltoAll over {ranks} ranks: DeepEP's normal kernels, sglang "
                f"0.5.6.post2, from the same.{between} {bounds_of(gpu)}", remarks,
                [("nodes", nodes), ("ranks_per_node", 8), ("memory_bytes", f"{gpu.memory / 1e9:g}e9")])
    text += comm("alltoall", "inter" if nodes > 1 else "intra", ranks, *Line(points).solved(), "measured", points,
                 node_limit=NODE_LIMIT if nodes > NODE_LIMIT else 0)
    text += between_nodes(nodes) if nodes > 1 else []
    return name, text + nccl_rows("h100", without=[("alltoall", 8)] if nodes == 1 else []) + compute_rows(gpu)


def clusters():
    """The TOML of each cluster by its name."""
    versions = {row["gpu"]: row["nccl"] for row in table("nccl")}
    made = [one_node(gpu, versions) for gpu in GPUS]
    h100 = next(gpu for gpu in GPUS if gpu.name == "h100")
    made += [deepep(h100, int(nodes), versions) for nodes in sorted({row["nodes"] for row in table("deepep-h100")})]
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "clusters"
    for name, text in clusters().items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
