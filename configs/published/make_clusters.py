"""usage: make_clusters.py [FOLDER]

Writes the clusters of which others published measurements, from the figures beside this file, into FOLDER (by default
configs/clusters). Each row says whether it is measured, or bounded by a data sheet.
"""
import csv
import math
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
COMMENTS = 112  # columns
HALF = ("bfloat16", "float16")
NODE_LIMIT = 4  # nodes that a token of DeepSeek-V3 goes to at most
NIC = 50e9  # B/s a GPU: 400 Gb/s, as DeepEP's own tests have
DEEPEP_NIC = 51e9  # B/s that DeepEP's combine sends between 8 nodes, tokens of NODE_LIMIT nodes (README at edbb1bc)
H800_LINK = 160e9  # B/s that a GPU's NVLink carries at most there, by DeepEP's README, of 400 GB/s both ways
TILE = 128  # rows and columns, as moe/prices/gpu_prices.cpp counts them
OPS = ("alltoall", "allgather", "reducescatter", "allreduce")
FITTED = {}  # by GPU: fitted_gemms()
AICONFIGURATOR = "AIConfigurator (ai-dynamo/aiconfigurator, commit 095f58a51c)"


class Gpu:
    def __init__(self, name, shown, memory, bandwidth, link, multiprocessors, peak):
        self.name, self.shown, self.memory, self.bandwidth, self.link = name, shown, memory, bandwidth, link
        self.multiprocessors, self.peak = multiprocessors, peak


# Memory and its bandwidth, multiprocessors and dense 16-bit FLOP/s are those of NVIDIA's data sheets.
GPUS = [Gpu("a100", "A100 SXM (80 GB)", 80e9, 2.039e12, "NVLink 3", 108, 312e12),
        Gpu("h100", "H100 SXM (80 GB)", 80e9, 3.35e12, "NVLink 4", 132, 989.4e12),
        Gpu("h200", "H200 SXM (141 GB)", 141e9, 4.8e12, "NVLink 4", 132, 989.4e12),
        Gpu("b200", "B200 (180 GB)", 180e9, 8e12, "NVLink 5", 148, 2250e12)]

# FlashAttention-3 (arXiv:2407.08608), figures 5 and 6: cuDNN on an H100 SXM, TFLOP/s by tokens, 16k tokens in all. The
# figures print these numbers; we have them from transcriptions by third parties, not checked against the paper.
ATTENTION_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
CAUSAL = {64: (225, 288, 334, 363, 379, 388), 128: (315, 410, 484, 518, 529, 539)}
WHOLE = {64: (335, 373, 395, 408, 412, 413), 128: (497, 574, 617, 609, 600, 595)}
WHOLE_BACKWARD = {64: (266, 348, 395, 417, 432, 433), 128: (305, 408, 465, 499, 518, 516)}


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


def least(error, start):
    """The arguments with the least error, each by factors that shrink, all below their limit of 1."""
    best, found, factor = list(start), error(start), 1.5
    while factor > 1.002:
        for i in range(len(best)):
            for by in (factor, 1 / factor):
                tried = best[:i] + [min(1.0, best[i] * by)] + best[i + 1:]
                if (other := error(tried)) < found - 1e-12:
                    best, found = tried, other
                    break
            else:
                continue
            break
        else:
            factor = math.sqrt(factor)
    return best


def gemm_s(gpu, shape, share, tile_us, memory_share):
    """moe/prices/gpu_prices.cpp: gemm_seconds()."""
    m, n, k, groups = shape
    wave = gpu.multiprocessors * 2 * TILE * TILE * k / (gpu.peak * share) + tile_us * 1e-6
    tiles = groups * math.ceil(m / TILE) * math.ceil(n / TILE)
    traffic = groups * 2 * (m * k + k * n + m * n) / (gpu.bandwidth * memory_share)
    return max(math.ceil(tiles / gpu.multiprocessors) * wave, traffic)


