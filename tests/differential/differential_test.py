"""The planner's numbers, computed a second time from the formulas alone, on random questions.

differential_test.py MOETUNE KIND=QUESTIONS.. [--seed FIRST]: of each kind so many, of seeds from FIRST on. Kinds:
layers, grids, models, memory, placement, noise. A failure names its seed, which asks the same question again.
"""
import random
import sys
import tempfile
import time

import grids
import layers
import memory
import models
import noise
import placement
from collectives import MET
from program import Program
from tally import Tally

CHECKS = {
    "layers": lambda tally, program, seed: layers.check_layer(tally, program, seed, random.Random(seed), seed % 4 == 3),
    "grids": lambda tally, program, seed: grids.check_grid(tally, program, seed, random.Random(seed)),
    "models": lambda tally, program, seed: models.check_model(tally, program, seed, random.Random(seed)),
    "memory": lambda tally, program, seed: memory.check_memory(tally, program, seed, random.Random(seed)),
    "placement": lambda tally, program, seed: placement.check_placement(tally, program, seed, random.Random(seed)),
    "noise": lambda tally, program, seed: noise.check_noise(tally, program, seed, random.Random(seed)),
}


def main(arguments):
    first = 1
    if "--seed" in arguments:
        place = arguments.index("--seed")
        first = int(arguments[place + 1])
        del arguments[place:place + 2]
    binary, wanted = arguments[0], [argument.split("=") for argument in arguments[1:]]
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(binary, folder)
        layers.check_golden(tally, program)
        for kind, count in wanted:
            for seed in range(first, first + int(count)):
                CHECKS[kind](tally, program, seed)
    good = tally.report()
    questions = ", ".join(f"{count} of {kind}" for kind, count in wanted)
    print(", ".join(f"{count} prices of {part}" for part, count in sorted(MET.items())))
    print(f"{questions}; {program.calls} runs of the program in {time.monotonic() - began:.1f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
