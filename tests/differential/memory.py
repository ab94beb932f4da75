"""docs/metrics.md "memory", and MoNTA's Table 3: bytes of a rank of one layer.

Weights and gradients have the layer's element type. Adam has two moments; of 16 bits two moments and a copy in float32.
ZeRO 1 shares these states out over the ranks that hold a weight alike, ZeRO 2 the gradients too, ZeRO 3 the weights
too: of dense weights over DP and CP, of experts over EDP. Recomputed in full, layers keep their outputs, as the papers'
count takes it their inputs. What else a backward reads, attention's scores aside, is there of one layer and
micro-batch. A pass of one of N parts of samples keeps what a pass of samples of L / N tokens does, the gradients of its
keys and values, and room for the scores of its tokens and all L keys.
"""
import copy

import questions
import step
import volumes
from flows import keys_values, projections


def weights(layer):
    """Dense and expert weights of the rank that has most."""
    dense = projections(layer) + layer.gemms * layer.model_dim * layer.shared_hidden / layer.mp
    dense += step.alike_elements(layer)
    experts = layer.gemms * layer.model_dim * layer.hidden / layer.esp * layer.local_experts
    return dense, experts


def check_memory(tally, program, seed, rng):
    profile = questions.random_cluster(rng, tuple(volumes.BYTES))
    layer = questions.random_layer(rng, profile)
    cluster = program.write("cluster.toml", questions.toml_of(profile))
    flags = ["memory", "--cluster", cluster] + questions.flags_of(layer)
    counted = {}
    for zero in range(4):
        for recompute in ("none", "selective", "full"):
            document, error = program.json(flags + ["--zero", zero, "--recompute", recompute])
            if document is None:
                tally.failures.append(f"seed {seed}: {error}")
                return
            for estimate in document["estimates"]:
                what = f"seed {seed}, ZeRO {zero}, recompute {recompute}, {estimate['activations_model']}"
                check_estimate(tally, layer, estimate, zero, what)
                if estimate["activations_model"] == "counted":
                    counted[zero, recompute] = estimate
    for zero in range(4):
        tally.at_most("scores that are not kept", counted[zero, "selective"]["activations_bytes"],
                      counted[zero, "none"]["activations_bytes"], f"seed {seed}")
    check_outputs(tally, program, layer, flags, counted[0, "selective"]["activations_bytes"], rng, f"seed {seed}")
    questions.cut_samples(rng, layer)
    if layer.parts > 1:
        check_parts(tally, program, layer, cluster, rng, f"seed {seed}, {layer.parts} parts")


def check_outputs(tally, program, layer, flags, once, rng, what):
    """Layers keep their outputs, and one of them the rest but scores. once: what one keeps so, of one micro-batch."""
    layers, micro_batches = rng.randint(1, 4), rng.randint(1, 3)
    what += f", recompute full, {layers} layers, {micro_batches} micro-batches"
    flags = flags + ["--recompute", "full", "--layers", layers]
    if micro_batches > 1:
        flags += ["--micro-batches", micro_batches, "--pipeline", "gpipe"]
    document, error = program.json(flags)
    if document is None:
        tally.failures.append(f"{what}: {error}")
        return
    elements, passes = layer.tokens / layer.mp * layer.model_dim, layers * micro_batches
    output = layer.element * elements
    expected = {"printed": 2 * elements * layers, "corrected": output * passes,
                "counted": once - output + passes * output}
    for estimate in document["estimates"]:
        model = estimate["activations_model"]
        tally.same("outputs kept", estimate["activations_bytes"], expected[model], f"{what}, {model}")


def check_parts(tally, program, layer, cluster, rng, what):
    """Activations of samples in parts, by those of as many short samples."""
    layers, micro_batches = rng.randint(1, 4), rng.randint(1, 3)
    what += f", {layers} layers, {micro_batches} micro-batches"
    short = copy.copy(layer)
    short.parts, short.seq = 1, layer.seq // layer.parts

    def activations(asked, passes, recompute):
        flags = ["memory", "--cluster", cluster, "--layers", layers, "--recompute", recompute]
        flags += questions.flags_of(asked)
        if passes > 1:
            flags += ["--micro-batches", passes, "--pipeline", "gpipe"]
        document, error = program.json(flags)
        if document is None:
            tally.failures.append(f"{what}: {error}")
            return 0
        return next(estimate["activations_bytes"] for estimate in document["estimates"]
                    if estimate["activations_model"] == "counted")

    in_all = micro_batches * layer.parts
    kept = {recompute: activations(short, in_all, recompute) for recompute in ("selective", "none")}
    gradients = layers * in_all * layer.element * layer.tokens * keys_values(layer)
    scores = (kept["none"] - kept["selective"]) * layer.parts
    for recompute, expected in (("selective", kept["selective"] + gradients),
                                ("none", kept["selective"] + gradients + scores)):
        found = activations(layer, micro_batches, recompute)
        tally.same("activations of parts", found, expected, f"{what}, recompute {recompute}")


def check_estimate(tally, layer, estimate, zero, what):
    dense, experts = weights(layer)
    element = layer.element
    states = 12 if element == 2 else 2 * element

    def shared(size, from_stage):
        return size * (dense / layer.replicas + experts / layer.edp if zero >= from_stage else dense + experts)

    tally.same("weights", estimate["weights_bytes"], shared(element, 3), what)
    tally.same("gradients", estimate["gradients_bytes"], shared(element, 2), what)
    tally.same("optimizer states", estimate["optimizer_bytes"], shared(states, 1), what)
    parts = sum(estimate[key + "_bytes"] for key in ("weights", "gradients", "optimizer", "activations", "buffers"))
    tally.same("total memory", estimate["total_bytes"], parts, what)
