"""The planning program: its path, and its answers as JSON documents."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

BAD_INPUT = 2  # the program's exit code


class MoetuneError(RuntimeError):
    """The program failed. The text is the line that it printed, `exit_code` is its exit code."""

    def __init__(self, line: str, exit_code: int):
        super().__init__(line, exit_code)
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])


class BadInput(MoetuneError, ValueError):
    """A flag, a file or a value that the program does not accept; the text is the line that it printed."""


def program_path() -> str:
    """Returns the program's path: MOETUNE_PROGRAM, else that in the wheel, else `./moetune` of the checkout."""
    named = os.environ.get("MOETUNE_PROGRAM")
    if named:
        return named
    package = Path(__file__).resolve().parent
    installed = package / "bin" / "moetune"
    checkout = package.parents[1] / "moetune"
    return str(installed if installed.exists() or not checkout.is_file() else checkout)


def flags_of(options: dict[str, Any]) -> list[str]:
    """Returns the flags for keyword arguments: `micro_batches=8` is `--micro-batches=8`. True is a flag without a
    value; None and False are left out; a list or tuple is joined by commas. Flags without a value come last, so that
    none of them, if it needs a value, can take another flag as its value.

    Raises BadInput for an empty value.
    """
    values, switches = [], []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            switches.append(flag)
        elif value is not None and value is not False:
            items = [str(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
            if not items or "" in items:
                raise BadInput(f"{name}: found an empty value, expected one, or None to leave it out", BAD_INPUT)
            values.append(f"{flag}={','.join(items)}")
    return values + switches


def output_of(verb: str, *words: str) -> str:
    """Runs a verb of the program and returns its output; raises the same exceptions as run()."""
    path = program_path()
    try:
        done = subprocess.run([path, verb, *words], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              errors="replace", check=False)
    except OSError as error:
        raise MoetuneError(f"{path}: {error.strerror}, expected the planning program", 127) from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"{verb} ended with exit code {done.returncode}"]
        line = lines[-1][len("moetune: "):] if lines[-1].startswith("moetune: ") else lines[-1]
        raise (BadInput if done.returncode == BAD_INPUT else MoetuneError)(line, done.returncode)
    return done.stdout


# Flags that would change the output that run() reads, and the texts that explain why they are not accepted.
_NOT_OPTIONS = {"help": "`moetune VERB --help` lists a verb's flags", "json": "the answer is JSON in any case",
                "quiet": "only the answer is read in any case"}


def run(verb: str, *arguments: str, **options: Any) -> Any:
    """Runs a verb of the program with `--json` and returns the document; docs/formats.md lists its keys.
    `arguments` are words that follow the verb, `options` its flags: `run("memory", model="mixtral-7b", zero=1)`.

    Raises BadInput or MoetuneError with the program's own line.
    """
    for name, instead in _NOT_OPTIONS.items():
        if name in options:
            raise BadInput(f"{name}: found {options[name]!r}, expected no such argument; {instead}", BAD_INPUT)
    return json.loads(output_of(verb, *arguments, "--json", "--quiet", *flags_of(options)))
