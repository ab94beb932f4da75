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


def main(program):
    draw = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = losses(subprocess.run(command(program, folder, "undisturbed"), check=True, capture_output=True,
                                            text=True).stdout)
        killed = command(program, folder, "killed") + ["--checkpoint", os.path.join(folder, "kept"),
                                                       "--checkpoint-every", "1"]
        for kill in range(KILLS):
            run = subprocess.Popen(killed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(draw.uniform(0.2, 2.0))
            run.send_signal(signal.SIGKILL)
            out, errors = run.communicate()
            assert run.returncode == -signal.SIGKILL, f"kill {kill} came too late: {run.returncode} {errors}"
        kept = sorted(os.listdir(os.path.join(folder, "kept")))
        last = subprocess.run(killed, check=True, capture_output=True, text=True).stdout
        assert losses(last) == undisturbed, "the losses differ"
        print(f"killed {KILLS} times, last at {kept[-1]}: {STEPS} losses and the held-out one equal bit for bit")


if __name__ == "__main__":
    main(sys.argv[1])
