"""What the scripts of plots/ draw, against the numbers of small records and of made-up ones."""
import importlib
import json
import unittest

from plots_test import InScratch, json_lines


class Numbers(InScratch):
    def load(self, script):
        return importlib.import_module(script)

    def test_timelines_have_every_task(self):
        cases = [case for case in json_lines("layer.jsonl") if case.get("timeline")]
        self.assertEqual(len(cases), 3)
        records = self.load("records")
        figure = self.load("timelines").draw([records.Case(case, "f:1") for case in cases])
        bars = [patch for patch in figure.axes[0].patches if patch.get_height() > 0.5]
        tasks = [task for case in cases for task in case["timeline"]]
        self.assertEqual(sorted((round(bar.get_x(), 9), round(bar.get_width(), 9)) for bar in bars),
                         sorted((round(1e3 * t["start_s"], 9), round(1e3 * (t["end_s"] - t["start_s"]), 9))
                                for t in tasks))

    def test_ratios_over_a_baseline(self):
        records, script = self.load("records"), self.load("speedup_distribution")
        cases = records.Records("plan.jsonl").cases
        ratios, layers = script.ratios_of(cases, "tutel", "plan.jsonl")
        self.assertEqual(layers, len({case["parameters"]["layer"] for case in cases}))
        for name in ("ds-moe", "fsmoe"):
            expected = []
            for mine in cases:
                for base in cases:
                    same = mine["parameters"]["layer"] == base["parameters"]["layer"]
                    if same and (mine["schedule"], base["schedule"]) == (name, "tutel"):
                        expected.append(base["prediction"]["total_s"] / mine["prediction"]["total_s"])
            self.assertEqual(ratios[name], sorted(expected))

    def test_a_line_of_several_cases_is_its_cases(self):
        records = self.load("records")
        run_line, *cases, end = json_lines("layer.jsonl")
        groups = {}
        for case in cases:
            if "timeline" not in case:
                groups.setdefault(case["schedule"], []).append(case)
        with open("grouped.jsonl", "w") as file:
            file.write(json.dumps(run_line) + "\n")
            for schedule, group in groups.items():
                start = f"degrees/{schedule}/"
                columns = ["key", "schedule", "degree_forward", "degree_backward", "bound_s"]
                columns += [f"prediction.{name}" for name in group[0]["prediction"]]
                rows = [[case["key"].removeprefix(start)] + [case[name] for name in columns[1:5]]
                        + list(case["prediction"].values()) for case in group]
                columns.insert(1, {name: group[0][name] for name in ("status", "backend", "emulated", "dilation")})
                file.write(json.dumps({"kind": "cases", "parameters": group[0]["parameters"], "key": start,
                                       "tables": [{"columns": columns, "rows": rows}]}) + "\n")
            file.write(json.dumps(end) + "\n")
        expected = [case for case in records.Records("layer.jsonl").cases if "timeline" not in case]
        self.assertGreater(len(expected), 10)
        self.assertEqual(records.Records("grouped.jsonl").cases, expected)

    def test_losses_are_the_records(self):
        records, script, plt = self.load("records"), self.load("loss"), self.load("style").plt
        cases = [line for line in json_lines("training.jsonl") if line["kind"] == "case" and "loss" in line["samples"]]
        _, axes = plt.subplots()
        script.draw(axes, script.curves_of([records.Case(case, "f:1") for case in cases], "f"),
                    script.bounds_of(records.Case(cases[0], "f:1")))
        drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
        for case in cases:
            losses = [row[0] for row in case["samples"]["loss"]]
            self.assertEqual(drawn[case["schedule"]], (list(range(1, len(losses) + 1)), losses))
            held_out = case["summary"]["held_out_loss"]
            self.assertEqual(drawn[f"{case['schedule']}, held out: {held_out:.4f}"], ([len(losses)], [held_out]))
        levels = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
        self.assertEqual(levels, [cases[0]["parameters"][name] for name in ("entropy_rate", "order_1_entropy")])
        self.assertLess(levels[0], levels[1])

    def test_a_bar_that_is_cut_says_so(self):
        papers, plt = self.load("papers"), self.load("style").plt
        figures = [papers.Figure("", {"name": name}, "", "speedup", 2.0, ours)
                   for name, ours in (("a", 1.5), ("b", 20))]
        _, axes = plt.subplots()
        papers.draw_rows(axes, figures, lambda figure: figure.labels["name"], True)
        longest = max(bar.get_width() for bar in axes.patches)
        self.assertGreater(longest, 2.0)
        self.assertEqual([text.get_text() for text in axes.texts], ["2.00x", "1.50x", "2.00x", "20.00x, bar cut"])
        self.assertEqual(len(axes.lines), 2)

    def test_what_was_not_printed_is_no_series(self):
        papers, plt = self.load("papers"), self.load("style").plt
        figures = [papers.Figure("", {"x": str(x), "s": s}, "", "share", paper, 0.5)
                   for s, paper in (("one", 0.3), ("two", None)) for x in (1, 2)]
        _, axes = plt.subplots()
        papers.draw_lines(axes, figures, lambda figure: papers.number_in(figure.labels["x"]),
                          lambda figure: figure.labels["s"])
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()],
                         ["paper: one", "ours: one", "ours: two"])

    def test_what_was_measured_again_is_one_point(self):
        records, fits = self.load("records"), self.load("fits")

        def case(key, median, least, most, **parameters):
            return records.Case({"key": "op/" + key, "status": "ok", "prediction": {}, "parameters": parameters,
                                 "summary": {"median_s": median, "least_s": least, "most_s": most}}, "f:1")
        shared = {"op": "module", "name": "order:tutel", "phase": "forward", "bytes": 8.0}
        series = fits.series_of([case("a", 2.0, 1.5, 3.0, **shared), case("a/again/1", 4.0, 1.0, 5.0, **shared)])
        self.assertEqual(series, {"order:tutel forward": (3, [fits.Point(8.0, 3.0, 1.0, 5.0)])})

    def test_bus_bandwidth_is_of_nccl_tests(self):
        script, fits = self.load("busbw"), self.load("fits")
        point = fits.Point(8e9, 2.0, 1.0, 4.0)
        found = script.bandwidths({"allreduce inter 8": (0, [point]), "allgather intra 4": (0, [point]),
                                   "alltoall inter 2": (0, [point]), "sendrecv inter 2": (0, [point]),
                                   "gemm float32": (1, [point])})
        self.assertEqual(found, {"allreduce inter 8": [(8e9, 7.0, 3.5, 14.0)],
                                 "allgather intra 4": [(8e9, 3.0, 1.5, 6.0)],
                                 "alltoall inter 2": [(8e9, 2.0, 1.0, 4.0)]})

    def test_the_critical_path_is_as_long_as_the_layer(self):
        records, script = self.load("records"), self.load("critical_path")
        for case in records.Records("layer.jsonl").cases:
            if case.get("timeline"):
                shares = script.shares_of(case)
                self.assertAlmostEqual(sum(shares.values()), case["prediction"]["total_s"], delta=1e-12)
                self.assertNotIn(script.IDLE, shares)

    def test_the_critical_path_goes_where_tasks_ended(self):
        records, script = self.load("records"), self.load("critical_path")
        tasks = [{"kind": kind, "lane": lane, "start_s": start, "end_s": end} for kind, lane, start, end in (
            ("gate", "compute", 0.0, 1.0), ("dispatch", "comm", 1.0, 4.0), ("expert", "compute", 1.0, 3.0),
            ("combine", "comm", 4.0, 5.0), ("attention", "compute", 5.5, 6.0))]
        case = records.Case({"key": "k", "status": "ok", "parameters": {}, "summary": {}, "prediction": {},
                             "timeline": tasks}, "f:1")
        self.assertEqual(script.path_of(case)[::-1], [("gate", 1.0), ("dispatch", 3.0), ("combine", 1.0),
                                                      ("no task", 0.5), ("attention", 0.5)])

    def test_the_winner_takes_the_least(self):
        records, script = self.load("records"), self.load("winners")
        self.assertEqual(script.winner_of({"a": 2.0, "b": 1.0, "c": 1.0}), "b")
        cells = script.cells_of({"x": ((1, 2), (3, 4), {"a": 1.0, "b": 1.001, "c": 1.5}),
                                 "y": ((1, 2), (3, 4), {"a": 2.0, "b": 1.0})})
        self.assertEqual(dict(cells[(1, 2), (3, 4)][0]), {"a": 1, "b": 1})
        self.assertAlmostEqual(cells[(1, 2), (3, 4)][1], 0.75)
        for row, column, totals in script.totals_of(records.Records("plan.jsonl").cases).values():
            self.assertEqual(totals[script.winner_of(totals)], min(totals.values()))

    def test_a_pair_of_degrees_is_the_best_of_both(self):
        script = self.load("degree_map")
        self.assertEqual(script.best_of([1, 2, 4], [3.0, 1.0, 2.0], [5.0, 4.0, 2.0]), ((2, 4), 3.0, 4, 4.0))

    def test_of_one_pair_of_degrees_both_marks_are_seen(self):
        script, plt = self.load("degree_map"), self.load("style").plt
        figure, axes = plt.subplots()
        script.draw(axes, "tutel", [1, 2, 4], [3.0, 1.0, 2.0], [5.0, 2.0, 4.0])
        places = {line.get_marker(): line.get_transform().transform((2, 2)) for line in axes.lines
                  if line.get_marker() in "o*"}
        beside = (places["o"] - places["*"]) * 72 / figure.dpi  # points
        self.assertGreaterEqual(beside[0], 6 / 2 + 12 / 2)  # half of a circle and half of a star
        self.assertEqual(beside[1], 0)
        axes.clear()
        script.draw(axes, "fsmoe", [1, 2, 4], [3.0, 1.0, 2.0], [2.0, 2.5, 4.0])
        for line in axes.lines:
            if line.get_marker() in "o*":
                at = (2, 2) if line.get_marker() == "o" else (2, 1)
                self.assertEqual((line.get_xdata()[0], line.get_ydata()[0]), at)
                self.assertEqual(list(line.get_transform().transform(at)), list(axes.transData.transform(at)))

    def test_speedups_are_in_the_order_of_the_printed_means(self):
        script = self.load("speedup_distribution")
        self.assertEqual(list(script.by_mean({"a": [1.0, 1.0, 9.0], "b": [2.0, 2.0, 2.0]})), ["b", "a"])

    def test_steps_are_whole(self):
        script, plt = self.load("loss"), self.load("style").plt
        for steps in (1, 2, 3, 4, 7, 60, 1000):
            figure, axes = plt.subplots()
            script.draw(axes, [("tutel", [1.0] * steps, None)], [])
            figure.canvas.draw()
            low, high = axes.get_xlim()
            ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
            self.assertTrue(ticks and all(tick == round(tick) and tick >= 1 for tick in ticks), (steps, ticks))
            plt.close(figure)

    def test_families_of_tasks_are_seven_and_told_apart_by_more_than_hue(self):
        style = self.load("style")
        self.assertEqual(len(style.KIND_FAMILIES), 7)

        def lightness(colour):
            shares = ((0.2126, 1), (0.7152, 3), (0.0722, 5))
            return sum(share * int(colour[at:at + 2], 16) for share, at in shares) / 255
        looks = [(hatch, lightness(colour)) for colour, hatch, _ in style.KIND_FAMILIES.values()]
        for i, (hatch, light) in enumerate(looks):
            for other_hatch, other in looks[:i]:
                self.assertTrue(hatch != other_hatch or abs(light - other) > 0.08, looks)
        self.assertEqual(style.family_of("expert-dx"), "experts")
        self.assertEqual(style.family_of("mp_allgather"), "other")

    def test_outliers_are_the_worst(self):
        records, script = self.load("records"), self.load("predicted")
        lines = json_lines("verified.jsonl")
        cases = [records.Case(line, "f:1") for line in lines if line["kind"] == "case"]
        self.assertEqual(script.outliers(script.pairs_of(cases, "f")), [])
        for case, times in zip(cases, (1.05, 0.9, 1.019)):
            case["summary"]["total_s"] = case["prediction"]["total_s"] * times
        worst = script.outliers(script.pairs_of(cases, "f"))
        self.assertEqual([round(pair.off, 9) for pair in worst], [-0.1, 0.05])

    def test_a_straggler_is_seen(self):
        records, script = self.load("records"), self.load("stragglers")
        case = records.Case({"key": "run/x", "status": "ok", "parameters": {}, "summary": {}, "prediction": {},
                             "samples": {"total_s": [[1.0, 1.0, 2.0], [9.0, 1.0, 3.0], [1.0, 1.0, 2.0]]}}, "f:1")
        self.assertEqual(script.shares_of([case], "f"), ([("?", [0.0, 0.0, 1.0])], 0))

    def test_serving_shows_what_ran_beside_its_prediction(self):
        records, script = self.load("records"), self.load("serving")
        for file, shown in (("served.jsonl", "summary"), ("serving.jsonl", "prediction")):
            cases = [line for line in json_lines(file) if line["kind"] == "case"]
            figure = script.draw([script.Variant(records.Case(case, "f:1")) for case in cases])
            for axes, what in zip(figure.axes, ("batch", "layer", "alltoall")):
                names = [f"{what}_{percentile}_s" for percentile in ("p50", "p95", "p99")]
                self.assertEqual([bar.get_width() for bar in axes.patches],
                                 [case[shown][name] * 1e3 for name in names for case in cases])
                marks = [line.vertices[0][0] for found in axes.collections for line in found.get_paths()]
                self.assertEqual(marks, [] if shown == "prediction" else
                                 [case["prediction"][name] * 1e3 for name in names for case in cases])
            shares = ("idle_share", "most_idle_share", "estimate_accuracy", "placed_again_share")
            self.assertEqual([bar.get_width() for bar in figure.axes[3].patches],
                             [100 * case[shown][name] for name in shares for case in cases if name in case[shown]])
            self.assertEqual([label.get_text() for label in figure.axes[3].get_yticklabels()],
                             [case["parameters"]["variant"] for case in cases])

    def test_bars_are_as_long_as_their_numbers(self):
        papers, plt = self.load("papers"), self.load("style").plt
        pages = papers.recorded("monta-fig14.jsonl", "monta-fig14")
        figures = [figure for figure in pages.figures if "what" in figure.labels]
        _, axes = plt.subplots()
        papers.draw_rows(axes, figures, lambda figure: figure.labels["what"], True)
        expected = [value for line in json_lines("monta-fig14.jsonl") if "what" in line.get("parameters", {})
                    for value in (line["summary"]["share"], line["prediction"]["share"])]
        self.assertEqual([bar.get_width() for bar in axes.patches], expected)


if __name__ == "__main__":
    unittest.main(verbosity=1)
