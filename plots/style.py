"""The common style of pictures, and the beginning and end of every script."""
import argparse
import os
import sys
import textwrap

from records import BadInput

DEBIAN = "/usr/bin/python3"
try:
    import matplotlib
except ImportError:
    if os.path.exists(DEBIAN) and os.path.realpath(sys.executable) != os.path.realpath(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, "-B"] + sys.argv)  # Debian's Python finds the packages that apt installed
    print("plots: found no matplotlib, expected it installed: pip install matplotlib", file=sys.stderr)
    sys.exit(2)
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

PAPER, BAD = "#8c8c8c", "#b03030"
OURS = ("#1f6fb4", "#e08214", "#2d8a57", "#8a4fa3", "#c03b5b", "#7a6a53", "#17a2b8", "#b8a000")
MARKERS = "osD^vPX*"

# Families of tasks: name -> colour, hatch, kinds. Families differ in hatch and lightness as well as in hue;
# commands/report/page/drawing.js has the same.
KIND_FAMILIES = {
    "attention and dense": ("#454545", "", ("attention", "attention_dx", "attention_dw", "ffn", "shared", "embed",
                                            "head")),
    "gate and order": ("#c8c8c8", "..", ("gate", "order", "i_order")),
    "AlltoAll": ("#2f6db5", "", ("dispatch", "combine", "exchange", "sum")),
    "collectives of ESP": ("#86cfa3", "///", ("allgather", "reducescatter", "allreduce", "gather")),
    "experts": ("#ef8a1d", "", ("expert", "expert_dx", "expert_dw")),
    "gradients and weights": ("#c9302c", "\\\\", ("gradient", "expert_gradient", "tied_gradient", "stage_gradient",
                                                "weights", "expert_weights", "stage_weights", "squares", "norm",
                                                "optimizer", "fetch", "store", "host_optimizer")),
    "other": ("#b795d1", "xx", ())}

# A schedule has the same colour and marker in every picture; those of one paper are shades of one hue.
SCHEDULES = {
    "ds-moe": ("#4d4d4d", "o"), "ds-moe-replicated": ("#b0b0b0", "s"),
    "tutel": ("#0072b2", "s"), "tutel-improved": ("#56b4e9", "D"), "pipemoe+lina": ("#0b3c5d", "P"),
    "fsmoe": ("#d55e00", "D"), "fsmoe-interleaved": ("#7a3500", "X"), "fsmoe-no-iio": ("#e69f00", "^"),
    "fsmoe-no-partition": ("#f2b98a", "v"), "fsmoe-dw": ("#ff8c5a", "P"),
    "lina-baseline": ("#a9dcc8", "o"), "lina-fixed": ("#74c7a7", "s"), "lina-priority": ("#3fb08a", "D"),
    "lina-partition": ("#009e73", "^"), "lina": ("#006b4e", "v"), "lina-packed": ("#003d2d", "P"),
    "parm-s1": ("#ecc3da", "o"), "parm-s2-aas": ("#dd9cc1", "s"), "parm-s2": ("#cc79a7", "D"), "parm": ("#8f3f6f", "^"),
    "monta-baseline": ("#e3d65c", "o"), "monta-o1": ("#c9b81a", "s"), "monta-o2": ("#a39400", "D"),
    "monta-o3": ("#7a6f00", "^"), "monta": ("#4f4800", "v"), "wave": ("#17a2b8", "*"),
    "pair-1f1b": ("#8fd8e4", "o"), "lancet": ("#52c0d2", "s"), "flowmoe": ("#0e7687", "D"),
    "chunked-ep": ("#094a55", "^")}

matplotlib.rcParams.update({
    "figure.dpi": 100, "savefig.dpi": 130, "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e4e4e4", "axes.axisbelow": True, "legend.frameon": False, "legend.fontsize": 8,
    "hatch.linewidth": 0.5, "svg.hashsalt": "moetune", "font.family": "DejaVu Sans"})


def family_of(kind):
    """Returns the family of a kind; "other" for collectives of MP, copies and kinds of later versions."""
    kind = kind.replace("-", "_").replace(" ", "_")
    return next((name for name, (_, _, kinds) in KIND_FAMILIES.items() if kind in kinds), "other")


def family_style(family):
    """Returns the fill of a family's bars."""
    colour, hatch, _ = KIND_FAMILIES[family]
    return {"facecolor": colour, "hatch": hatch}


def schedule_style(name):
    """Returns a schedule's colour and marker; unknown ones (the user's, or a later version's) get a free colour."""
    return SCHEDULES.get(name, ("#5d3fd3", "*"))


def ink_on(colour):
    """Returns the colour of text that is readable on this colour."""
    red, green, blue = (int(colour[i:i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


def logarithmic(axis):
    """Makes an axis logarithmic, with plain numbers at 1, 2 and 5 of each power."""
    scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    scale("log")
    axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


class Arguments(argparse.ArgumentParser):
    """Reports usage errors in one line, as everywhere in moetune."""

    def error(self, message):
        raise BadInput(f"{message}; --help lists the expected arguments")


def arguments(description, example):
    parser = Arguments(description=description, epilog="example: python3 plots/" + example)
    parser.add_argument("-o", "--out", metavar="FILE", help="picture, .png or .svg; default: beside the records")
    return parser


def path_of(options, name):
    """Returns the path of a picture: the requested one, else beside its records, else in results/."""
    path = options.out
    if path is None:
        records = getattr(options, "records", None)
        told = isinstance(records, str)
        path = f"{os.path.splitext(records.removesuffix('.gz'))[0]}.{name}.png" if told else f"results/{name}.png"
    if os.path.splitext(path)[1] not in (".png", ".svg"):
        raise BadInput(f"--out: found {path!r}, expected a name that ends in .png or .svg")
    return path


def save(figure, options, name, title, caption, source):
    """Writes the picture, with a caption on its content, missing parts and the source of its numbers."""
    path = path_of(options, name)
    width = int(figure.get_size_inches()[0] * 17.5)
    lines = [line for text in (caption, f"Source: {source}.") for line in textwrap.wrap(text, width)]
    inches = 0.16 * len(lines) + 0.12
    height = figure.get_size_inches()[1]
    figure.set_size_inches(figure.get_size_inches()[0], height + inches)
    share = inches / (height + inches)
    figure.suptitle(title, x=0.008, ha="left", fontsize=12, fontweight="bold")
    figure.set_layout_engine("constrained", rect=(0, share, 1, 1 - share))
    figure.text(0.008, share * 0.94, "\n".join(lines), ha="left", va="top", fontsize=7.5, color="#444444",
                linespacing=1.25)
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else {"Software": None})
    except OSError as error:
        raise BadInput(f"--out: found {path!r}, which cannot be written ({error.strerror}), "
                       "expected a writable name") from None
    plt.close(figure)
    print(path)


def run(main):
    """Runs a script's main; bad input is one line on stderr and exit code 2."""
    try:
        main()
    except BadInput as error:
        plt.close("all")
        print("plots: " + str(error).replace("\n", " "), file=sys.stderr)
        sys.exit(2)
