"""Runs a program as N ranks of one job on this machine and fails if one of them does: ranks.py N PROGRAM [FLAGS].

With --address before N, the ranks meet at an address that they are told, else by a port file.
"""

import itertools
import os
import socket
import subprocess
import sys
import tempfile

_jobs = itertools.count()


def free_port():
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(ranks, command_of, options_of, folder, address=False):
    """The processes, by rank. Their port file, if they have one, is in `folder`."""
    shared = {name: value for name, value in os.environ.items() if not name.startswith(("MASTER_", "TORCHELASTIC_"))}
    shared.update(WORLD_SIZE=str(ranks), XDG_RUNTIME_DIR=folder)
    if address:
        shared.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    else:
        shared.update(LOCAL_WORLD_SIZE=str(ranks), TORCHELASTIC_RUN_ID=f"test-{os.getpid()}-{next(_jobs)}")
    return [subprocess.Popen(command_of(rank), env=dict(shared, RANK=str(rank)), **options_of(rank))
            for rank in range(ranks)]


def main():
    address = sys.argv[1] == "--address"
    ranks, *command = sys.argv[1 + address:]
    outputs = [tempfile.TemporaryFile() for _ in range(int(ranks))]
    with tempfile.TemporaryDirectory() as folder:
        processes = start(int(ranks), lambda rank: command,
                          lambda rank: dict(stdout=outputs[rank], stderr=subprocess.STDOUT), folder, address)
        codes = [process.wait() for process in processes]
        left = os.listdir(folder)
    for rank, code in enumerate(codes):
        if code != 0 or rank == 0:
            outputs[rank].seek(0)
            print(f"rank {rank}, code {code}:\n{outputs[rank].read().decode(errors='replace')}")
    sys.exit(f"left behind: {left}" if left else any(codes))


if __name__ == "__main__":
    main()
