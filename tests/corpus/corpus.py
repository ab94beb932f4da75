"""Whether two builds answer alike: a corpus of planning commands, run with one binary and with another.

corpus.py record MOETUNE FOLDER: runs every line of commands.txt and keeps exit code, stdout, stderr and files.
corpus.py compare BEFORE AFTER [--words]: what differs in an exit code, in a file or in a number; with --words, each
difference in wording too. Exit code 1 if anything but wording differs.
"""
import concurrent.futures
import difflib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
LIMIT_S = 300
LAYER = """schema = 1
name = "drawn"
batch = 2
seq = 512
model_dim = 1024
hidden = 2048
heads = 16
kv_heads = 4
experts = 8
top_k = 2
capacity_factor = 1.2
ffn = "mixtral"
"""
MODEL = ('schema = 1\nname = "drawn"\nsource = "drawn"\nlayers = 4\nvocabulary = 1024\n[layer]\n'
         + "\n".join(line for line in LAYER.split("\n") if not line.startswith(("schema", "name"))))
GRID = """schema = 1
name = "drawn"
source = "drawn"
cluster = "testbed-b"
capacity_rounding = "ragged"
[layers]
batch = [1, 2]
heads = [8]
seq = [512]
model_dim = [1024]
hidden_scale = [2, 4]
capacity_factor = [1.2, "*"]
ffn = ["simple", "mixtral"]
top_k = 2
experts = "nodes"
"""
SAMPLES = ("op,network,ranks,bytes,seconds,dtype,flops\n"
           + "".join(f"allreduce,inter,2,{2 ** k},{2e-5 + 2 ** k / 2e9:.6e},,\n" for k in range(16, 26))
           + "".join(f"gemm,,,,{1e-5 + 2 ** k / 4e13:.6e},float32,{2.0 ** k:.6e}\n" for k in range(28, 38)))


def expanded(line):
    """The commands that a line with braces stands for."""
    braces = re.search(r"\{([^{}]*)\}", line)
    if not braces:
        return [line]
    before, after = line[:braces.start()], line[braces.end():]
    return [one for word in braces[1].split(",") for one in expanded(before + word + after)]


def commands():
    lines = (HERE / "commands.txt").read_text().replace("\\\n", "").splitlines()
    return [one for line in lines if line and not line.startswith("#") for one in expanded(line)]


def prepare(binary, folder):
    """Writes the inputs of all commands; those that are a build's own outputs are made by the build."""
    texts = {"layer.toml": LAYER, "model.toml": MODEL, "grid.toml": GRID, "samples.csv": SAMPLES,
             "slower.csv": re.sub(r"(\d\.\d+e-\d+)(?=,)", lambda m: f"{float(m[1]) * 1.3:.6e}", SAMPLES),
             "broken.toml": LAYER.replace("heads = 16", "heads = x"), "broken.json": '{"schema": 1, "tasks": [1, }',
             "broken.csv": SAMPLES.replace(",float32,", ",", 1),
             "nccl.txt": (HERE.parent / "commands/exchange/data/alltoall_perf.txt").read_text()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    of_logs = ["--nodes", "2", "--ranks-per-node", "2", "--cluster", "x"]
    for made in (["simulate", "--cluster", "testbed-b", "--schedule", "fsmoe,tutel,ds-moe", "--out", "records.jsonl"],
                 ["export", "plan", "records.jsonl", "--schedule", "fsmoe", "--cluster", "testbed-b",
                  "-o", "plan.json"],
                 ["export", "csv", "testbed-b", "-o", "profile.csv"],
                 ["import", "csv", "samples.csv", *of_logs, "-o", "measured.jsonl"],
                 ["import", "csv", "slower.csv", *of_logs, "-o", "slower.jsonl"]):
        subprocess.run([binary, *made], cwd=folder, check=True, capture_output=True)


def run(binary, inputs, at, command):
    shutil.copytree(inputs, at)
    before = {path.name for path in at.iterdir()}
    try:
        done = subprocess.run([binary, *shlex.split(command)], cwd=at, capture_output=True, timeout=LIMIT_S,
                              env={**os.environ, "COLUMNS": "120"})
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = "time", b"", b""
    files = {str(path.relative_to(at)): path.read_bytes().decode("utf-8", "replace")
             for path in sorted(at.rglob("*")) if path.is_file() and path.relative_to(at).parts[0] not in before}
    shutil.rmtree(at)
    return {"command": command, "exit": code, "stdout": out.decode("utf-8", "replace"),
            "stderr": err.decode("utf-8", "replace"), "files": files}


def record(binary, folder):
    binary, folder = os.path.abspath(binary), pathlib.Path(folder).absolute()
    (folder / "inputs").mkdir(parents=True)
    prepare(binary, folder / "inputs")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(run, binary, folder / "inputs", folder / f"run-{number}", command)
                for number, command in enumerate(commands())]
        answers = [job.result() for job in jobs]
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))
    print(f"{len(answers)} commands, exit codes:",
          {code: sum(a["exit"] == code for a in answers) for code in sorted({a["exit"] for a in answers}, key=str)})


# What differs from run to run of one build: when and where it ran, and how long it took.
PASSING = [(re.compile(r'"(commit|version|start|started|ended|time|date|host|machine|folder|run)": ?"[^"]*"'),
            r'"\1":""'),
           (re.compile(r'"(\w*search_s|wall_s|took_s|pid)": ?[-+.\de]+'), r'"\1":0'),
           (re.compile(r'^\{"kind":"run".*', re.MULTILINE), '{"kind":"run"}'),
           (re.compile(r'"conditions": ?\{[^{}]*\}'), '"conditions":{}'),
           (re.compile(r"done in [\d.]+ s"), "done"),
           (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "DATE"),
           (re.compile(r"/\S*/run-\d+"), "FOLDER")]
NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def steady(text):
    for pattern, otherwise in PASSING:
        text = pattern.sub(otherwise, text)
    return text


def parts(answer):
    return {"exit": str(answer["exit"]), "stdout": steady(answer["stdout"]), "stderr": steady(answer["stderr"]),
            **{"file " + name: steady(text) for name, text in answer["files"].items()}}


def compare(before, after, words):
    old, new = ({a["command"]: parts(a) for a in json.loads((pathlib.Path(f) / "answers.json").read_text())}
                for f in (before, after))
    counts = {"same": 0, "wording": 0, "different": 0}
    for command in old | new:
        one, other = old.get(command, {}), new.get(command, {})
        differing = [part for part in one | other if one.get(part) != other.get(part)]
        wrong = [part for part in differing if part not in one or part not in other or part == "exit"
                 or NUMBER.findall(one[part]) != NUMBER.findall(other[part])]
        counts["different" if wrong else "wording" if differing else "same"] += 1
        for part in differing if words else wrong:
            print(f"{command}: {part}{'' if part in wrong else ' (wording)'}")
            for line in list(difflib.unified_diff(one.get(part, "").splitlines(), other.get(part, "").splitlines(),
                                                  n=0, lineterm=""))[2:14]:
                print("   ", line[:200])
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    if sys.argv[1] == "record":
        record(*sys.argv[2:4])
    else:
        sys.exit(compare(*sys.argv[2:4], "--words" in sys.argv[4:]))
