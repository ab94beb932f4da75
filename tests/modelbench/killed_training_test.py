"""A training that is killed again and again, at random moments, ends in the losses of one that nobody disturbed."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 200
KILLS = 20


def command(program, folder, name):
    return [program, "modelbench", "--model", "tiny-gpt", "--nearest", "--schedule", "fsmoe", "--steps", str(STEPS),
            "--out", os.path.join(folder, f"{name}.jsonl"), "--overwrite", "--json", "--quiet"]


def losses(text):
    run = json.loads(text)["schedules"][0]
    assert len(run["loss"]) == STEPS, f"{len(run['loss'])} steps, expected {STEPS}"
    return run["loss"], run["measured"]["held_out_loss"]


def newest(kept):
    """The newest step that a folder holds anything of; 0: none."""
    steps = [int(name.removeprefix("step-")) for name in os.listdir(kept)] if os.path.isdir(kept) else []
    return max(steps, default=0)


def reach(kept, step, run):
    while newest(kept) <= step and run.poll() is None:
        time.sleep(0.005)


def main(program):
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = losses(subprocess.run(command(program, folder, "undisturbed"), check=True, capture_output=True,
                                            text=True).stdout)
        kept = os.path.join(folder, "kept")
        killed = command(program, folder, "killed") + ["--checkpoint", kept,
                                                       "--checkpoint-every", "1"]
        for kill in range(KILLS):
            run = subprocess.Popen(killed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            reach(kept, newest(kept) + draw.randrange(STEPS // (2 * KILLS)), run)
            time.sleep(draw.uniform(0, 0.05))  # a step takes longer, and writing its checkpoint a part of it
            run.send_signal(signal.SIGKILL)
            out, errors = run.communicate()
            assert run.returncode == -signal.SIGKILL, f"kill {kill} came too late: {run.returncode} {errors}"
        reached = newest(kept)
        last = subprocess.run(killed, check=True, capture_output=True, text=True).stdout
        assert losses(last) == undisturbed, "the losses differ"
        for changed in (["--no-residual"], ["--hook", "bf16"], ["--rope-theta", "100"]):
            other = subprocess.run(killed + changed, capture_output=True, text=True)
            assert other.returncode == 2 and "found a training of" in other.stderr, (changed, other.stderr)
        print(f"killed {KILLS} times, last at step {reached}: {STEPS} losses and the held-out one equal bit for bit")


if __name__ == "__main__":
    main(sys.argv[1])
