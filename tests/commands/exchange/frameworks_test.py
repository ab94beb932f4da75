"""usage: frameworks_test.py PROGRAM PROBLEMS

What tune plans for a framework, against trying every shape that it runs, and against what its export writes, on
PROBLEMS random clusters and models."""
import itertools
import json
import random
import re
import subprocess
import sys

from program import PROGRAM, ProgramTest, main

PROBLEMS, RANKS = int(sys.argv[2]), 4
SCHEDULES = {"megatron": "ds-moe", "megatron-overlap": "pair-1f1b"}

PROFILE = """schema = 1
name = "four"
source = "made up"
[topology]
nodes = 2
ranks_per_node = 2
memory_bytes = {memory}
[overhead]
task_s = 2e-6
[[compute]]
op = "gemm"
alpha_s = 1e-5
beta_s_per_flop = {gemm}
[[compute]]
op = "copy"
alpha_s = 5e-6
beta_s_per_byte = 1e-12
"""
ROW = """[[comm]]
op = "{op}"
network = "{network}"
ranks = {ranks}
alpha_s = {alpha}
beta_s_per_byte = {beta}
"""
MODEL = """schema = 1
name = "drawn"
source = "made up"
layers = {layers}
vocabulary = {vocabulary}
[layer]
batch = 1
seq = {seq}
model_dim = 512
hidden = {hidden}
heads = {heads}
kv_heads = {kv_heads}
experts = {experts}
top_k = {top_k}
capacity_factor = {capacity}
ffn = "{ffn}"
bias = {bias}
dtype = "{dtype}"
"""


def drawn(draw):
    """A cluster and a model, as text, and the model's values."""
    gemm = draw.choice([1e-13, 1e-12])
    profile = PROFILE.format(memory=draw.choice([3, 4, 6, 16]) * 10 ** 8, gemm=gemm)
    for network, alpha, beta in (("intra", 1e-5, draw.choice([1e-11, 1e-10])), ("inter", 3e-5, 2e-10)):
        for op, part in (("alltoall", 1), ("allgather", 0.5), ("reducescatter", 0.5), ("allreduce", 1),
                         ("sendrecv", 1)):
            for ranks in (2,) if network == "intra" or op == "sendrecv" else (2, 4):
                profile += ROW.format(op=op, network=network, ranks=ranks, alpha=alpha, beta=beta * part)
    heads = draw.choice([2, 4, 8])
    model = {"layers": draw.choice([1, 2, 3, 4]), "vocabulary": draw.choice([0, 1000]),
             "seq": draw.choice([255, 256, 1024]), "hidden": draw.choice([512, 2048]), "heads": heads,
             "kv_heads": draw.choice([1, 2, heads]), "experts": draw.choice([2, 3, 4]),
             "top_k": draw.choice([1, 2]), "capacity": draw.choice(["1.2", '"none"']),
             "ffn": draw.choice(["gpt", "mixtral"]), "bias": draw.choice(["true", "false", "false"]),
             "dtype": draw.choice(["bfloat16", "bfloat16", "bfloat16", "float32"])}
    text = MODEL.format(**model)
    return profile, text if model["vocabulary"] else text.replace("vocabulary = 0\n", ""), model


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def megatron_runs(model, tp, pp, etp):
    """As megatron/training/arguments.py and megatron/core/transformer/transformer_config.py check it."""
    return (model["heads"] % tp == 0 and model["kv_heads"] % tp == 0 and model["seq"] % tp == 0 and
            model["layers"] % pp == 0 and not (etp > 1 and model["bias"] == "true"))


def overlap_runs(model, pp, ep, recompute):
    """As transformer_config.py checks overlap_moe_expert_parallel_comm; on one stage, for want of virtual ones, and of
    several layers, as one is planned in one micro-batch."""
    return model["layers"] > 1 and pp == 1 and ep > 1 and recompute != "full" and model["dtype"] == "bfloat16"