def mean_error(predicted, measured):
    return sum(abs(math.log(p / s)) for p, s in zip(predicted, measured)) / len(measured)


def fitted_gemms(gpu):
    """Share of the peak, start of a tile in us and share of the memory's bandwidth that fit GEMMs best."""
    rows = [row for row in table("gemm") if row["gpu"] == gpu.name]
    shapes, seconds = [(row["m"], row["n"], row["k"], 1) for row in rows], [row["seconds"] for row in rows]

    def error(x):
        return mean_error([gemm_s(gpu, shape, x[0], 10 * x[1], x[2]) for shape in shapes], seconds)

    share, tens, memory_share = least(error, [0.8, 0.1, 0.8])
    return share, 10 * tens, memory_share


def experts_s(gpu, row, share, tile_us, memory_share):
    """Two products, the activation, and k rows a token that are written before and read after."""
    held, dim, hidden = row["experts"] / row["ep"], row["model_dim"], row["hidden"]
    rows = row["tokens"] * row["top_k"] / row["experts"]
    traffic = held * rows * 2 * (2 * dim + 3 * hidden) / (gpu.bandwidth * memory_share)
    return (gemm_s(gpu, (rows, 2 * hidden, dim, held), share, tile_us, memory_share)
            + gemm_s(gpu, (rows, dim, hidden, held), share, tile_us, memory_share) + traffic)


def fitted_experts(gpu, memory_share):
    rows = [row for row in table("experts") if row["gpu"] == gpu.name]
    if not rows:
        return None
    seconds = [row["seconds"] for row in rows]

    def error(x):
        return mean_error([experts_s(gpu, row, x[0], 10 * x[1], memory_share) for row in rows], seconds)

    share, tens = least(error, [0.9, 0.3])
    return share, 10 * tens


def attention_rows(gpu):
    """Backwards under a causal mask, which are not printed: as much slower than whole ones as forwards are."""
    if gpu.name not in ("h100", "h200"):
        return []
    lines = []
    for dim in CAUSAL:
        by_half = [back * causal / whole for back, causal, whole in zip(WHOLE_BACKWARD[dim], CAUSAL[dim], WHOLE[dim])]
        for phase, rates in (("forward", CAUSAL[dim]), ("backward", by_half)):
            lines += ["[[attention]]  # cuDNN, causal, as FlashAttention-3's authors measured it" +
                      (", derived" if phase == "backward" else ""), f"head_dim = {dim}", f'phase = "{phase}"',
                      "flops_per_s = [" + ", ".join(f"[{tokens}, {rate * 1e12:.4g}]"
                                                    for tokens, rate in zip(ATTENTION_TOKENS, rates)) + "]", ""]
    return lines


def gpu_rows(gpu, shown):
    share, tile_us, memory_share = FITTED[gpu.name]
    lines = ["[gpu]  # a model, for computations without a row: data sheet, and shares that fit measured GEMMs",
             f'name = "{shown}"', f"multiprocessors = {gpu.multiprocessors}",
             f"tensor_flops_per_s = {number(gpu.peak)}", f"memory_bytes_per_s = {number(gpu.bandwidth)}",
             f"memory_share = {memory_share:.3f}", f"gemm_share = {share:.3f}",
             f"gemm_tile_s = {number(round(tile_us, 3) * 1e-6)}"]
    if experts := fitted_experts(gpu, memory_share):
        lines += [f"grouped_share = {experts[0]:.3f}  # of measured experts",
                  f"grouped_tile_s = {number(round(experts[1], 3) * 1e-6)}"]
    return lines + [""] + attention_rows(gpu)


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


