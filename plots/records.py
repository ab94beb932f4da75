"""Reads what moetune writes: records (JSON Lines), cluster profiles (TOML), and the papers' printed numbers (CSV)."""
import csv
import gzip
import json
import math
import os
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = ("run", "case", "cases", "resume", "end")
STATUSES = ("ok", "wrong", "invalid", "oom", "unsupported", "error")


class BadInput(Exception):
    """One line: "FILE:LINE: KEY: found ..., expected ..."."""


def text_of(path, expected):
    """Returns the text of a file, decompressed if its name ends in .gz."""
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path}: found no readable file ({why}), expected {expected}") from None


def _line_of(text, where):
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        line = None
    if not isinstance(line, dict):
        raise BadInput(f"{where}: record: found {text[:24]!r}, expected one JSON object")
    if line.get("kind") not in KINDS:
        raise BadInput(f"{where}: kind: found {line.get('kind')!r}, expected one of: {', '.join(KINDS)}")
    return line


def _is_torn(text):
    """Returns whether a killed writer may have left this line: it starts like every line, but is incomplete."""
    start = '{"kind":"'
    if not text.startswith(start[:len(text)]):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return True
    return False


class Case(dict):
    """One case of a run; `where` is FILE:LINE. Look-ups of missing values report one clear line."""

    def __init__(self, line, where):
        super().__init__(line)
        self.where = where
        for key, kind in (("key", str), ("status", str), ("parameters", dict), ("summary", dict), ("prediction", dict)):
            if not isinstance(self.get(key), kind):
                raise BadInput(f"{where}: {key}: found {self.get(key)!r}, expected {kind.__name__}")
        if self["status"] not in STATUSES:
            raise BadInput(f"{where}: status: found {self['status']!r}, expected one of: {', '.join(STATUSES)}")

    def number(self, part, name):
        """Returns a finite number of `summary`, `prediction` or `parameters`."""
        found = self[part].get(name)
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
            raise BadInput(f"{self.where}: {part}.{name}: found {found!r}, expected a number")
        return float(found)

    def text(self, name):
        found = self["parameters"].get(name)
        if not isinstance(found, str):
            raise BadInput(f"{self.where}: parameters.{name}: found {found!r}, expected a text")
        return found


def _cases_of(line, where):
    """Returns the cases of a line that stores their common values once; see moe/record/record_json.h."""
    tables, start = line.get("tables"), line.get("key")
    if not isinstance(tables, list) or not isinstance(start, str):
        raise BadInput(f"{where}: tables: found {str(tables)[:24]}, expected a list, and a key")
    for t, table in enumerate(tables):
        try:
            rows = [_row_of(table["columns"], row) for row in table["rows"]]
        except (KeyError, TypeError, ValueError, IndexError):
            raise BadInput(f"{where}: tables[{t}]: found {str(table)[:24]}, expected columns and rows, each with a key "
                           "and a cell for each column that is a name") from None
        for row in rows:
            case = {"parameters": line.get("parameters"), "samples": {}, "summary": {}, "prediction": {}}
            for path, value in row:
                part, _, field = path.partition(".")
                if field and part in ("summary", "prediction"):
                    case[part][field] = value
                else:
                    case[path] = value
            yield Case(case | {"kind": "case", "key": f"{start}{case['key']}"}, where)


def _row_of(columns, cells):
    """Returns a row's names and values: a column is the name of the next cell, or an object that all rows share."""
    left, row = list(cells), []
    for column in columns:
        row += column.items() if isinstance(column, dict) else [(column, left.pop(0))]
    if left or "key" not in dict(row):
        raise ValueError
    return row


