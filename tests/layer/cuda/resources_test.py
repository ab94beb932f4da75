"""usage: resources_test.py NVCC [--write]

What the compiler gives each kernel for sm_90, by its own words: registers, shared memory, and spills, of which there
must be none. resources.csv beside this has the most that each kernel may take, of all types and widths that it is made
for; --write writes it anew. Registers are those of one release of nvcc: of another one spills alone are held."""
import concurrent.futures
import csv
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
TABLE = pathlib.Path(__file__).parent / "resources.csv"
SOURCES = ["moe/device/cuda/kernels.cu", "moe/tensor/cuda/elementwise.cu",
           "moe/tensor/cuda/activations.cu", "moe/tensor/cuda/norms.cu", "moe/tensor/cuda/softmax.cu",
           "moe/tensor/cuda/fp8.cu", "moe/tensor/cuda/embedding.cu", "moe/tensor/cuda/cross_entropy.cu",
           "moe/tensor/cuda/weight_step.cu",
           "moe/layer/cuda/rows.cu", "moe/layer/cuda/places.cu", "moe/layer/cuda/masks.cu",
           "moe/layer/cuda/logits.cu", "moe/layer/cuda/choose.cu", "moe/layer/cuda/scores.cu",
           "moe/layer/cuda/mixtures.cu"]
ENTRY = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?"
                   r"Used (\d+) registers([^\n]*)", re.DOTALL)
FIELDS = ["source", "kernel", "registers", "shared_bytes"]


def release(nvcc):
    printed = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+)", printed)[1]


def assembled(nvcc, source):
    """What ptxas says of every kernel of a source."""
    ran = subprocess.run([nvcc, "-O3", "-std=c++20", "-arch=sm_90", "-cubin", "-o", os.devnull, "-Xptxas", "-v",
                          f"-I{ROOT}", ROOT / source], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{source}: {ran.stderr[-2000:]}")
    return ran.stderr


def plain(mangled):
    """Names of kernels without what they are made for: "norm_kernel", "for_each_pack Gelu"."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True).stdout
    names = []
    for line in text.splitlines():
        kernel = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::", "", line).split("(")[0]
        names.append(" ".join(re.findall(r"moe::cuda::(\w+)", kernel)) or line)
    return names


def kernels(nvcc):
    """Rows of the table, and the kernels that spill."""
    most, spilling = {}, []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for source, printed in zip(SOURCES, pool.map(lambda source: assembled(nvcc, source), SOURCES)):
            found = ENTRY.findall(printed)
            for name, (mangled, stores, loads, registers, rest) in zip(plain([row[0] for row in found]), found):
                if int(stores) + int(loads) > 0:
                    spilling.append(f"{source}: {name} spills {stores} bytes ({mangled})")
                shared = re.search(r"(\d+) bytes smem", rest)
                row = most.setdefault((source, name), [0, 0])
                row[0] = max(row[0], int(registers))
                row[1] = max(row[1], int(shared[1]) if shared else 0)
    return [[*key, *map(str, row)] for key, row in sorted(most.items())], spilling


def main(nvcc, write):
    rows, spilling = kernels(nvcc)
    if len(rows) < 10:
        sys.exit(f"found {len(rows)} kernels, expected more: ptxas says it otherwise")
    made_by = release(nvcc)
    if write:
        with TABLE.open("w", newline="") as file:
            file.write(f"# nvcc {made_by}, sm_90\n")
            csv.writer(file, lineterminator="\n").writerows([FIELDS, *rows])
    header, *lines = TABLE.read_text().splitlines()
    expected = list(csv.reader(lines))[1:]
    wrong = list(spilling)
    if header.split()[2] == f"{made_by},":
        wrong += [f"found {row}, which resources.csv has not" for row in rows if row not in expected]
        wrong += [f"resources.csv has {row}, which was not found" for row in expected if row not in rows]
    print(f"{len(rows)} kernels, {len(spilling)} spill; at most {max(int(row[2]) for row in rows)} registers")
    return wrong


if __name__ == "__main__":
    if shutil.which(sys.argv[1]) is None or shutil.which("c++filt") is None:
        print("skipped: there is no nvcc, or no c++filt")
        sys.exit(77)
    faults = main(sys.argv[1], "--write" in sys.argv)
    print("\n".join(faults))
    sys.exit(1 if faults else 0)
