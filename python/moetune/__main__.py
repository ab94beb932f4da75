"""The command `moetune`: replaces this process by the planning program."""
import importlib.util
import os
import sys

from moetune._program import program_path


def main():
    needed = {"history": "ruptures", "layerbench": "torch"}.get("".join(sys.argv[1:2]))
    if needed and importlib.util.find_spec(needed):
        os.environ.setdefault("MOETUNE_PYTHON", sys.executable)  # the python3 in PATH may lack the package
    path = program_path()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"moetune: {path}: {error.strerror}, expected the planning program")


if __name__ == "__main__":
    main()
