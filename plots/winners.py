#!/usr/bin/env python3
"""The best schedule of each shape of a grid: batch and sequence downwards, model and hidden dimension rightwards."""
from collections import Counter

import style
from records import BadInput, Records, chosen, how_timed, one_value
from style import plt

ROWS, COLUMNS = ("batch", "seq"), ("model_dim", "hidden")
LETTERS = {"batch": "B", "seq": "L", "model_dim": "M", "hidden": "H"}
TIE, SAME = 1e-9, 0.005


def totals_of(cases, part="prediction"):
    """Returns layer -> (row, column, {schedule: seconds})."""
    layers = {}
    for case in cases:
        if case["status"] == "ok":
            place = [tuple(int(case.number("parameters", name)) for name in names) for names in (ROWS, COLUMNS)]
            layer = layers.setdefault(case.text("layer"), (*place, {}))
            layer[2][case["schedule"]] = case.number(part, "total_s")
    return layers


def winner_of(totals):
    """Returns the first of the fastest in the records' order, because several schedules may have the same plan."""
    least = min(totals.values())
    return next(name for name, seconds in totals.items() if seconds <= least * (1 + TIE))


def cells_of(layers):
    """Returns (row, column) -> (number of wins of each, mean lead over the second best)."""
    wins, leads = {}, {}
    for row, column, totals in layers.values():
        wins.setdefault((row, column), Counter())[winner_of(totals)] += 1
        first, *rest = sorted(totals.values())
        leads.setdefault((row, column), []).append(next((s / first - 1 for s in rest if s > first * (1 + SAME)), 0))
    return {place: (count, sum(leads[place]) / len(leads[place])) for place, count in wins.items()}


def label_of(place, names):
    return " ".join(f"{LETTERS[name]}{value}" for name, value in zip(names, place))


def draw(axes, cells):
    rows, columns = (sorted({place[i] for place in cells}) for i in (0, 1))
    names = {}
    for (row, column), (count, lead) in cells.items():
        x, y, left = columns.index(column), rows.index(row), 0.0
        for name, times in count.most_common():
            width = times / count.total()
            colour = style.schedule_style(name)[0]
            axes.barh(y, width, left=x - 0.5 + left, height=1, color=colour, edgecolor="white", linewidth=1.2)
            left += width
            names[name] = names.get(name, 0) + times
        most = style.schedule_style(count.most_common(1)[0][0])[0]
        axes.text(x - 0.46, y, f"{100 * lead:.1f} %", ha="left", va="center", fontsize=7, color=style.ink_on(most))
    axes.set_xticks(range(len(columns)), [label_of(column, COLUMNS) for column in columns], rotation=35, ha="right")
    axes.set_yticks(range(len(rows)), [label_of(row, ROWS) for row in rows])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_xlabel("model dimension and hidden size of an expert")
    axes.set_ylabel("samples and tokens of a sample")
    order = sorted(names, key=lambda name: -names[name])
    axes.legend([plt.Rectangle((0, 0), 1, 1, color=style.schedule_style(name)[0]) for name in order],
                [f"{name}: {names[name]}" for name in order], loc="upper left", bbox_to_anchor=(1, 1))


def main():
    parser = style.arguments(__doc__, "winners.py results/plan-testbed-b.jsonl --schedule tutel,lina,fsmoe")
    parser.add_argument("records", help="FILE of `moetune tune` or `moetune tune --no-verify`")
    parser.add_argument("--schedule", help="NAME[,NAME]: these compete; default: all of the file")
    options = parser.parse_args()
    records = Records(options.records)
    cases, part = records.of_layers()
    cases = chosen(cases, options.schedule, options.records)
    layers = totals_of(cases, part)
    if not layers:
        raise BadInput(f"{options.records}: status: found no layer that is ok, expected at least one")
    cells = cells_of(layers)
    rows, columns = (len({place[i] for place in cells}) for i in (0, 1))
    figure, axes = plt.subplots(figsize=(3.6 + 0.72 * max(columns, 4), 2 + 0.32 * max(rows, 4)))
    draw(axes, cells)
    schedules = list(dict.fromkeys(case["schedule"] for case in cases if case["status"] == "ok"))
    caption = (f"{len(layers)} layers on {one_value(cases, 'cluster', options.records)}, {how_timed(cases, part)}. A "
               "field holds all layers of its shape (heads, capacity, experts differ), split by how many each schedule "
               f"wins. Its figure: how much slower the next schedule is, of those {100 * SAME:g} % or more behind. Of "
               f"equal times the first wins, of: {', '.join(schedules)}.")
    style.save(figure, options, "winners", "The best schedule by shape of layer", caption, records.source())


if __name__ == "__main__":
    style.run(main)
