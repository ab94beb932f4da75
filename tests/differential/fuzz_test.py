"""Planning verbs on broken files and flags: README's exit codes, one line on stderr, no crash, no stray file.

fuzz_test.py MOETUNE [CASES] [FIRST SEED]: each case breaks one file or one flag line. Exit codes are 0, 2 (one line on
stderr), 3 to 5 and 77; a signal, code 70, 20 s or a file that nobody asked for fails, with the seed that asks again.
"""
import gzip
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "commands/exchange"))

import nsys_export  # noqa: E402
import questions  # noqa: E402
from prices import Profile

ODD = ["0", "-1", "1", "1e308", "-1e308", "1e-320", "nan", "inf", "-inf", "9223372036854775807", "18446744073709551616",
       "1000000007", "0.5", '""', "true", "[]", "{}", '"x"', "null", "4294967296", "-0.0", "1e400", "[[1, 2], [1, 2]]"]
JUNK = ["\x00", "\xff", "é", "\U0001f600", "\r", "\t", "=", "[", "]", "{", "}", '"', "'", ",", "#", "\\", "\n", ":"]
WORDS = ["all", "none", "fsmoe", "", "nosuch", "é", "a" * 5000, "../..", "/dev/null", "/", "-1", "fsmoe,fsmoe", ",",
         "%s%n",
         "testbed-b", "esp-inside", "1:2", "0:0", "1:-1", "999:2"]
FLAGS = """
--batch --seq --model-dim --hidden --shared-hidden --heads --kv-heads --head-dim --experts --top-k --capacity-factor
--capacity-rounding --ffn --gate --dtype --dp --mp --ep --esp --pp --placement --zero --recompute --node-limit
--degree-forward --degree-backward --layers --micro-op-bytes --min-chunk-bytes --partition --jitter --straggler
--zipf --samples --seed --gantt --micro-batches --pipeline --schedule --cluster --model --layer --rope-theta --window
--parts --q-lora-rank --kv-lora-rank --qk-nope-head-dim --qk-rope-head-dim --v-head-dim
""".split()


def small_cluster():
    rng = random.Random(1)
    profile = Profile(2, 2)
    for network in ("inter", "intra"):
        for op in ("alltoall", "allgather", "reducescatter", "allreduce", "a2a-ep-esp"):
            for ranks in (2, 3, 4) if network == "inter" else (2,):
                profile.comm.append({"op": op, "network": network, "ranks": ranks, "alpha_s": 1e-5,
                                     "beta_s_per_byte": 1e-10, "points": questions.random_curve(rng, 1e-5, 1e-10)})
    profile.compute = [{"op": "gemm", "dtype": "float32", "alpha_s": 1e-6, "beta_s_per_flop": 1e-13},
                       {"op": "copy", "alpha_s": 0.0, "beta_s_per_byte": 1e-12}]
    profile.task_s = 1e-6
    profile.contention = {"intra_by_inter": 1.5, "compute_by_inter_stall_s": 1e-6}
    return questions.toml_of(profile)


LAYER = """schema = 1
name = "drawn"
batch = 1
seq = 32
model_dim = 32
hidden = 64
heads = 4
kv_heads = 2
experts = 2
top_k = 1
capacity_factor = 1.2
ffn = "gpt"
[parallel]
mp = 2
ep = 2
esp = 2
"""
MODEL = """schema = 1
name = "drawn"
source = "drawn"
layers = 2
vocabulary = 64
tied_embedding = true
""" + "[layer]\n" + "\n".join(LAYER.split("\n")[2:]).replace("seq = 32", "seq = 32\nparts = 2")
GRID = """schema = 1
name = "drawn"
source = "drawn"
cluster = "cluster.toml"
capacity_rounding = "ragged"
[layers]
batch = [1, 2]
heads = [4]
seq = [32]
model_dim = [32]
hidden_scale = [2]
capacity_factor = [1.2, "*"]
ffn = ["simple"]
top_k = 1
experts = "nodes"
"""
SAMPLES = """op,network,ranks,bytes,seconds,dtype,flops
allreduce,inter,2,1048576,5.1e-4,,
allreduce,inter,2,16777216,6.8e-3,,
gemm,,,,1.04e-3,float32,2.1e10
gemm,,,,1.96e-3,float32,4.2e10
"""
SHORT = ["--batch", "1", "--seq", "32", "--model-dim", "32", "--hidden", "64", "--heads", "4",
         "--cluster", "cluster.toml"]
EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 0, "tid": 1, "ts": 0, "dur": 5,
         "args": {"External id": 1, "Input Dims": [[512, 1024], [1024, 1024]], "Input type": ["c10::BFloat16"] * 2}}
KERNEL = {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "pid": 0, "tid": 7, "ts": 9, "dur": 25.0,
          "args": {"External id": 1, "stream": 7}}
TEST = {"args": ["all_reduce_perf"], "results": [
    {"size": size, "out_of_place": {"time": 10 + size / 1e4, "nwrong": 0}} for size in (2 ** 20, 2 ** 22, 2 ** 24)]}
EXCHANGES = "[config] num_tokens=64, hidden=128, num_topk_groups=2, num_topk=2\n" + "".join(
    f"[tuning] Best {what}: SMs 24, NVL chunk 4, RDMA chunk 8: 35 + 90 us, 4.1 GB/s (RDMA), 8.2 GB/s (NVL)\n"
    for what in ("dispatch (BF16)", "combine")) + """Config:
 > Ranks: 2 x 2
 > Experts: 8/256
 > Tokens: 8192 (max: 8192), hidden: 7168
   @ EP:   2/4 | combine: 0 GB/s (SO), 860 GB/s (SU), 293.515 us, 252328160 bytes | reduce: 5456 GB/s, 92.491 us
"""
MAP = "kernel,kind\nnvjet,gemm\n"
DEEP = 150000  # levels
BOMB = 1 << 30  # bytes of line ends
OF_LOGS = ["--nodes", "2", "--ranks-per-node", "2", "--cluster", "x"]


def prepare(binary, folder):
    """Sound files of every kind, and the command that reads each."""
    texts = {"cluster.toml": small_cluster(), "layer.toml": LAYER, "model.toml": MODEL, "grid.toml": GRID,
             "samples.csv": SAMPLES, "trace.json": json.dumps({"traceEvents": [EVENT, KERNEL]}),
             "test.json": json.dumps(TEST), "map.csv": MAP, "exchanges.txt": EXCHANGES,
             "test.txt": (pathlib.Path(__file__).parents[1] / "commands/exchange/data/alltoall_perf.txt").read_text()}
    for name, text in texts.items():
        write(folder, name, text.encode())

    def made(*arguments):
        subprocess.run([binary, *arguments], cwd=folder, check=True, capture_output=True)

    made("simulate", *SHORT, "--schedule", "fsmoe,tutel", "--out", "records.jsonl")
    made("export", "plan", "records.jsonl", "--schedule", "fsmoe", "--cluster", "cluster.toml", "-o", "plan.json")
    made("export", "csv", "cluster.toml", "-o", "profile.csv")
    export = nsys_export.Export()
    export.thread(1, 0).operator("aten::mm, sizes = [[64, 32], [32, 48]]", [("nvjet_tst", 25)])
    export.write(os.path.join(folder, "nsys.sqlite"))
    made("import", "csv", "samples.csv", *OF_LOGS, "-o", "measured.jsonl")
    return {
        "cluster.toml": [["simulate", *SHORT], ["tune", "--no-verify", *SHORT, "-o", "out"], ["memory", *SHORT],
                         ["export", "csv", "cluster.toml"]],
        "layer.toml": [["simulate", "--layer", "./layer.toml", "--cluster", "cluster.toml"],
                       ["memory", "--layer", "./layer.toml", "--cluster", "cluster.toml"]],
        "model.toml": [["simulate", "--model", "./model.toml", "--cluster", "cluster.toml", "--schedule",
                        "fsmoe,tutel"],
                       ["memory", "--model", "./model.toml", "--cluster", "cluster.toml"]],
        "grid.toml": [["tune", "--no-verify", "--grid", "./grid.toml", "--cluster", "cluster.toml", "-o", "out"]],
        "plan.json": [["simulate", "--plan", "plan.json", "--cluster", "cluster.toml"],
                      ["export", "chakra", "plan.json", "-o", "out"]],
        "records.jsonl": [["export", "tutel", "records.jsonl"], ["export", "plan", "records.jsonl", "-o", "out"],
                          ["report", "records.jsonl", "-o", "out"], ["export", "csv", "records.jsonl"],
                          ["export", "google-benchmark", "records.jsonl"]],
        "profile.csv": [["import", "csv-profile", "profile.csv", "-o", "out"]],
        "samples.csv": [["import", "csv", "samples.csv", *OF_LOGS, "-o", "out"]],
        "trace.json": [["import", "kineto", "trace.json", *OF_LOGS, "-o", "out"]],
        "nsys.sqlite": [["import", "nsys", "nsys.sqlite", *OF_LOGS, "-o", "out"]],
        "exchanges.txt": [["import", "deepep", "exchanges.txt", *OF_LOGS, "-o", "out"]],
        "map.csv": [["import", "kineto", "trace.json", "--map", "map.csv", *OF_LOGS, "-o", "out"]],
        "test.json": [["import", "nccl-tests", "test.json", *OF_LOGS, "--ranks", "4", "--network", "inter",
                       "-o", "out"]],
        "test.txt": [["import", "nccl-tests", "test.txt", "--nodes", "2", "--ranks-per-node", "4", "--cluster", "x",
                      "-o", "out"]],
        "measured.jsonl": [["compare", "measured.jsonl", "measured.jsonl"], ["history", "."],
                           ["report", "measured.jsonl", "-o", "out"],
                           ["fit", "--records", "measured.jsonl", "--name", "x", "--out", "out"]],
    }


