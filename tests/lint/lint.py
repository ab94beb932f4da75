"""usage: lint.py format | lint.py tidy BUILD [all]

format: every source is laid out as .clang-format says. tidy: clang-tidy finds nothing in the units changed since the
branch left origin/main (or, on it, since the commit before), or in all; units that this clang can't read are named.
Exit code 77 where it can't be told."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
FORMAT_VERSION = "14"  # others lay out some lines otherwise
MOST_CHANGED = 6       # 13 s each
SOURCES = ("*.cpp", "*.h", "*.cu")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def tool(name):
    return shutil.which(name) or skip(f"there is no {name}")


def git(*words):
    ran = subprocess.run([tool("git"), "-C", ROOT, *words], capture_output=True, text=True)
    return ran.stdout.split() if ran.returncode == 0 else None


def of_each(command, lists):
    """Runs `command` on each list of files, as many at once as there are cores; what it printed where it failed."""
    def run(files):
        ran = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True)
        return ran.stdout + ran.stderr if ran.returncode != 0 else ""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [printed for printed in pool.map(run, lists) if printed]


def check_format():
    clang_format = tool("clang-format")
    version = subprocess.run([clang_format, "--version"], capture_output=True, text=True).stdout
    if re.search(r"version (\d+)", version)[1] != FORMAT_VERSION:
        skip(f"expected clang-format {FORMAT_VERSION}, found {version.strip()}")
    files = git("ls-files", "--cached", "--others", "--exclude-standard", *SOURCES) or skip("no git checkout")
    files = [file for file in files if (ROOT / file).exists()]
    return of_each([clang_format, "--dry-run", "-Werror"], [files[i:i + 40] for i in range(0, len(files), 40)])


def changed_units(units):
    head, fork = git("rev-parse", "HEAD"), git("merge-base", "HEAD", "origin/main")
    since = fork if fork and fork != head else git("rev-parse", "--verify", "HEAD~1")
    changed = git("diff", "--name-only", *since, "--", "*.cpp") if since else skip("no commit to compare with")
    changed = [unit for unit in units if unit in changed]
    if not changed:
        skip("no unit has changed")
    if len(changed) > MOST_CHANGED:
        skip(f"{len(changed)} units have changed, more than {MOST_CHANGED}: --all looks at them")
    return changed


def of_each_source(commands):
    """The commands of sources: a unity build has one for several, whose file includes them."""
    for command in commands:
        unity = command["file"]
        sources = re.findall(r'#include "(.+)"', pathlib.Path(unity).read_text()) if "/Unity/" in unity else [unity]
        for source in sources:
            yield {**command, "file": source, "command": command["command"].replace(unity, source)}


def without_gcc_headers(commands, scratch):
    """What GCC precompiled is nothing to clang: it reads a copy of the header instead."""
    def copy(match):
        header = pathlib.Path(match[1])
        name = pathlib.Path(scratch, re.sub("/", "_", str(header)))
        name.write_text(header.read_text())
        return f"-include {name}"
    for command in commands:
        command["command"] = re.sub(r"-Winvalid-pch -include (\S+)", copy, command["command"])
    pathlib.Path(scratch, "compile_commands.json").write_text(json.dumps(commands))


def check_tidy(build, which="changed"):
    clang_tidy = tool("clang-tidy")
    commands = list(of_each_source(json.loads(pathlib.Path(build, "compile_commands.json").read_text())))
    units = sorted({os.path.relpath(command["file"], ROOT) for command in commands})
    # What stands in cuda/ is CUDA's, or its emulation's, which this clang does not read.
    units = [unit for unit in units if unit.endswith(".cpp") and not unit.startswith("build") and "/cuda/" not in unit]
    chosen = units if which == "all" else changed_units(units)
    print(f"clang-tidy looks at {len(chosen)} of {len(units)} units")
    with tempfile.TemporaryDirectory() as scratch:
        without_gcc_headers(commands, scratch)
        headers = [] if which == "all" else ["--header-filter=-"]  # of a changed unit, what stands in itself
        found = of_each([clang_tidy, "--quiet", *headers, "-p", scratch], [[unit] for unit in chosen])
    # GCC has compiled them: an older clang than libstdc++, or C++20 that it lacks.
    for unread in (text for text in found if "[clang-diagnostic-error]" in text):
        print("this clang can't read", re.search(r"Error while processing (\S+?)\.?$", unread, re.M)[1])
    return [text for text in found if "[clang-diagnostic-error]" not in text]


found = check_format() if sys.argv[1] == "format" else check_tidy(*sys.argv[2:])
print("\n".join(found))
sys.exit(1 if found else 0)