class Records:
    """The last run of a file: its cases in file order (if a key occurs again, the last one counts), without the text of
    its answer, which has no figures; and the command that was run."""

    def __init__(self, path):
        self.path = path
        cases, argv = _last_run(path)
        self.cases = [case for case in cases if "answer" not in case]
        words = [os.path.basename(argv[0])] + argv[1:] if argv else []
        self.command = " ".join(words)

    def of(self, start, writer):
        """Returns the cases whose keys begin with `start`; `writer` is the command that writes them."""
        found = [case for case in self.cases if case["key"].startswith(start)]
        if not found:
            raise BadInput(f"{self.path}: key: found no {start}..., expected records of `{writer}`")
        return found

    def of_layers(self):
        """Returns the cases of layers, and the source of times: plans, else runs. Other tried degrees are left out."""
        ran = [case for case in self.cases if case["key"].startswith("run/") and case["key"].count("/") == 2]
        if ran and not any(case["key"].startswith("plan/") for case in self.cases):
            return ran, "summary"
        return self.of("plan/", "moetune tune --no-verify"), "prediction"

    def with_timelines(self, schedules):
        """Returns the requested schedules' cases that have a timeline, all of one layer on one cluster."""
        found = [case for case in self.cases if case.get("timeline")]
        if not found:
            raise BadInput(f"{self.path}: timeline: found none, expected records of `moetune simulate --out FILE`")
        found = chosen(found, schedules, self.path)
        return found, one_value(found, "layer", self.path), one_value(found, "cluster", self.path)

    def source(self):
        return f"{self.path} ({self.command})" if self.command else self.path


def _last_run(path):
    """Returns the last run. Lines that a killed writer left incomplete are skipped: the last one of the file, or one
    before a new run or a resume mark."""
    lines = text_of(path, "records (JSON Lines)").split("\n")
    if lines[-1] == "":
        lines.pop()
    cases, argv, begun, ended = {}, [], False, False
    for number, text in enumerate(lines, 1):
        following = lines[number] if number < len(lines) else '{"kind":"run"'
        if following.startswith(('{"kind":"run"', '{"kind":"resume"')) and _is_torn(text):
            continue
        where = f"{path}:{number}"
        line = _line_of(text, where)
        if line["kind"] == "run":
            cases, argv, begun, ended = {}, [str(word) for word in line.get("argv", [])], True, False
        elif not begun or ended:
            raise BadInput(f"{where}: kind: found {line['kind']!r} outside a run, expected 'run'")
        elif line["kind"] == "case":
            case = Case(line, where)
            cases[case["key"]] = case
        elif line["kind"] == "cases":
            cases |= {case["key"]: case for case in _cases_of(line, where)}
        elif line["kind"] == "end":
            ended = True
    if not begun:
        raise BadInput(f"{path}: found no run, expected records with at least one")
    return list(cases.values()), argv


def read_profile(name_or_path):
    """A cluster profile: a FILE, or the NAME of configs/clusters/NAME.toml."""
    import tomllib  # Python 3.11; records can be read with an older one
    named = os.path.join(ROOT, "configs", "clusters", name_or_path + ".toml")
    path = named if os.path.exists(named) and not os.path.exists(name_or_path) else name_or_path
    try:
        profile = tomllib.loads(text_of(path, "a cluster profile (TOML)"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: found no TOML ({error}), expected a cluster profile") from None
    if "topology" not in profile:
        raise BadInput(f"{path}: topology: found no such table, expected a cluster profile")
    return profile


def read_printed(name):
    """Returns rows of configs/papers/NAME.csv as texts by column, and the opening comment, which names the source."""
    path = os.path.join(ROOT, "configs", "papers", name + ".csv")
    lines = text_of(path, "printed numbers (CSV)").splitlines()
    comment = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    return list(csv.DictReader(line for line in lines if not line.startswith("#"))), comment


def one_value(cases, name, path):
    """Returns the value of a parameter that all cases must share."""
    values = sorted({str(case["parameters"].get(name)) for case in cases})
    if len(values) != 1:
        raise BadInput(f"{path}: {name}: found {len(values)} values ({', '.join(values[:3])}), expected one")
    return values[0]


def how_timed(cases, part):
    """Returns the caption's text on of_layers()."""
    if part == "prediction":
        return "exact replay"
    return "measured" + (", emulated cluster" if any(case.get("emulated") for case in cases) else "")


def chosen(cases, names, path):
    """Returns the cases of the named schedules (comma-separated; None: all), in that order."""
    known = list(dict.fromkeys(case["schedule"] for case in cases if case.get("schedule")))
    wanted = names.split(",") if names else known
    for name in wanted:
        if name not in known:
            raise BadInput(f"--schedule: found {name!r}, expected some of: {', '.join(known)} (in {path})")
    return [case for name in wanted for case in cases if case.get("schedule") == name]