def write(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def nested(rng, name, data):
    """The file with very many levels at some place."""
    place = rng.randrange(len(data) + 1)
    deep = [b"[" * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * DEEP, b"\n" + b"a." * 20000 + b"a = 1\n",
            b"\n[" + b"a." * 20000 + b"a]\n", b"{a.a.a=" * 20000]
    return data[:place] + rng.choice(deep[3:] * 2 + deep if name.endswith("toml") else deep[:3]) + data[place:]


def packed(rng, data, bomb):
    """The file packed by gzip: whole, cut off, with a byte changed, or with far more behind it than fits in memory."""
    whole = gzip.compress(data)
    place = rng.randrange(len(whole))
    kinds = [whole, whole[:place], whole[:place] + bytes([rng.randrange(256)]) + whole[place + 1:]]
    return whole + bomb if rng.random() < 0.05 else rng.choice(kinds)


def broken(rng, name, data, bomb):
    """The file with faults: in its text, in the depth of its values, in how it is packed."""
    if rng.random() < 0.8:
        data = edited(rng, data)
    if rng.random() < 0.2:
        data = nested(rng, name, data)
    return packed(rng, data, bomb) if rng.random() < 0.2 else data


def edited(rng, data):
    """The file with one to three faults."""
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.randrange(7)
        if not data:
            return data
        place = rng.randrange(len(data))
        if kind == 0:
            data = data[:place]
        elif kind == 1:
            data = data[:place] + rng.choice(JUNK).encode() + data[place:]
        elif kind == 2:
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1:]
        elif kind == 3:
            lines = data.split(b"\n")
            line = rng.randrange(len(lines))
            lines[line:line + 1] = rng.choice([[], [lines[line]] * 2, [lines[line], rng.choice(lines)]])
            data = b"\n".join(lines)
        else:
            data = odd_value(rng, data)
    return data


def odd_value(rng, data):
    """Another value in the place of a number or a word."""
    digits = [i for i, byte in enumerate(data) if chr(byte) in "0123456789"]
    if not digits:
        return data
    begin = end = rng.choice(digits)
    number = b"0123456789.e+-"
    while begin > 0 and data[begin - 1] in number:
        begin -= 1
    while end < len(data) and data[end] in number:
        end += 1
    return data[:begin] + rng.choice(ODD).encode() + data[end:]