def comm(op, network, ranks, alpha, beta, why, points=(), node_limit=0, sent_share=0, ranks_per_node=0):
    lines = [f"[[comm]]  # {why}", f'op = "{op}"', f'network = "{network}"', f"ranks = {ranks}",
             *([f"ranks_per_node = {ranks_per_node}"] if ranks_per_node else []),
             f"alpha_s = {number(alpha)}", f"beta_s_per_byte = {number(beta)}"]
    if node_limit:
        lines.append(f"node_limit = {node_limit}  # assumed, as DeepSeek-V3 was trained")
    if sent_share:
        lines.append(f"sent_share = {sent_share:.6g}  # nodes, or ranks of one, that a token reached, over k = 8")
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


def narrowed(op, ranks, points, link):
    """Points of a collective of which no rank sends more than `link` B/s."""
    sent = (2 if op == "allreduce" else 1) * (ranks - 1) / ranks
    return [(size, max(seconds, size * sent / link)) for size, seconds in points]


def nccl_rows(gpu, without=(), link=None):
    lines = []
    for op in OPS:
        for ranks in (2, 4, 8):
            points = nccl_points(gpu, op, ranks)
            if (op, ranks) in without:
                continue
            if link is None:
                lines += comm(op, "intra", ranks, *Line(points).solved(), "measured", points)
            else:
                points = narrowed(op, ranks, points, link)
                lines += comm(op, "intra", ranks, *Line(points).solved(), f"derived: {gpu}'s, {link / 1e9:.0f} GB/s",
                              points)
    points = nccl_points(gpu, "alltoall", 2)
    alpha, beta = Line(points if link is None else narrowed("alltoall", 2, points, link)).solved()
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


def compute_rows(gpu, shown=None):
    gemms = [(2 * row["m"] * row["n"] * row["k"], row["seconds"]) for row in table("gemm") if row["gpu"] == gpu.name]
    lines = compute("gemm", gemms, f"measured, {len(gemms)} shapes")
    copy = number(2 / (gpu.bandwidth * FITTED[gpu.name][2]))
    return lines + ["[[compute]]  # modelled: a byte read and written", 'op = "copy"', "alpha_s = 0.0",
                    f"beta_s_per_byte = {copy}", ""] + gpu_rows(gpu, shown or gpu.shown)


def head(name, summary, source, remarks, topology):
    lines = wrapped(remarks, "# ", "# ") + ["# Made by configs/published/make_clusters.py: change that.", "schema = 1"]
    lines += [f'name = "{name}"', f'summary = "{summary}"', 'source = """\\']
    text = wrapped(source, "", "")
    lines += [line + " \\" for line in text[:-1]] + [text[-1] + '"""', "", "[topology]"]
    return lines + [f"{key} = {value}" for key, value in topology] + [""]


def modelled_of(gpu):
    attention = (" Attention by cuDNN's rates on an H100 in FlashAttention-3 (arXiv:2407.08608), as third parties "
                 "transcribed its figures."
                 if attention_rows(gpu) else " Attention's kernel as GEMMs, which is faster than it is.")
    return (f"Modelled: computations by shape, in waves of tiles, and copies by the data sheet's "
            f"{gpu.bandwidth / 1e12:g} TB/s, all by the share of it that GEMMs reach.{attention} Not known, so none: "
            "what lanes lose side by side, what the host takes to launch a task.")


def measured_of(gpu, versions):
    experts = "experts" if any(row["gpu"] == gpu.name for row in table("experts")) else "no experts with even routing"
    return (f"{AICONFIGURATOR}: nccl-tests with NCCL {versions[gpu.name]}, half precision; GEMMs in bfloat16; "
            f"{experts}.")


def one_node(gpu, versions):
    name = f"{gpu.name}-8"
    remarks = (f"One node of 8 {gpu.shown}. Collectives are measured curves; their alpha and beta, a relative "
               "least-squares line through them, hold outside. GEMMs and experts are a model fitted to measured ones.")
    text = head(name, f"1 node x 8 {gpu.shown}, {gpu.link}; nccl-tests, GEMMs; half precision",
                f"{measured_of(gpu, versions)} {modelled_of(gpu)}", remarks,
                [("nodes", 1), ("ranks_per_node", 8), ("memory_bytes", f"{gpu.memory / 1e9:g}e9")])
    return name, text + nccl_rows(gpu.name) + compute_rows(gpu)


