"""usage: torch_overhead.py [ROUNDS]

Prints what moetune.torch costs beside the runner of the plan's tasks, as medians of ROUNDS rounds (300). What the
environment must have is torch_test.py's."""
import statistics
import sys
import time

from torch_test import TINY, MoELayer, torch

from moetune.torch_bench import pass_seconds


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


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for schedule, degrees in ("tutel", 1), ("tutel", 2), ("fsmoe", 2), ("fsmoe", 4):
        print_overhead(schedule, degrees, rounds)


if __name__ == "__main__":
    main()