def flag_line(rng):
    verb = rng.choice(["simulate", "simulate", "memory", "tune", "placement", "list"])
    line = [verb]
    flags = {}
    if verb in ("simulate", "memory", "tune") and rng.random() < 0.9:
        flags = dict(zip(SHORT[::2], SHORT[1::2]))
    if verb == "tune":
        line += ["--no-verify", "-o", "out"]
    known = {"placement": ["--tp", "--cp", "--ep", "--dp", "--pp", "--switch-ports", "--ranks-per-node"],
             "list": ["--json"]}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        flag = rng.choice(known.get(verb, FLAGS) + (["--nosuch"] if rng.random() < 0.05 else []))
        flags[flag] = rng.choice(ODD[:18] + WORDS + ["2", "4", "16"] * 3)
    for flag, value in flags.items():
        line += [flag] if rng.random() < 0.02 else [flag, value]
    return [argument.replace("\x00", "") for argument in line]


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (3000000 << 10, 3000000 << 10))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))


def fault(binary, folder, arguments):
    """What is wrong with the outcome, or nothing; and the exit code."""
    before = set(os.listdir(folder))
    try:
        done = subprocess.run([binary, *arguments], cwd=folder, capture_output=True, timeout=20, preexec_fn=limits,
                              check=False)
    except subprocess.TimeoutExpired:
        return "no end within 20 s", None
    after = set(os.listdir(folder))
    stray = after - before - {"out"}
    for name in after - before:
        path = os.path.join(folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    codes = (0, 1, 2, 3, 4, 5, 77) if arguments[0] == "compare" else (0, 2, 3, 4, 5, 77)
    lines = [line for line in done.stderr.split(b"\n") if line.strip()]
    if done.returncode not in codes:
        return f"exit code {done.returncode}: {done.stderr[-300:]!r}", done.returncode
    if done.returncode == 2 and (not lines or b"moetune: " not in lines[-1] or len(b"".join(lines)) > 20000):
        return f"exit code 2 without its line: {done.stderr[-300:]!r}", 2
    if done.returncode == 2 and sum(not note(line) for line in lines) > 1:
        return f"exit code 2 with several lines: {done.stderr[-600:]!r}", 2
    if done.returncode == 2 and "out" in after - before:
        return "exit code 2, and a file was written", 2
    if stray:
        return f"stray files {sorted(stray)}", done.returncode
    return None, done.returncode


def note(line):
    """Notes on prices and warnings may stand before the line that refuses."""
    return any(word in line for word in (b"priced by", b"derived:", b"warning", b"skipped a file", b"left out",
                                         b"tuning", b"the longest of"))


def main(arguments):
    binary = os.path.abspath(arguments[0])
    cases = int(arguments[1]) if len(arguments) > 1 else 150
    first = int(arguments[2]) if len(arguments) > 2 else 1
    codes, faults = {}, []
    with tempfile.TemporaryDirectory() as folder:
        commands = prepare(binary, folder)
        bomb = gzip.compress(b"\n" * BOMB, 1)
        sound = {name: read(folder, name) for name in commands}
        for line in sum(commands.values(), []):
            wrong, code = fault(binary, folder, line)
            if wrong or code:
                print(f"FAILED {' '.join(line)}, of a sound file: exit code {code} {wrong or ''}")
                return 1
        for seed in range(first, first + cases):
            rng = random.Random(seed)
            name = rng.choice(list(commands) + ["flags"] * 5)
            if name == "flags":
                line = flag_line(rng)
            else:
                line = rng.choice(commands[name])
                write(folder, name, broken(rng, name, sound[name], bomb))
            wrong, code = fault(binary, folder, line)
            codes[code] = codes.get(code, 0) + 1
            if wrong:
                faults.append(f"seed {seed}: {' '.join(line)[:300]}: {wrong}")
            if name != "flags":
                write(folder, name, sound[name])
    for wrong in faults[:20]:
        print("FAILED " + wrong)
    print(f"{cases} broken files and flag lines, {len(faults)} wrong outcomes; exit codes "
          + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items(), key=str)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
