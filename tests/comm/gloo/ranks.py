"""Runs a program as N ranks of one job on this machine and fails if one of them does: ranks.py N PROGRAM [FLAGS]."""

import os
import socket
import subprocess
import sys
import tempfile


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(ranks, command, **options):
    """The processes, by rank. Their store is at a port that was free a moment ago."""
    shared = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    return [subprocess.Popen(command, env=dict(shared, RANK=str(rank)), **options) for rank in range(ranks)]


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    outputs = [tempfile.TemporaryFile() for _ in range(ranks)]
    shared = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    processes = [
        subprocess.Popen(command, env=dict(shared, RANK=str(rank)), stdout=outputs[rank], stderr=subprocess.STDOUT)
        for rank in range(ranks)
    ]
    codes = [process.wait() for process in processes]
    for rank, code in enumerate(codes):
        if code != 0 or rank == 0:
            outputs[rank].seek(0)
            print(f"rank {rank}, code {code}:\n{outputs[rank].read().decode(errors='replace')}")
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
