"""A paper's numbers beside ours: the figures that `moetune reproduce TABLE` records, or only the printed numbers."""
import glob
import os
import re

import style
from records import ROOT, BadInput, Records, read_printed

SCALES = {"time_s": ("ms", 1e3), "speedup": ("x", 1), "share": ("", 1), "efficiency": ("", 1)}
BEYOND = 1.8  # an axis ends at most at this multiple of the largest printed value
LINES = ("-", "--", "-.", ":")
NO_LABELS = ("table", "comparison", "convention", "summary_from", "assuming")


class Figure:
    """One number: labels by name, the paper's value and ours (None: not printed, not computed)."""

    def __init__(self, comparison, labels, convention, quantity, paper, ours, lacks=""):
        self.comparison, self.labels, self.convention = comparison, labels, convention
        self.quantity, self.paper, self.ours = quantity, paper, ours
        self.lacks = lacks  # names of inputs of our value that no paper prints


def _figure_of(case):
    known = dict(case["summary"]) | dict(case["prediction"])
    if len(known) > 1:
        raise BadInput(f"{case.where}: found values {', '.join(known)}, expected one quantity")
    quantity = next(iter(known), "")
    labels = {name: str(value) for name, value in case["parameters"].items() if name not in NO_LABELS}
    paper = case.number("summary", quantity) if case["summary"] else None
    ours = case.number("prediction", quantity) if case["prediction"] else None
    lacks = (case.get("reason") or "").partition("not computable from print: ")[2]
    return Figure(case.text("comparison"), labels, case.text("convention"), quantity, paper, ours, lacks)


def assumptions_for(table):
    """Returns the names in configs/papers/assume/ whose values make a table computable."""
    names = []
    for path in sorted(glob.glob(os.path.join(ROOT, "configs", "papers", "assume", "*.toml"))):
        with open(path, encoding="utf-8") as file:
            tables = re.search(r"^tables = \[(.*?)\]", file.read(), re.MULTILINE | re.DOTALL)
        if tables and f'"{table}"' in tables[1]:
            names.append(os.path.basename(path).removesuffix(".toml"))
    return names


class Pages:
    """The figures of one table, their source, and the caption's text on missing ones."""

    def __init__(self, figures, source, computed, assumed=False, table=""):
        self.figures, self.source, self.computed, self.assumed = figures, source, computed, assumed
        self.table = table

    def missing(self):
        if not self.computed:
            return "Printed numbers alone: no records were given, so nothing of ours is beside them."
        said = ["Ours rest on assumed coefficients (--assume)."] if self.assumed else []
        without = sum(figure.ours is None for figure in self.figures)
        if without:
            lacks = "; ".join(dict.fromkeys(figure.lacks for figure in self.figures if figure.lacks))
            said.append(f"Not computable from print: {without} of {len(self.figures)} values of ours. No paper prints "
                        f"what they rest on{f': {lacks}' if lacks else ''}.")
        if without and not self.assumed and (names := assumptions_for(self.table)):
            said.append(f"`moetune reproduce {self.table} --assume {names[0]} --out FILE` computes them on assumed "
                        "values.")
        return " ".join(said)


def recorded(path, table):
    records = Records(path)
    cases = records.of("reproduce/", f"moetune reproduce {table}")
    figures = [_figure_of(case) for case in cases if case.text("table") == table]
    if not figures:
        found = sorted({case.text("table") for case in cases})
        raise BadInput(f"{path}: table: found {', '.join(found)}, expected {table}")
    return Pages(figures, records.source(), True, "--assume" in records.command, table)


def printed(name, keep, labels, value, quantity="speedup"):
    """Returns the rows of configs/papers/NAME.csv for which `keep` is true, with these columns as labels."""
    rows, comment = read_printed(name)
    figures = [Figure("", {label: row[label] for label in labels}, "", quantity, float(row[value]), None)
               for row in rows if keep(row)]
    return Pages(figures, f"configs/papers/{name}.csv: {comment.split('. ')[0].rstrip('.')}", False)


def arguments(description, example, table):
    parser = style.arguments(description, example)
    parser.add_argument("records", nargs="?",
                        help=f"FILE of `moetune reproduce {table} --out FILE`; default: what is printed alone")
    return parser


def unit_of(figures):
    quantity = next((figure.quantity for figure in figures if figure.quantity), "speedup")
    return SCALES.get(quantity, (quantity, 1))


def conventions_of(figures):
    return list(dict.fromkeys(figure.convention for figure in figures))


def ours_label(convention):
    return f"ours: {convention}" if convention else "ours"


def say_absent(axes, conventions):
    """Writes one line for all rows if a convention has no numbers."""
    labels = ", ".join(ours_label(convention) for convention in conventions)
    if labels:
        axes.text(0.995, 0.02, f"{labels}: not computable from print", transform=axes.transAxes, fontsize=7,
                  style="italic", color=style.BAD, ha="right", va="bottom")


def say_no_records(axes, command):
    """Writes the command that computes our numbers into a picture that only has printed ones."""
    axes.text(0.995, 0.02, f"ours: no records given; {command} writes them", transform=axes.transAxes, fontsize=7,
              style="italic", color=style.BAD, ha="right", va="bottom")


def cut(axes, y, height, end):
    """Draws two slanted gaps near the end of a bar to show that it is shorter than its number."""
    for at in (0.92, 0.95):
        axes.plot([at * end, (at + 0.012) * end], [y + height / 2, y - height / 2], color="white", linewidth=2)


