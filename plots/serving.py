#!/usr/bin/env python3
"""Serving: latency of batches and layers by variant, and how often ranks wait and experts are placed again."""
import style
from records import BadInput, Records, one_value
from style import plt

PERCENTILES = ("p50", "p95", "p99")
LATENCIES = {"batch": "a batch", "layer": "a layer of a batch", "alltoall": "AlltoAlls of a layer"}
# Field of records -> label.
SHARES = {"idle_share": "waiting, mean of the ranks", "most_idle_share": "waiting, rank that waits most",
          "estimate_accuracy": "estimate right", "placed_again_share": "placed again"}


class Variant:
    """Seconds and shares of one variant, measured if it ran, and its prediction (None: it did not run)."""

    def __init__(self, case):
        shown = "summary" if case["summary"] else "prediction"
        self.name = case.text("variant")
        self.seconds = self._seconds_of(case, shown)
        self.predicted = self._seconds_of(case, "prediction") if case["summary"] else None
        self.shares = {field: case.number(shown, field) for field in SHARES if field in case[shown]}

    @staticmethod
    def _seconds_of(case, part):
        fields = [f"{what}_{percentile}_s" for what in LATENCIES for percentile in PERCENTILES]
        seconds = {field: case.number(part, field) for field in fields}
        for field, value in seconds.items():
            if value <= 0:
                raise BadInput(f"{case.where}: {part}.{field}: found {value:g}, expected a number above 0")
        return seconds


def draw_latency(axes, variants, what):
    """Draws a group of bars for each variant, one bar per percentile; a black line across a bar is the prediction."""
    width = 0.8 / len(PERCENTILES)
    marks = []
    for i, percentile in enumerate(PERCENTILES):
        field, places = f"{what}_{percentile}_s", [y + (i - 1) * width for y in range(len(variants))]
        axes.barh(places, [variant.seconds[field] * 1e3 for variant in variants], height=width * 0.9,
                  color=style.OURS[i], label=percentile)
        marks += [(at, variant.predicted[field] * 1e3) for at, variant in zip(places, variants) if variant.predicted]
    if marks:
        axes.vlines([ms for _, ms in marks], [at - width / 2 for at, _ in marks], [at + width / 2 for at, _ in marks],
                    color="black", linewidth=1.6, label="predicted")
    axes.set_title(LATENCIES[what])
    axes.set_xlabel("time, ms")


def draw_shares(axes, variants):
    """Draws a group of bars for each variant, a bar for each share; a variant without estimates has no bar for them."""
    width = 0.8 / len(SHARES)
    for i, (field, label) in enumerate(SHARES.items()):
        found = [(y, variant.shares[field]) for y, variant in enumerate(variants) if field in variant.shares]
        axes.barh([y + (i - (len(SHARES) - 1) / 2) * width for y, _ in found], [100 * share for _, share in found],
                  height=width * 0.9, color=style.OURS[len(PERCENTILES) + i], label=label)
    axes.set_title("shares")
    axes.set_xlabel("of a batch's time, or of the layers with an estimate, %")
    axes.set_xlim(0, 100)


def draw(variants):
    figure, panels = plt.subplots(2, 2, figsize=(11, 1.6 + 0.95 * len(variants)), squeeze=False)
    flat = [axes for row in panels for axes in row]
    for axes, what in zip(flat, LATENCIES):
        draw_latency(axes, variants, what)
    draw_shares(flat[-1], variants)
    for axes in flat:
        axes.set_yticks(range(len(variants)), [variant.name for variant in variants])
        axes.set_ylim(len(variants) - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
    for axes in (panels[0][1], panels[1][1]):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def main():
    parser = style.arguments(__doc__, "serving.py results/layerbench-a100-8.jsonl")
    parser.add_argument("records", help="FILE of `moetune layerbench --serve` or `moetune simulate --serve --out FILE`")
    options = parser.parse_args()
    records = Records(options.records)
    cases = records.of("serve/", "moetune layerbench --serve")
    cases = [case for case in cases if case["status"] == "ok"]
    variants = [Variant(case) for case in cases]
    if not variants:
        raise BadInput(f"{options.records}: status: found no variant that is ok, expected at least one")
    how = "predicted"
    if any(variant.predicted for variant in variants):
        how = "measured, emulated cluster" if cases[0].get("emulated") else "measured"
    first, path = cases[0], options.records
    caption = (f"{one_value(cases, 'layer', path)} on {one_value(cases, 'cluster', path)}, {how}: "
               f"{first.number('parameters', 'batches'):g} batches through {first.number('parameters', 'layers'):g} "
               f"layers, routing {one_value(cases, 'routing', path)}. AlltoAlls are without waiting for the last rank. "
               "Estimates are right if they have the two most popular experts in their order; a layer is placed again "
               "if the gate chose others.")
    style.save(draw(variants), options, "serving", "Serving by variant", caption, records.source())


if __name__ == "__main__":
    style.run(main)
