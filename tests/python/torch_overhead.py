"""usage: torch_overhead.py [ROUNDS]

Prints what moetune.torch costs beside the runner of the plan's tasks: microseconds, as quartiles of ROUNDS rounds
(300), and bytes of the heap. What the environment must have is torch_test.py's."""
import ctypes
import statistics
import sys
import time

from torch_test import TINY, MoELayer, nn, torch

from moetune.torch_bench import pass_seconds


class OneNode(nn.Module):
    """The least that a module with these parameters costs: one of torch's own nodes has them all as its inputs."""

    def __init__(self, parameters):
        super().__init__()
        for number, like in enumerate(parameters):
            self.register_parameter(f"p{number}", nn.Parameter(like.detach()[:1].flatten().clone()))

    def forward(self, x):
        return torch.cat([x, *self._parameters.values()])


def node_seconds(node, scalar, between):
    """Seconds of its forward and backward; `between` makes torch's code as cold as in a layer's own."""
    between()
    begin = time.perf_counter()
    y = node(scalar)
    forward = time.perf_counter() - begin
    gradient = torch.ones_like(y)
    between()
    begin = time.perf_counter()
    y.backward(gradient)
    return forward + time.perf_counter() - begin


def print_overhead(schedule, degrees, rounds):
    layer = MoELayer(**TINY, schedule=schedule, degrees=degrees)
    parameters = list(layer.parameters())
    x = torch.randn(len(layer.tokens), TINY["model_dim"], requires_grad=True)
    node, scalar = OneNode(parameters), torch.zeros(1, requires_grad=True)

    @torch.no_grad()
    def between():
        layer(x)

    above, runs, plain, own = [], [], [], []
    for _ in range(rounds):
        taken, run = sum(pass_seconds(layer, x, parameters)), sum(layer.runner_seconds())
        above.append(taken - run)
        runs.append(run)
        scalar.grad = None
        node.zero_grad()
        plain.append(node_seconds(node, scalar, between))
        own.append(above[-1] - plain[-1])
    above, runs, plain, own = ([1e6 * each for each in statistics.quantiles(times)]
                               for times in (above, runs, plain, own))
    tasks = layer._layer.made.tasks()
    print(f"{schedule}, degrees {degrees}: forward and backward of the runner {runs[1]:.0f} us, of the module "
          f"{above[1]:.0f} us more (quartile {above[0]:.0f}); one of torch's nodes with as many inputs {plain[1]:.0f} "
          f"us (quartile {plain[0]:.0f}), so the module's own are {own[1]:.0f} us (quartile {own[0]:.0f}); {tasks} "
          f"tasks, 30 + 2 x {tasks} = {30 + 2 * tasks} us", flush=True)


class _Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]


def heap_bytes():
    """Bytes that are allocated now, by the C library's count."""
    library = ctypes.CDLL("libc.so.6")
    library.mallinfo2.restype = _Heap
    found = library.mallinfo2()
    return found.uordblks + found.hblkhd


def held_bytes(schedule, degrees):
    """What a forward allocates and leaves, and what its backward does; the output has 1 MiB, and x too."""
    layer = MoELayer(batch=2, seq=256, model_dim=512, hidden=1024, heads=8, experts=4, gate="switch", schedule=schedule,
                     degrees=degrees)
    x = torch.randn(len(layer.tokens), 512, requires_grad=True)
    for _ in range(3):  # the first make what all need
        layer.zero_grad()
        x.grad = None
        begin = heap_bytes()
        y = layer(x)
        middle = heap_bytes()
        y.backward(torch.ones_like(y))
        held = middle - begin, heap_bytes() - middle
        del y
    return held


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    for schedule, degrees in ("tutel", 1), ("tutel", 2), ("fsmoe", 2), ("fsmoe", 4):
        print_overhead(schedule, degrees, rounds)
        forward, backward = (each / 2**20 for each in held_bytes(schedule, degrees))
        print(f"{schedule}, degrees {degrees}: a forward leaves {forward:.2f} MiB beside the layer's tensors (its "
              f"output has 1 MiB), its backward {backward:.2f} MiB (as the gradient of x)", flush=True)


if __name__ == "__main__":
    main()