def limit_of(figures, scale):
    """Returns the end of an axis: a convention that is far off must not squeeze all others."""
    values = [v * scale for f in figures for v in (f.paper, f.ours) if v is not None] or [1]
    printed = [f.paper * scale for f in figures if f.paper is not None]
    return max(v for v in values if not printed or v <= BEYOND * max(printed))


def draw_rows(axes, figures, name_of, computed):
    """Draws horizontal bars: a row for each set of labels, the paper's value above ours under each convention. A bar
    that exceeds the axis is cut and marked."""
    unit, scale = unit_of(figures)
    rows, conventions = {}, conventions_of(figures)
    absent = [c for c in conventions if all(f.ours is None for f in figures if f.convention == c)] if computed else []
    for figure in figures:
        rows.setdefault(name_of(figure), []).append(figure)
    ours = {name: [f for f in of_row if computed and f.convention not in absent] for name, of_row in rows.items()}
    height = 0.8 / (1 + max(len(of_row) for of_row in ours.values()))
    longest = limit_of(figures, scale)
    end = 1.12 * longest

    def bar(y, value, colour, label):
        width = value if value <= longest else end
        axes.barh(y, width, height=height * 0.92, color=colour, label=label if label not in known else None)
        known.add(label)
        shown = f"{value:.2f}x" if unit == "x" else f"{value:.3f}"
        if value > longest:
            cut(axes, y, height, end)
            shown += ", bar cut"
        axes.text(width + 0.01 * longest, y, shown, va="center", fontsize=7,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    known = set()
    for place, (name, of_row) in enumerate(rows.items()):
        top = place - height * len(ours[name]) / 2
        paper = next((figure.paper for figure in of_row if figure.paper is not None), None)
        if paper is not None:
            bar(top, paper * scale, style.PAPER, "paper")
        for below, figure in enumerate(ours[name], 1):
            i, y = conventions.index(figure.convention), top + below * height
            if figure.ours is None:
                axes.text(0.01 * longest, y, "not computable from print", va="center", fontsize=6.5, style="italic",
                          color=style.BAD)
            else:
                bar(y, figure.ours * scale, style.OURS[i], ours_label(figure.convention))
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    beyond = any(figure.ours * scale > longest for of_row in ours.values() for figure in of_row if figure.ours)
    axes.set_xlim(0, (1.3 if beyond else 1.12) * longest)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    say_absent(axes, absent)


def draw_lines(axes, figures, x_of, series_of=lambda figure: "", computed=True):
    """Draws values over numbers: for each series the paper's, hollow and grey, and ours under each convention. A series
    has one colour and one marker, a convention one kind of line."""
    unit, scale = unit_of(figures)
    series = sorted(dict.fromkeys(series_of(figure) for figure in figures))
    conventions, limit, beyond, drawn = conventions_of(figures), limit_of(figures, scale), [], []
    of_series = {name: sorted((f for f in figures if series_of(f) == name), key=x_of) for name in series}
    printed = {name: {x_of(f): f.paper * scale for f in of_series[name] if f.paper is not None} for name in series}
    one = all(points == printed[series[0]] for points in printed.values())  # True if all printed values are equal
    for k, name in enumerate(series):
        marker = style.MARKERS[k % len(style.MARKERS)]
        if printed[name] and printed[name] not in drawn:
            drawn.append(printed[name])
            axes.plot(list(printed[name]), list(printed[name].values()), marker=marker, color=style.PAPER, markersize=8,
                      linewidth=1, linestyle=":", markerfacecolor="none", markeredgewidth=1.4,
                      label="paper" if one else f"paper: {name}")
        for convention in conventions if computed else []:
            ours = [(x_of(f), f.ours * scale) for f in of_series[name]
                    if f.convention == convention and f.ours is not None]
            if not ours:
                continue
            label = ours_label(", ".join(filter(None, [name, convention])))
            least, most = min(y for _, y in ours), max(y for _, y in ours)
            if least > limit:
                beyond.append(f"{label}: {least:.1f} to {most:.1f}{unit}, beyond the axis")
                continue
            axes.plot(*zip(*ours), marker=marker, color=style.OURS[k % len(style.OURS)], markersize=4, linewidth=1.3,
                      linestyle=LINES[conventions.index(convention) % len(LINES)], label=label)
    if computed and all(figure.ours is None for figure in figures):
        axes.text(0.03, 0.04, "ours: not computable from print", transform=axes.transAxes, fontsize=7.5,
                  style="italic", color=style.BAD)
    axes.margins(x=0.08)
    axes.set_ylim(0, 1.45 * limit)
    for i, text in enumerate(beyond):
        axes.text(0.98, 0.04 + 0.06 * i, text, transform=axes.transAxes, fontsize=7, ha="right")
    axes.legend(loc="upper left", fontsize=7)


def legend_above(axes):
    """Puts the legend above the right end of the axes, where no bar can be."""
    handles = axes.get_legend_handles_labels()[0]
    axes.legend(loc="lower right", bbox_to_anchor=(1.01, 0.995), ncols=max(1, len(handles)), fontsize=7.5,
                columnspacing=1.2, handlelength=1.2)


def over_baselines(pages):
    """Names conventions of FSMoE's figures by the schedule used for DeepSpeed-MoE; ds-moe itself is not named."""
    for figure in pages.figures:
        plain = figure.convention in ("", "ds-moe") or figure.labels.get("over") != "ds-moe"
        figure.convention = "" if plain else f"{figure.convention} for ds-moe"
    return pages


def number_in(text):
    """Returns the number at the beginning of a label: 8 for "8K"."""
    digits = "".join(c for c in text if c.isdigit() or c == ".")
    if not digits:
        raise BadInput(f"label {text!r}: found no number at its beginning, expected one")
    return float(digits)
