"""Installs a build's package, builds examples against it as somebody else's projects, and runs them."""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, cwd):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def headers_are_public(include):
    """The headers need none that is not installed, and none says how a part is made."""
    headers = list(include.rglob("*.h"))
    assert len(headers) > 80, len(headers)
    for header in headers:
        assert not {"cuda", "cpu", "store", "measure"} & set(header.parts), header
        for needed in re.findall(r'#include "(moe/[^"]+)"', header.read_text()):
            assert (include / needed).is_file(), f"{header} includes {needed}, which is not installed"


def built(cmake, example, folder):
    """What an example prints that is built against the installed package."""
    build = folder / example
    run(cmake, "-S", ROOT / "examples" / example, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_PREFIX_PATH={folder / 'installed'}", cwd=folder)
    compiled = (build / "CMakeCache.txt").read_text()
    assert str(folder / "installed") in re.search(r"moetune_DIR:\w+=(.*)", compiled).group(1)
    run(cmake, "--build", build, cwd=folder)
    return run(build / example, cwd=folder)


def main(cmake, build):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for component in ("Unspecified", "data"):
            run(cmake, "--install", build, "--prefix", folder / "installed", "--component", component, cwd=folder)
        for part in ("include/moe/plan/plan.h", "share/moetune/configs/clusters/testbed-b.toml"):
            assert (folder / "installed" / part).is_file(), part
        headers_are_public(folder / "installed" / "include")
        for example in "train_layer", "own_parts":
            print(f"{example}:")
            printed = built(cmake, example, folder)
            print(printed, end="")
            losses = [float(loss) for loss in re.findall(r"loss (\S+)", printed)]
            assert len(losses) == 5 and losses[-1] < 0.7 * losses[0], losses
        sent = re.search(r"gate relu, hook counting: (\d+) bytes sent", printed)
        # 21 passes, forward and backward, of dispatch and combine: 4 ranks send as many rows as they gate.
        assert sent and int(sent[1]) > 0 and int(sent[1]) % (21 * 2 * 2 * 4) == 0, printed


if __name__ == "__main__":
    main(*sys.argv[1:])
