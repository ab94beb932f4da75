#!/usr/bin/env python3
"""Slowdown of lanes by each other: the factors and stalls of a profile's [contention], as a matrix."""
import style
from records import BadInput, read_profile
from style import plt

STALL = "_stall_s"
ORDER = ("inter", "intra", "compute", "copy")


def matrix_of(profile, path):
    """Returns (lanes, factors, stalls); factors and stalls by (slowed, by)."""
    table = profile.get("contention")
    if not isinstance(table, dict) or not table:
        raise BadInput(f"{path}: contention: found no table of this name, expected a profile with contention of lanes")
    factors, stalls = {}, {}
    for key, value in table.items():
        slowed, between, by = key.removesuffix(STALL).partition("_by_")
        least = 0 if key.endswith(STALL) else 1
        if not between or isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e9:
            raise BadInput(f"{path}: contention.{key}: found {value!r}, expected LANE_by_LANE, a factor of at least 1, "
                           "or LANE_by_LANE_stall_s, seconds")
        (stalls if key.endswith(STALL) else factors)[slowed, by] = float(value)
    named = {lane for pair in (*factors, *stalls) for lane in pair}
    return [lane for lane in ORDER if lane in named] + sorted(named - set(ORDER)), factors, stalls


def draw(figure, axes, lanes, factors, stalls):
    cells = [[factors.get((slowed, by), 1.0) for by in lanes] for slowed in lanes]
    most = max(max(row) for row in cells)
    image = axes.imshow(cells, cmap="cividis_r", vmin=1, vmax=max(most, 1.1), alpha=1 if most > 1 else 0.15)
    for y, slowed in enumerate(lanes):
        for x, by in enumerate(lanes):
            value, stall = cells[y][x], stalls.get((slowed, by), 0.0)
            text = "-" if slowed == by else f"{value:.2f}x" + (f"\n+ {stall * 1e6:.0f} us" if stall else "")
            dark = value > 1 + 0.5 * (max(most, 1.1) - 1)
            axes.text(x, y, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(len(lanes)), lanes)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_xlabel("while this lane runs too")
    axes.set_ylabel("slowed lane")
    if most > 1:
        figure.colorbar(image, ax=axes, label="times as long")


def main():
    parser = style.arguments(__doc__, "contention.py a800")
    parser.add_argument("profile", help="cluster profile: a FILE, or a name of `moetune list`")
    options = parser.parse_args()
    profile = read_profile(options.profile)
    lanes, factors, stalls = matrix_of(profile, options.profile)
    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    draw(figure, axes, lanes, factors, stalls)
    missing = len(lanes) * (len(lanes) - 1) - len({*factors, *stalls})
    caption = ("Factors: a task of the row's lane takes so many times as long while one of the column's runs; with a "
               f"+, what it loses as both begin. {missing} pairs are not in the profile: they are 1.00x. Lanes that "
               "no pair names are left out.")
    if max(factors.values(), default=1) <= 1:
        caption += " No factor is above 1."
    style.save(figure, options, "contention", f"How lanes slow each other on {profile.get('name', '?')}", caption,
               f"{options.profile}: {profile.get('source', 'no source named')}".rstrip("."))


if __name__ == "__main__":
    style.run(main)
