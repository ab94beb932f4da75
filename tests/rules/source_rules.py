"""Rules of the sources that no compiler, clang-format or clang-tidy checks.

source_rules.py [ROOT]: reports each line that breaks one, of this checkout by default. source_rules.py --self-test:
whether each rule is checked.
"""
import pathlib
import re
import sys

MOST_COLUMNS = 120
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".inl")
TEXTS = (".md", ".cmake", ".py", ".txt")

# Folders from bottom to top: one may include itself and what stands below it, never what stands beside it.
LIBRARY = ["base", "record", "shape", "plan", "schedule", "prices", "simulator", "search", "serve", "formats", "device",
           "comm", "exec", "tensor", "sharding", "layer", "stack", "train", "model", "torch", "measure"]
PROGRAMS = ["microbench", "layerbench", "modelbench", "tuner", "commands", "commands/reproduce", "commands/doctor",
            "commands/regress", "commands/exchange", "commands/report"]
LEVELS = ([["moe/" + name] for name in LIBRARY] +
          [["commands/shared"], ["commands/shared/run"], PROGRAMS, ["commands/cli"], ["tests", "examples"]])
LEVEL = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}

# Headers of LibTorch and CUDA, and the only folders that may include them.
TORCH = re.compile(r"(torch|ATen|c10)/")
TORCH_FOLDERS = re.compile(r"moe/(comm/gloo|comm/store|tensor/cpu|layer/reference|torch)/|moe/tensor/torch_heads.cpp|"
                           r"tests/(tensor|comm/gloo|comm/store|layer|torch)/|examples/")
CUDA = re.compile(r"cuda|cublas|nccl|cub/|thrust/|nvtx3/")
CUDA_FOLDERS = re.compile(r".*/(cuda|nccl)/")
EMPTY_NAMES = re.compile(r"utils|common|helpers|new_|_v2")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# A flag in a text; flags of git, CMake and Google Benchmark are others'.
FLAG = re.compile(r'"(?:[^"\\]|\\.)*--[a-z](?:[^"\\]|\\.)*"')
OTHERS_FLAG = re.compile(r"git -C|--preset|--benchmark_|// ")