def deepep_points(nodes):
    """Combine with its notify kernel, which waits for traffic on its way. This is decided by the table of the kernels
    alone."""
    return sorted((row["tokens"] * row["top_k"] * row["model_dim"] * 2, row["combine_s"] + row["combine_notify_s"])
                  for row in table("deepep-h100") if row["nodes"] == nodes)


def reached(places):
    """Of so many nodes or ranks those that a token goes to where the table was measured: 8 of 256 experts."""
    return places * (1 - math.comb(256 - 256 // places, 8) / math.comb(256, 8))


def deepep_row(nodes, link=None):
    # A token once a node, the table's rows over 2 and 4 nodes have 60 and 62 GB/s, as DeepEP's README has 62 and 60.
    # Over 8 they have 25, the README 51: other nodes or networks, so there the README's counts, with their alpha.
    if nodes > NODE_LIMIT:
        return comm("alltoall", "inter", 8 * nodes, Line(deepep_points(nodes)).solved()[0], NODE_LIMIT / 8 / DEEPEP_NIC,
                    f"DeepEP's README: {DEEPEP_NIC / 1e9:.0f} GB/s between nodes, by the bytes of k = 8 copies",
                    node_limit=NODE_LIMIT, sent_share=NODE_LIMIT / 8, ranks_per_node=8)
    points = deepep_points(nodes)
    if link is not None and nodes == 1:  # a token goes to 5.3 of 8 ranks once, for k = 8 copies
        sent = reached(8) * 7 / 8 / 8
        points = [(size, max(seconds, size * sent / link)) for size, seconds in points]
    return comm("alltoall", "inter" if nodes > 1 else "intra", 8 * nodes, *Line(points).solved(), "measured", points,
                sent_share=reached(nodes if nodes > 1 else 8) / 8, ranks_per_node=8 if nodes > 1 else 0)


SPREADS = (1, 2, 4, 8)  # ranks of a group on each of its nodes


def nccl_between(nodes):
    """AlltoAlls of two nodes or more: what leaves the node, by a GPU's network card. One rank a node: between_nodes."""
    lines = []
    for of_node in SPREADS:
        for spanned in (2, 4, 8):
            if spanned <= nodes and (of_node, spanned) != (1, nodes):
                lines += comm("alltoall", "inter", of_node * spanned, 0, (spanned - 1) / spanned / NIC,
                              "bound: a card a GPU at 50 GB/s", ranks_per_node=of_node)
    return lines


def between_nodes(nodes, gpu="h100"):
    """What is not measured there: bounds by a GPU's network card, one of which each GPU has."""
    lines = comm("alltoall", "inter", nodes, 0, (nodes - 1) / nodes / NIC, "bound: a card a GPU at 50 GB/s",
                 ranks_per_node=1)
    ring = 2 * (nodes - 1) / nodes / NIC
    lines += comm("allreduce", "inter", nodes, 0, ring, "bound: a ring, a card a GPU at 50 GB/s", ranks_per_node=1)
    lines += comm("sendrecv", "inter", 2, 0, 1 / NIC, "bound: a card at 50 GB/s")
    inside = [Line(nccl_points(gpu, op, 8)).solved() for op in ("reducescatter", "allgather")]
    return lines + comm("allreduce", "inter", 8 * nodes, sum(alpha for alpha, _ in inside),
                        sum(beta for _, beta in inside) + ring / 8,
                        "reducescatter and allgather of a node as measured, an eighth between nodes by that bound",
                        ranks_per_node=8)


def several(nodes):
    return f"{nodes} node{'s' if nodes > 1 else ''}"


def topology(gpu, nodes):
    return [("nodes", nodes), ("ranks_per_node", 8), ("memory_bytes", f"{gpu.memory / 1e9:g}e9")]


H800 = (" An H800 is an H100 with 400 GB/s of NVLink in the place of 900, of which a GPU's own way out carries 160 "
        "GB/s (DeepEP's README): nothing inside a node is faster than that.")


def deepep(gpu, nodes, versions, link=None):
    shown, narrow = ("H100 SXM", "") if link is None else ("H800 SXM", H800)
    sizes = [size for size in (1, 2, 4, 8) if size <= nodes]
    groups = ", ".join(str(8 * size) for size in sizes)
    remarks = (f"{several(nodes)} of 8 {shown[:4]} whose AlltoAll over {groups} ranks is DeepEP's (M 7168, k 8, E "
               "256, 20 SMs): its combine, with what announces it, by the bytes of k copies of a token though it "
               f"sends fewer{'; over 64 ranks by the rate of its README' if nodes > NODE_LIMIT else ''}. Measured "
               "dispatch sends FP8, by its speed; in 16 bits it moves what combine does, so that both have combine's "
               "time. Everything else inside a node is h100-8's.")
    between = " Between nodes, other collectives: 50 GB/s a GPU, a bound." if nodes > 1 else ""
    name = f"{shown[:4].lower()}-deepep-{several(nodes).replace(' ', '-')}"
    text = head(name, f"{several(nodes)} x 8 {shown}; DeepEP over {groups} ranks; half precision",
                f"{measured_of(gpu, versions)} AlltoAll over {groups} ranks: DeepEP's normal kernels, sglang "
                f"0.5.6.post2, from the same{', over 64 by its README (edbb1bc)' if nodes > NODE_LIMIT else ''}."
                f"{between}{narrow} {modelled_of(gpu)}", remarks, topology(gpu, nodes))
    for size in reversed(sizes):
        text += deepep_row(size, link)
    text += between_nodes(nodes) if nodes > 1 else []
    return name, text + nccl_rows("h100", without=[("alltoall", 8)], link=link) + compute_rows(gpu, f"{shown} (80 GB)")


def nccl_cluster(gpu, nodes, versions, name, link):
    """Several nodes with NCCL alone; `link`: an H800, whose NVLink carries so much."""
    shown = gpu.shown if link is None else "H800 SXM (80 GB)"
    narrow = "" if link is None else H800
    text = head(name, f"{several(nodes)} x 8 {shown}; nccl-tests inside a node; half precision",
                f"{measured_of(gpu, versions)} Between nodes: 50 GB/s a GPU, a bound.{narrow} {modelled_of(gpu)}",
                f"{several(nodes)} of 8 {shown}; between them a network card a GPU. Inside a node NCCL's collectives "
                f"are h100-8's.{' Derived.' if narrow else ''}", topology(gpu, nodes))
    between = nccl_between(nodes) + between_nodes(nodes) if nodes > 1 else []
    return name, text + between + nccl_rows(gpu.name, link=link) + compute_rows(gpu, shown)


def clusters():
    """The TOML of each cluster by its name."""
    versions = {row["gpu"]: row["nccl"] for row in table("nccl")}
    FITTED.update({gpu.name: fitted_gemms(gpu) for gpu in GPUS if gpu.name not in FITTED})
    made = [one_node(gpu, versions) for gpu in GPUS]
    h100 = next(gpu for gpu in GPUS if gpu.name == "h100")
    made += [nccl_cluster(h100, 8, versions, "h100-8-nodes", None),
             nccl_cluster(h100, 8, versions, "h800-8-nodes", H800_LINK), deepep(h100, 8, versions, H800_LINK)]
    made += [deepep(h100, int(nodes), versions) for nodes in sorted({row["nodes"] for row in table("deepep-h100")})]
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "clusters"
    for name, text in clusters().items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
