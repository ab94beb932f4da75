"""usage: make_gloo_trace.py FOLDER

Writes gloo-rank0.json.gz and gloo-rank1.json.gz: traces of PyTorch's profiler of two ranks on this machine, with
collectives of three sizes and GEMMs of two. Needs torch."""
import gzip
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

RANKS = 2
SIZES, WIDTHS = (1024, 4096, 16384), (64, 128)


def work():
    for size in SIZES:
        given = torch.ones(size)
        dist.all_reduce(given)
        dist.all_gather_into_tensor(torch.empty(RANKS * size), given)
    for width in WIDTHS:
        matrix = torch.ones(width, width)
        torch.mm(matrix, matrix)


def run(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29777")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    work()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        work()
    path = pathlib.Path(folder, f"{rank}.json")
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    path.unlink()
    for of_the_machine in ("traceName", "ERROR", "trace_id"):
        trace.pop(of_the_machine, None)
    with gzip.GzipFile(pathlib.Path(folder, f"gloo-rank{rank}.json.gz"), "wb", mtime=0) as out:
        out.write(json.dumps(trace).encode())
    dist.barrier()
    os._exit(0)  # the profiler's threads may outlive the group


if __name__ == "__main__":
    mp.spawn(run, args=(sys.argv[1],), nprocs=RANKS)
