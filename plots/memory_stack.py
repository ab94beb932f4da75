#!/usr/bin/env python3
"""The memory of a rank by part: `moetune memory --json` as stacked bars."""
import json

import style
from records import BadInput, text_of
from style import plt

GIB = 2.0**30
PARTS = ("weights", "gradients", "optimizer", "activations", "buffers")


def estimate_of(row, where):
    """Returns bytes by part, and the name of the model of activations."""
    found = {}
    for part in PARTS:
        value = row.get(f"{part}_bytes") if isinstance(row, dict) else None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise BadInput(f"{where}: {part}_bytes: found {value!r}, expected bytes")
        found[part] = float(value)
    return found, str(row.get("activations_model"))


def read(path):
    """Returns the document and its estimates."""
    expected = "what `moetune memory --json` prints"
    try:
        document = json.loads(text_of(path, expected))
    except json.JSONDecodeError:
        raise BadInput(f"{path}: found no JSON document, expected {expected}") from None
    rows = document.get("estimates") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{path}: estimates: found {str(rows)[:24]}, expected {expected}")
    return document, [estimate_of(row, f"{path}: estimates[{i}]") for i, row in enumerate(rows)]


def name_of(document):
    name = f"{document.get('layers')} layers of {document['model']}" if document.get("model") else "a layer"
    return f"{name} on {document.get('cluster')}"


def settings_of(document):
    return (f"ZeRO {document.get('zero')}, {document.get('micro_batches_in_flight')} in flight, "
            f"recompute {document.get('recompute')}")


def draw(axes, pages):
    labels, limits = [], []
    for document, estimates in pages:
        first = len(labels)
        for parts, counted in estimates:
            x, bottom = len(labels), 0.0
            for i, (part, amount) in enumerate(parts.items()):
                axes.bar(x, amount / GIB, bottom=bottom / GIB, width=0.7, color=style.OURS[i], edgecolor="white",
                         linewidth=0.6, label=part if not labels else None)
                bottom += amount
            axes.text(x, bottom / GIB, f"{bottom / GIB:.3g} GiB", ha="center", va="bottom", fontsize=7.5)
            labels.append(counted)
        axes.text((first + len(labels) - 1) / 2, -0.1, settings_of(document), fontsize=7.5, ha="center", va="top",
                  transform=axes.get_xaxis_transform())
        if document.get("memory_bytes"):
            limits.append(document["memory_bytes"] / GIB)
            axes.plot([first - 0.45, len(labels) - 0.55], [limits[-1]] * 2, color=style.BAD, linewidth=1.5,
                      linestyle="--", label="memory of a rank" if len(limits) == 1 else None)
    axes.set_xticks(range(len(labels)), labels)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    axes.set_ylabel("bytes of a rank, GiB")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "memory_stack.py results/memory.json")
    parser.add_argument("documents", nargs="+", metavar="FILE",
                        help="of `moetune memory --json`; several stand beside each other")
    options = parser.parse_args()
    pages = [read(path) for path in options.documents]
    bars = sum(len(estimates) for _, estimates in pages)
    figure, axes = plt.subplots(figsize=(3.4 + 0.95 * max(bars, 3), 4.8))
    draw(axes, pages)
    names = "; ".join(dict.fromkeys(name_of(document) for document, _ in pages))
    caption = (f"{names}. printed and corrected: MoNTA's formulas, as printed and repaired; counted: the tensors that "
               "the layer keeps. The fragmentation of an allocator and what a framework keeps are not in it.")
    style.save(figure, options, "memory_stack", "What fills the memory of a rank", caption,
               f"{', '.join(options.documents)} (moetune memory --json)")


if __name__ == "__main__":
    style.run(main)
