"""usage: training_errors.py PROGRAM [--write]

How far `PROGRAM reproduce training` is off each published step, as training-errors.csv has it for `tune`. Without
--write it says whether the file is what PROGRAM computes, with exit code 1 where it is not."""
import json
import pathlib
import subprocess
import sys
import tempfile

FILE = pathlib.Path(__file__).with_name("training-errors.csv")
HEAD = """\
# github.com/NVIDIA-NeMo/Automodel, github.com/yanring/Megatron-MoE-ModelZoo, github.com/InternLM/xtuner: the steps
# of training-runs.csv. error: predicted over measured, minus 1. Written by training_errors.py.
gpu,model,error
"""


def main():
    with tempfile.TemporaryDirectory() as scratch:
        words = ["reproduce", "training", "--json", "--quiet", "--out", f"{scratch}/r.jsonl"]
        ran = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, check=True)
    text = HEAD + "".join(f"{run['gpu']},{run['model']},{run['error']:.3f}\n" for run in json.loads(ran.stdout)["runs"]
                          if "error" in run)
    if "--write" in sys.argv:
        FILE.write_text(text, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != text:
        sys.exit(f"{FILE.name}: not what {sys.argv[1]} predicts; {pathlib.Path(__file__).name} --write")


if __name__ == "__main__":
    main()
