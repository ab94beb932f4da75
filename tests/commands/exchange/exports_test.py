"""usage: exports_test.py PROGRAM

Profiles and records in formats of others, read back by parsers after these formats' documentation."""
import csv
import datetime
import gzip
import io
import json
import pathlib
import re
import tomllib

from program import ROOT, ProgramTest, main, measured, records


class Profiles(ProgramTest):
    """CSV and back is the same profile, every row, point and verdict."""

    def test_round_trip_of_every_cluster(self):
        clusters = sorted(path.stem for path in (ROOT / "configs/clusters").glob("*.toml"))
        clusters.append(str(ROOT / "tests/plots/data/fitted.toml"))
        self.assertGreater(len(clusters), 5)
        for cluster in clusters:
            for flags in ([], ["--per-element"]):
                with self.subTest(cluster=cluster, flags=flags):
                    self.call("export", "csv", cluster, *flags, "-o", "first.csv")
                    self.call("import", "csv-profile", "first.csv", "-o", "first.toml")
                    self.call("export", "csv", "first.toml", *flags, "-o", "second.csv")
                    self.call("import", "csv-profile", "second.csv", "-o", "second.toml")
                    first = pathlib.Path(self.path("first.toml")).read_text()
                    self.assertEqual(first, pathlib.Path(self.path("second.toml")).read_text())
                    self.same_rows(cluster, tomllib.loads(first))
                    self.same_prices(cluster, "first.toml")

    def same_rows(self, cluster, copy):
        path = pathlib.Path(cluster if "/" in cluster else ROOT / f"configs/clusters/{cluster}.toml")
        original = tomllib.loads(path.read_text())
        original.pop("summary", None)  # of `list`, which no profile keeps
        for table, rows in original.items():
            if not isinstance(rows, list):
                given = {}
                if table == "gpu":
                    given = {"grouped_share": rows["gemm_share"], "grouped_tile_s": rows["gemm_tile_s"]}
                self.assertEqual({**given, **rows} if isinstance(rows, dict) else rows, copy.get(table, {}), table)
                continue
            self.assertEqual(len(rows), len(copy[table]), table)
            for row, of_copy in zip(rows, copy[table]):
                self.assertEqual(row, {key: of_copy.get(key, {"algorithm": "direct"}.get(key)) for key in row})

    def same_prices(self, cluster, copy):
        layer = ["--schedule", "fsmoe,tutel", "--batch", "2", "--nearest", "--json"]
        try:
            before = json.loads(self.text("simulate", "--cluster", cluster, *layer))
        except AssertionError:
            return  # it prices no such layer
        after = json.loads(self.text("simulate", "--cluster", self.path(copy), *layer))
        for a, b in zip(before["schedules"], after["schedules"], strict=True):
            self.assertEqual({k: a.get(k) for k in ("forward_s", "backward_s", "bound_s")},
                             {k: b.get(k) for k in ("forward_s", "backward_s", "bound_s")})

    def test_columns_are_si_units_or_elements(self):
        si = list(csv.DictReader(io.StringIO(self.text("export", "csv", "testbed-b"))))
        papers = list(csv.DictReader(io.StringIO(self.text("export", "csv", "testbed-b", "--per-element"))))
        comm = [row for row in si if row["table"] == "comm"]
        self.assertTrue(comm)
        for row, of_elements in zip(si, papers, strict=True):
            if row["table"] == "comm":
                self.assertAlmostEqual(float(row["beta_s_per_byte"]) * 4, float(of_elements["beta_s_per_element"]),
                                       places=20)

    def test_a_file_that_is_read_is_never_written(self):
        copy = self.path("own.toml", (ROOT / "configs/clusters/testbed-b.toml").read_text())
        self.call("export", "csv", "own.toml", "-o", "own.csv")
        path = records(self.folder / "own.jsonl", *CASES)
        before = {name: pathlib.Path(self.path(name)).read_bytes() for name in ("own.toml", "own.csv", "own.jsonl")}
        for out, *words in (("own.toml", "export", "csv", copy), ("own.jsonl", "export", "csv", path),
                            ("own.jsonl", "export", "otava", str(self.folder)), ("own.jsonl", "report", path),
                            ("own.csv", "import", "csv-profile", "own.csv"),
                            ("own.csv", "import", "csv", "own.csv", "--overwrite"),
                            ("own.toml", "export", "chakra", path, "--cluster", "./own.toml")):
            self.assertIn(f"{out}: found a file to write that is read too, expected another",
                          self.refused(*words, "-o", out) if words[0] != "report" else
                          self.call(*words, "-o", out, code=2).stderr.decode())
        self.assertEqual(before, {name: pathlib.Path(self.path(name)).read_bytes() for name in before})

    def test_folders_above_a_file_are_made(self):
        self.call("export", "csv", "testbed-b", "-o", "far/off/b.csv")
        self.call("import", "csv-profile", "far/off/b.csv", "-o", "further/b.toml")
        self.assertTrue(pathlib.Path(self.path("further/b.toml")).is_file())

    def test_a_bad_cell_names_line_and_column(self):
        text = self.text("export", "csv", "testbed-b")
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("comm,"))
        lines[at] = lines[at].replace("inter", "outer").replace("intra", "outer")
        self.path("bad.csv", "\n".join(lines) + "\n")
        said = self.refused("import", "csv-profile", "bad.csv", "-o", "bad.toml")
        self.assertIn(f"bad.csv:{at + 1}: comm.network: found 'outer'", said)
        self.assertFalse(pathlib.Path(self.path("bad.toml")).exists())


