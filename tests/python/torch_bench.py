"""usage: torch_bench.py [ROUNDS]

Prints what moetune.torch costs beside the runner of the plan's tasks, and how fast a layer is beside plain PyTorch, as
medians of ROUNDS rounds (15), in which all take turns. What the environment must have is torch_test.py's."""
import statistics
import sys
import time

from torch_test import SWIGLU, TINY, MoELayer, no_drops, plain_layer, torch, whole_weights

from moetune.torch_bench import pass_seconds

LAYERS = {"mixtral": {"batch": 4, "seq": 512, "model_dim": 1024, "hidden": 2048, "experts": 4, "heads": 16,
                      "gate": "switch", **SWIGLU},
          "gpt": {"batch": 8, "seq": 256, "model_dim": 512, "hidden": 2048, "experts": 8, "heads": 8,
                  "gate": "switch", "capacity_factor": None}}


def autograd_seconds(leaves):
    """Seconds of a backward that only hands a gradient to each leaf."""
    parameters = [torch.zeros(1, requires_grad=True) for _ in range(leaves)]
    y = torch.cat(parameters)
    begin = time.perf_counter()
    y.backward(y.detach())
    return time.perf_counter() - begin


def print_overhead(schedule, degrees, rounds):
    layer = MoELayer(**TINY, schedule=schedule, degrees=degrees)
    parameters = list(layer.parameters())
    x = torch.randn(len(layer.tokens), TINY["model_dim"], requires_grad=True)
    above, runs, plain = [], [], []
    for _ in range(rounds):
        taken, run = sum(pass_seconds(layer, x, parameters)), sum(layer.runner_seconds())
        above.append(taken - run)
        runs.append(run)
        plain.append(autograd_seconds(1 + len(parameters)))
    above, runs, plain = (1e6 * statistics.median(each) for each in (above, runs, plain))
    print(f"{schedule}, degrees {degrees}: forward and backward of the runner {runs:.0f} us, of the module {above:.0f} "
          f"us more; autograd with as many leaves {plain:.0f} us", flush=True)


def print_speed(name, rounds, **how):
    fields = LAYERS[name]
    layer = MoELayer(**fields, **how)
    weights = whole_weights(layer)
    x = torch.randn(len(layer.tokens), fields["model_dim"], requires_grad=True)
    ways = {"MoELayer": (layer, list(layer.parameters())),
            "PyTorch": (lambda rows: plain_layer(fields, weights, rows), list(weights.values()))}
    seconds = {way: [] for way in ways}
    for _ in range(rounds + 1):
        for way, (forward, parameters) in ways.items():
            seconds[way].append(sum(pass_seconds(forward, x, parameters)))
    ours, theirs = (statistics.median(each[1:]) for each in seconds.values())
    ratios = sorted(theirs / ours for ours, theirs in list(zip(*seconds.values()))[1:])
    print(f"{name} {how}: forward and backward of MoELayer {1e3 * ours:.1f} ms, of plain PyTorch {1e3 * theirs:.1f} "
          f"ms, {theirs / ours:.2f} times as long (rounds {ratios[0]:.2f} to {ratios[-1]:.2f}), "
          f"{torch.get_num_threads()} threads", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for schedule, degrees in ("tutel", 1), ("tutel", 2), ("fsmoe", 2), ("fsmoe", 4):
        print_overhead(schedule, degrees, 20 * rounds)
    for name in LAYERS:
        print_speed(name, rounds, schedule="tutel", degrees=1)


if __name__ == "__main__":
    main()