def shapes(model, batch):
    """Flags of every shape that Megatron-Core runs: groups, and how a replica's samples are cut into micro-batches."""
    for tp, pp in itertools.product(divisors(RANKS), repeat=2):
        if RANKS % (tp * pp) or batch % (RANKS // (tp * pp)):
            continue
        dp = RANKS // (tp * pp)
        for ep, etp in itertools.product(divisors(RANKS // pp), repeat=2):
            if RANKS // pp % (ep * etp) or model["experts"] % ep or not megatron_runs(model, tp, pp, etp):
                continue
            for count in divisors(batch // dp):
                yield ["--dp", dp, "--mp", tp, "--pp", pp, "--ep", ep, "--esp", etp, "--placement", "esp-inside",
                       "--batch", batch // dp // count, "--micro-batches", count,
                       *(["--pipeline", "1f1b"] if count > 1 else [])]


class FrameworksTest(ProgramTest):
    def tune(self, *words):
        """The answer; None: there is none."""
        line = [PROGRAM, "tune", "--no-verify", "--cluster", "./four.toml", "--model", "./drawn.toml", "--nearest",
                "--out", "r.jsonl", "--overwrite", "--json", "--quiet", *map(str, words)]
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 2), done.stderr)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def all_plans(self, framework, model, batch, pinned):
        """(seconds, bytes as it keeps them) in every shape of what it runs, with whatever ranks may keep that is not
        pinned: Megatron-Core's attention keeps no scores, whatever is asked, so that it has none to save."""
        kept = [[]]
        for flag, values in (("--zero", (0, 1)), ("--recompute", ("selective", "full"))):
            chosen = [pinned[flag]] if flag in pinned else values
            kept = [words + [flag, value] for words in kept for value in chosen]
        plans = []
        for shape, words in itertools.product(shapes(model, batch), kept):
            flags = dict(zip(shape[::2], shape[1::2])) | dict(zip(words[::2], words[1::2]))
            if framework == "megatron-overlap" and not overlap_runs(model, flags["--pp"], flags["--ep"],
                                                                    flags["--recompute"]):
                continue
            answer = self.tune("--framework", framework, "--schedule", SCHEDULES[framework], *shape, *words)
            if answer:
                plans.append((answer["use"]["total_s"], answer["use"]["memory_bytes"]))
        return plans

    def check_export(self, row):
        """Megatron's flags say the shape that the answer says, and nothing is refused."""
        text = self.text("export", row["framework"], "r.jsonl")
        self.assertNotRegex(text, "refuses|needs")
        overlaps = row["framework"] == "megatron-overlap"
        for flag in ("--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"):
            self.assertEqual(flag in text, overlaps)
        for flag, key in (("tensor-model-parallel-size", "mp"), ("pipeline-model-parallel-size", "pp"),
                          ("expert-model-parallel-size", "ep"), ("expert-tensor-parallel-size", "esp"),
                          ("micro-batch-size", "batch")):
            self.assertEqual(int(re.search(rf"--{flag} (\d+)", text)[1]), row[key], (flag, text))

    def test_megatron_has_the_best_of_what_it_runs(self):
        self.check_best("megatron", 7)

    def test_its_overlap_has_the_best_of_what_it_runs(self):
        self.check_best("megatron-overlap", 9)

    def check_best(self, framework, seed):
        draw, solved, decided = random.Random(seed), 0, 0
        while solved < PROBLEMS:
            profile, text, model = drawn(draw)
            self.path("four.toml", profile)
            self.path("drawn.toml", text)
            batch = 4
            pinned = {"--recompute": draw.choice(["none", "selective", "full"]), "--zero": draw.choice([0, 1])}
            if solved % 6 == 5:
                del pinned[draw.choice(list(pinned))]
            words = [word for pair in pinned.items() for word in pair]
            plans = self.all_plans(framework, model, batch, pinned)
            search = ["--shape", "auto", "--global-batch", batch, *words]
            found = self.tune(*search, "--framework", framework)
            self.assertEqual(found is None, not plans, (model, found and found["use"], plans))
            if not plans:
                continue
            fastest = min(plans)[0]
            least = min(plan[1] for plan in plans if plan[0] <= 1.01 * fastest)
            best = min(plan for plan in plans if plan[0] <= 1.01 * fastest and plan[1] == least)
            self.assertAlmostEqual(found["use"]["total_s"] / best[0], 1, delta=1e-9, msg=(model, batch, words))
            self.assertEqual(found["use"]["memory_bytes"], least)
            self.assertAlmostEqual(found["shapes"]["gap"], found["use"]["total_s"] / fastest - 1, delta=1e-9)
            [row] = found["frameworks"]
            self.check_export(row)
            # Beside the answer to all frameworks stands the same plan.
            whole = self.tune(*search)
            rows = {row["framework"]: row for row in whole["frameworks"]}
            self.assertEqual(rows[framework], row)
            self.check_export(rows[framework])
            decided += whole["use"]["schedule"] != SCHEDULES[framework]
            solved += 1
        self.assertGreater(decided, PROBLEMS // 3, "else every framework has the answer's own plan")


if __name__ == "__main__":
    main()