CASES = [measured("tutel", (4, 4), 0.010, samples=[0.011, 0.010, 0.009]),
         measured("fsmoe", (3, 2), 0.008, samples=[0.008, 0.0085, 0.0075]), measured("lina", (1, 1), 0, status="oom")]


class Records(ProgramTest):
    def test_csv_has_a_row_a_case(self):
        rows = list(csv.DictReader(io.StringIO(self.text("export", "csv", records(self.folder / "r.jsonl", *CASES)))))
        self.assertEqual([row["key"] for row in rows], ["run/a/tutel", "run/a/fsmoe", "run/a/lina"])
        self.assertEqual(float(rows[0]["summary.total_s"]), 0.010)
        self.assertEqual((rows[2]["status"], rows[2]["summary.total_s"]), ("oom", ""))
        self.assertEqual(rows[0]["experts"], "8")

    def test_no_cell_of_a_csv_is_a_formula(self):
        """Neither texts of records nor their names; numbers are left alone."""
        cases = [measured("fsmoe", (1, 1), 0.1, layer=text, **{"=name": 1, "below": -1.5, "above": "+1.5"})
                 for text in ("=1+1", "+a", "-a", "@a", "'=a", "a=", "'a", '=a,"b"')]
        path = records(self.folder / "r.jsonl", *[{**c, "key": f"k{i}"} for i, c in enumerate(cases)])
        rows = list(csv.DictReader(io.StringIO(self.text("export", "csv", path))))
        self.assertEqual([row["layer"] for row in rows],
                         ["'=1+1", "'+a", "'-a", "'@a", "''=a", "a=", "'a", "'=a,\"b\""])
        self.assertEqual([(row["'=name"], row["below"], row["above"]) for row in rows], [("1", "-1.5", "+1.5")] * 8)

    def test_a_text_that_begins_as_a_formula_comes_back(self):
        text = (ROOT / "configs/clusters/testbed-b.toml").read_text()
        source = re.compile(r'^source = """.*?"""$', re.DOTALL | re.MULTILINE)
        self.assertTrue(source.search(text))
        for said in ("=a", "'=a", "-a"):
            path = self.path("p.toml", source.sub(f'source = "{said}"', text))
            self.call("export", "csv", path, "-o", "p.csv")
            self.call("import", "csv-profile", "p.csv", "-o", "again.toml")
            self.assertEqual(tomllib.loads(self.path_text("again.toml"))["source"], said)

    def test_google_benchmark(self):
        """Keys and types are those of its JSON reporter; the context is what github-action-benchmark requires."""
        path = records(self.folder / "r.jsonl", *CASES)
        one = json.loads(self.text("export", "google-benchmark", path))
        context = one["context"]
        for key, kind in {"date": str, "host_name": str, "executable": str, "num_cpus": int, "mhz_per_cpu": int,
                          "cpu_scaling_enabled": bool, "caches": list, "load_avg": list,
                          "library_build_type": str}.items():
            self.assertIsInstance(context[key], kind, key)
        self.assertEqual(len(one["benchmarks"]), 2, "a case that ran out of memory has no time")
        for row in one["benchmarks"]:
            self.assertEqual(row["run_type"], "iteration", "no aggregates")
            self.assertEqual(row["time_unit"], "ns")
            for key in ("name", "run_name", "repetitions", "repetition_index", "threads", "iterations", "cpu_time"):
                self.assertIn(key, row)
        self.assertAlmostEqual(one["benchmarks"][0]["real_time"], 1e7)
        every = json.loads(self.text("export", "google-benchmark", path, "--samples"))["benchmarks"]
        self.assertEqual([row["repetition_index"] for row in every if row["name"] == "run/a/tutel"], [0, 1, 2])
        self.assertEqual([round(row["real_time"]) for row in every[:3]], [11000000, 10000000, 9000000],
                         "the slowest rank's")

    def test_what_is_no_records_file_is_named(self):
        self.assertIn("nofile.jsonl: found no readable file, expected records",
                      self.refused("export", "csv", "nofile.jsonl"))
        self.assertIn("empty.jsonl: found no run", self.refused("export", "csv", self.path("empty.jsonl", "")))
        self.assertIn("none.jsonl: found a run without cases",
                      self.refused("export", "csv", records(self.folder / "none.jsonl")))

    def packed(self, plain):
        """The file that gzip makes of it, beside it."""
        whole = gzip.compress(pathlib.Path(plain).read_bytes())
        pathlib.Path(f"{plain}.gz").write_bytes(whole)
        return f"{plain}.gz"

    def test_packed_records_are_read_as_plain_ones(self):
        plain = records(self.folder / "r.jsonl", *CASES)
        packed = self.packed(plain)
        for words in (["csv"], ["google-benchmark", "--samples"], ["otava"], ["tutel"],
                      ["plan", "--schedule", "fsmoe"]):
            of_plain = self.text("export", words[0], plain, *words[1:])
            self.assertGreater(len(of_plain), 50)
            self.assertEqual(self.text("export", words[0], packed, *words[1:]).replace(".jsonl.gz", ".jsonl"), of_plain)
        self.call("export", "plan", packed, "--schedule", "fsmoe", "-o", self.path("p.json"))
        plan = self.packed(self.path("p.json"))
        self.assertEqual(self.text("export", "plan", plan), self.path_text("p.json"))
        self.assertEqual(self.text("simulate", "--plan", plan).replace(".json.gz", ".json"),
                         self.text("simulate", "--plan", self.path("p.json")))
        said = self.text("compare", plain, packed)
        self.assertEqual(said.replace(".jsonl.gz", ".jsonl"), self.text("compare", plain, plain))

    def test_packed_records_are_found_in_folders(self):
        (self.folder / "folder").mkdir()
        plain = records(self.folder / "folder" / "r.jsonl", *CASES)
        alone = self.text("export", "otava", self.folder / "folder")
        self.packed(plain)
        pathlib.Path(plain).unlink()
        self.assertEqual(self.text("export", "otava", self.folder / "folder"), alone)

    def test_half_of_packed_records_is_refused(self):
        packed = pathlib.Path(self.packed(records(self.folder / "r.jsonl", *CASES)))
        packed.write_bytes(packed.read_bytes()[:200])
        for words in (["export", "csv", packed], ["fit", "--records", packed], ["compare", packed, packed]):
            said = self.refused(*words)
            self.assertIn("r.jsonl.gz: found a file that gzip cannot unpack", said)
            self.assertIn("expected records", said)

    def test_cases_whose_names_are_one_for_otava_are_refused(self):
        alike = [dict(measured("tutel", (4, 4), 0.010), key=key) for key in ("run/a b/tutel", "run/a:b/tutel")]
        said = self.refused("export", "otava", records(self.folder / "r.jsonl", *alike))
        self.assertIn("r.jsonl: found the cases 'run/a b/tutel' and 'run/a:b/tutel', both run.a.b.tutel", said)

    def history(self):
        (self.folder / "history").mkdir()
        for day, seconds in ((3, 0.009), (1, 0.010), (2, 0.011)):
            cases = [measured("tutel", (4, 4), seconds)] + ([measured("fsmoe", (3, 2), 0.008)] if day > 1 else [])
            records(self.folder / f"history/{day}.jsonl", *cases, started=f"2025-01-0{day}T12:00:00Z",
                    commit=f"aaa{day}")
        return str(self.folder / "history")

    def test_otava_csv_has_a_row_a_run_by_time(self):
        done = self.call("export", "otava", self.history())
        rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
        self.assertEqual([row["commit"] for row in rows], ["aaa1", "aaa2", "aaa3"])
        self.assertEqual([float(row["run.a.tutel"]) for row in rows], [0.010, 0.011, 0.009])
        self.assertNotIn("run.a.fsmoe", rows[0], "one of the runs lacks it")
        self.assertIn("1 cases that some of the 3 runs lack", done.stderr.decode())
        for row in rows:
            datetime.datetime.fromisoformat(row["time"].replace("Z", "+00:00"))

    def test_otava_json_is_what_its_importer_documents(self):
        runs = json.loads(self.text("export", "otava-json", self.history()))
        first = datetime.datetime(2025, 1, 1, 12, tzinfo=datetime.timezone.utc)
        self.assertEqual([run["timestamp"] for run in runs], [int(first.timestamp()) + 86400 * i for i in range(3)])
        for run in runs:
            self.assertEqual([set(metric) for metric in run["metrics"]], [{"name", "value"}])
            self.assertTrue(all(isinstance(value, str) for value in run["attributes"].values()))

    def test_flags_of_other_formats_are_refused(self):
        path = records(self.folder / "r.jsonl", *CASES)
        for words in (["otava", path, "--samples"], ["csv", path, "--per-element"], ["tutel", path, "--cluster", "x"],
                      ["google-benchmark", path, "--only", "a"], ["parquet", path]):
            self.refused("export", *words)


if __name__ == "__main__":
    main()