def folder_of(path):
    """The longest prefix of the path that has a level; None: it has none."""
    parts = path.split("/")
    return next(("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1) if "/".join(parts[:n]) in LEVEL), None)


def include_fault(path, name, quoted):
    if TORCH.match(name):
        return None if TORCH_FOLDERS.match(path) else f"Torch header {name} outside its folders"
    if CUDA.match(name):
        return None if CUDA_FOLDERS.match(path) else f"CUDA header {name} outside cuda/ and nccl/"
    if not quoted:
        return None
    here, there = folder_of(path), folder_of(name)
    if there is None:
        return f'includes "{name}", which is no path from the root to a known folder'
    if here == "tests":
        return None
    if here != there and LEVEL[there] >= LEVEL[here]:
        return f"may not include {name}: it stands above or beside this folder"
    public = path.endswith(".h") and "/detail/" not in path
    if "/detail/" in name and (here != there or public):
        return f"may not include {name}: it is for the sources of {there} alone"
    return None


def faults(path, text):
    """Lines "PATH:LINE: what is wrong" of one file; `path` starts at the root."""
    found, source = [], path.endswith(SOURCES)
    if source and folder_of(path) is None:
        return [f"{path}: stands in no known folder"]
    if EMPTY_NAMES.search(path):
        found.append(f"{path}: is named after nothing that it does")
    for number, line in enumerate(text.split("\n"), 1):
        include = INCLUDE.match(line)
        for fault in (
                len(line) > MOST_COLUMNS and f"line has {len(line)} columns, at most {MOST_COLUMNS}",
                source and include and include_fault(path, include[2], include[1] == '"'),
                source and not path.startswith("tests/") and "std::ofstream" in line
                and "writes a file by itself, which write_whole_file does",
                source and path.startswith("moe/") and FLAG.search(line) and not OTHERS_FLAG.search(line)
                and "names a flag, which programs have and the library does not"):
            if fault:
                found.append(f"{path}:{number}: {fault}")
    return found


def written_by_hand(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        hidden = any(part.startswith(".") and part != ".ci" for part in name.split("/"))
        if hidden or name.startswith(("build/", "results/", "configs/text/")) or not path.is_file():
            continue
        if name == "moetune" or name.endswith(SOURCES + TEXTS):
            yield name, path.read_text(encoding="utf-8")


BROKEN = [
    ("moe/plan/task.h", '#include "moe/prices/profile.h"'), ("moe/base/check.h", '  #  include "moe/record/record.h"'),
    ("moe/formats/trace.cpp", '#include "moe/device/stream.h"'), ("moe/measure/verify.cpp", '#include "tuner/tune.h"'),
    ("tuner/tune.cpp", '#include "layerbench/run.h"'), ("tuner/tune.cpp", '#include "commands/cli/flags.h"'),
    ("commands/shared/sweep.cpp", '#include "commands/shared/run/target.h"'),
    ("layerbench/run.cpp", '#include "tests/layer/case.h"'), ("commands/list.cpp", '#include "commands/report/page.h"'),
    ("tuner/tune.cpp", '#include "moe/search/detail/replay.h"'), ("moe/plan/a.h", '#include "moe/plan/detail/b.h"'),
    ("moe/plan/task.h", '#include "task_id.h"'), ("moe/plan/task.h", '#include "moe/planning/task_id.h"'),
    ("moe/plans/task.h", "#include <vector>"), ("moe/exec/executor.cpp", "#include <torch/torch.h>"),
    ("tests/exec/executor_test.cpp", '#include "ATen/ATen.h"'), ("moe/comm/local/world.cpp", "#include <nccl.h>"),
    ("moe/device/cpu/stream.cpp", "#include <cuda_runtime.h>"), ("moe/base/utils.h", ""),
    ("tuner/tune.cpp", "  std::ofstream out(path);"), ("README.md", "x" * 121),
    ("moe/base/files.cpp", '  bad_input("--out: found {}", out);')]
SOUND = [
    ("moe/simulator/simulate.cpp", '#include "moe/plan/plan.h"'), ("tuner/tune.cpp", '#include "tuner/tune.h"'),
    ("tuner/verify/tune.cpp", '#include "commands/shared/run/target.h"'),
    ("commands/cli/main.cpp", '#include "tuner/tune.h"'), ("commands/list.cpp", '#include "commands/shared/sweep.h"'),
    ("tests/plan/plan_test.cpp", '#include "commands/cli/flags.h"'),
    ("tests/plan/a.cpp", '#include "moe/plan/detail/b.h"'), ("moe/plan/a.cpp", '#include "moe/plan/detail/b.h"'),
    ("moe/tensor/cpu/gemm.cpp", "#include <ATen/ATen.h>"),
    ("moe/layer/gates/cuda/top_k.cu", "#include <cuda_runtime.h>"), ("moe/comm/nccl/world.cpp", "#include <nccl.h>"),
    ("moe/plan/task.h", '// #include "moe/prices/profile.h"'), ("moe/base/check.h", "é" * 120),
    ("tests/tuner/tune_test.cpp", "  std::ofstream out(path);"), ("tuner/tune.cpp", '  bad_input("--out: {}", out);'),
    ("moe/base/words.cpp", '  if (word.starts_with("--")) --first;')]


def self_test():
    wrong = [f"{path}: {line}: {len(found)} faults" for cases, expected in ((BROKEN, 1), (SOUND, 0))
             for path, line in cases if len(found := faults(path, "// first\n" + line)) != expected]
    return wrong


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    root = sys.argv[1] if len(sys.argv) == 2 else pathlib.Path(__file__).parents[2]
    files = [] if root == "--self-test" else list(written_by_hand(pathlib.Path(root)))
    all_faults = self_test() + [fault for path, text in files for fault in faults(path, text)]
    print("\n".join(all_faults) or f"{len(files)} files: no fault")
    sys.exit(1 if all_faults or (files and len(files) < 30) else 0)
