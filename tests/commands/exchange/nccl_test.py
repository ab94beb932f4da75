"""usage: nccl_test.py PROGRAM

What nccl-tests prints, as records: what comes out of `fit` is the line that went in."""
import json
import pathlib
import re

from program import SIZES, ProgramTest, cases_of, main, seconds

PROGRAMS = {"allreduce": "all_reduce_perf", "alltoall": "alltoall_perf", "allgather": "all_gather_perf",
            "reducescatter": "reduce_scatter_perf", "sendrecv": "sendrecv_perf"}


def shown(microseconds):
    """As nccl-tests prints a time: seven wide, two digits behind the point or fewer."""
    whole = len(str(int(microseconds))) if microseconds >= 1 else 0
    return f"{microseconds:7.{2 if whole < 5 else 1 if whole < 6 else 0}f}"


def bus_share(op, ranks):
    """busbw over algbw, as nccl-tests' page on performance defines it."""
    return {"allreduce": 2 * (ranks - 1) / ranks, "sendrecv": 1}.get(op, (ranks - 1) / ranks)


def nccl_text(op, alpha, beta, hosts=("n1",) * 4 + ("n2",) * 4, wrong=(), named=True, group="Group  0 "):
    """What nccl-tests prints; in place takes twice as long."""
    lines = ["# nccl-tests version 2.17.1 nccl-headers=22800 nccl-library=22800"]
    if named:
        lines.append(f"# Collective test starting: {PROGRAMS[op]}")
    lines += ["# nThread 1 nGpus 1 minBytes 65536 maxBytes 67108864 step: 2(factor) warmup iters: 1 iters: 20 "
              "agg iters: 1 validation: 1 graph: 0 unalign: 0", "#", "# Using devices"]
    lines += [f"#  Rank {i:2} {group}Pid {4000 + i:6} on {host:>10} device {i % 4:2} [0000:{i:02}:00] GPU"
              for i, host in enumerate(hosts)]
    lines += ["#", "#                                                              out-of-place                       "
              "in-place          ",
              "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   "
              "algbw   busbw  #wrong ",
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  "
              "(GB/s)         "]
    for size in SIZES:
        t = seconds(alpha, beta, size) * 1e6
        bad = 7 if size in wrong else 0
        redop = "sum" if op in ("allreduce", "reducescatter") else "none"
        share = bus_share(op, len(hosts))
        columns = [f"  {shown(time)}  {size / time / 1e3:6.2f}  {share * size / time / 1e3:6.2f}  {bad:6}"
                   for time in (t, 2 * t)]
        lines.append(f"{size:12}  {size // 4:12}     float  {redop:>6}      -1{columns[0]}{columns[1]}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 41.7 ", "#",
              f"# Collective test concluded: {PROGRAMS[op]}", ""]
    return "\n".join(lines)


def nccl_json(op, alpha, beta):
    rows = []
    for size in SIZES:
        t = seconds(alpha, beta, size) * 1e6
        timed = [{"time": time, "alg_bw": size / time / 1e3, "bus_bw": bus_share(op, 8) * size / time / 1e3,
                  "nwrong": 0.0} for time in (t, 2 * t)]
        rows.append({"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
                     "out_of_place": timed[0], "in_place": timed[1], "actual_iterations": 20, "experiment_name": ""})
    devices = [{"rank": i, "group": 0, "pid": i, "hostname": "n1", "device": i} for i in range(8)]
    return json.dumps({"version": 2, "start_time": "", "args": [f"./build/{PROGRAMS[op]}", "-J", "o"], "env": [],
                       "nccl_version": 22800, "config": {"nthreads": 1, "ngpus": 1, "devices": devices},
                       "results": rows, "end_time": "", "errors": []})


class NcclTests(ProgramTest):
    def check(self, row, alpha, beta):
        self.assertAlmostEqual(row["alpha_s"], alpha, delta=0.01 * alpha)
        self.assertAlmostEqual(row["beta"], beta, delta=0.001 * beta)

    def test_fit_finds_the_lines_of_several_files(self):
        lines = {"allreduce": (30e-6, 9e-11), "alltoall": (45e-6, 3e-10), "allgather": (20e-6, 5e-11),
                 "reducescatter": (22e-6, 6e-11), "sendrecv": (12e-6, 4e-11)}
        files = []
        for op, (alpha, beta) in lines.items():
            # Of all eight ranks, and inside a node.
            files += [self.path(f"{op}.txt", nccl_text(op, alpha, beta)),
                      self.path(f"{op}-inside.txt", nccl_text(op, alpha / 2, beta / 4, hosts=("n1",) * 4))]
        said = self.said("import", "nccl-tests", *files, "-o", "r.jsonl")
        self.assertIn("alltoall over 8 ranks, inter, 11 sizes; left out: 0 with wrong results, 0 without a time, "
                      "0 unreadable", said)
        self.assertIn("110 cases of 10 operations and groups, of 2 nodes x 4 ranks", said)
        rows = self.fitted(self.path("r.jsonl"))
        for op, (alpha, beta) in lines.items():
            ranks = {True: 2, False: 8}[op == "sendrecv"]  # a pair, whatever ranks do so beside it
            self.check(rows[f"{op} inter {ranks}"], alpha, beta)
            self.check(rows[f"{op} intra {min(ranks, 4)}"], alpha / 2, beta / 4)

    def test_a_layer_is_planned_on_what_was_imported(self):
        lines = {"alltoall": ("n1", "n2"), "allreduce": ("n1", "n2"), "allgather": ("n1", "n1"),
                 "reducescatter": ("n1", "n1")}
        files = [self.path(f"{op}.txt", nccl_text(op, 2e-5, 1e-10, hosts=hosts)) for op, hosts in lines.items()]
        self.call("import", "nccl-tests", *files, "-o", "r.jsonl", "--cluster", "mine")
        gemm = self.path("gemm.csv", "op,dtype,flops,seconds\ngemm,float32,1e9,2e-5\ngemm,float32,2e9,3e-5\n")
        self.call("import", "csv", gemm, "-o", "g.jsonl", "--cluster", "mine", "--nodes", 2, "--ranks-per-node", 2)
        self.call("fit", "--records", "r.jsonl", "g.jsonl", "--out", "mine.toml")
        profile = pathlib.Path(self.path("mine.toml")).read_text()
        source = next(line for line in profile.splitlines() if line.startswith("source"))
        self.assertRegex(source, "fitted from r.jsonl, imported [^ ]* from nccl-tests; fitted from g.jsonl, imported "
                                 "[^ ]* from csv")
        document = json.loads(self.text("simulate", "--cluster", "./mine.toml", "--schedule", "fsmoe", "--json"))
        self.assertEqual(document["status"], "ok")
        self.assertEqual(document["cluster"], "mine-fitted")

    def test_logs_alone_lead_to_an_answer(self):
        two, one = ("n1",) * 8 + ("n2",) * 8, ("n1",) * 8
        log = "\n".join(nccl_text(op, 3e-5, beta, hosts=hosts) for op, beta, hosts in
                        (("allreduce", 3.9e-11, two), ("allreduce", 5e-12, one), ("alltoall", 1.2e-11, two),
                         ("alltoall", 4e-12, one)))
        said = self.said("import", "nccl-tests", self.path("job.log", log), "-o", "r.jsonl", "--cluster", "mine")
        self.assertIn("fit --compute-from h100-8", said)
        self.call("fit", "--records", "r.jsonl", "--out", "without.toml")
        plan = ["tune", "--no-verify", "--model", "qwen3-30b-a3b", "--shape", "auto", "--pp", 1, "--cluster"]
        self.assertIn("no gemm row for bfloat16; `moetune fit --compute-from h100-8` takes those of a preset",
                      self.refused(*plan, "without.toml"))

        fit = ["fit", "--records", "r.jsonl", "--compute-from", "h100-8", "--out", "mine.toml"]
        self.assertIn("not measured: gemm bfloat16, gemm float16, copy, [gpu] from h100-8", self.text(*fit))
        self.assertEqual(json.loads(self.text(*fit, "--json"))["not_measured"],
                         "gemm bfloat16, gemm float16, copy, [gpu] from h100-8")
        tables = re.split(r"\n(?=\[)", self.path_text("mine.toml"))
        origins = {re.match(r"\[+(\w+)", table)[1]: 'origin = "from h100-8"' in table for table in tables[1:]}
        self.assertEqual(origins, {"topology": False, "comm": False, "compute": True, "gpu": True, "attention": False})
        gemm = next(table for table in tables[1:] if "bfloat16" in table)
        self.assertIn("beta_s_per_flop = 1.3655388207e-15", gemm)  # as in configs/clusters/h100-8.toml

        self.assertIn("prices: gemm bfloat16, gemm float16, copy, [gpu] from h100-8; ", self.text(*plan, "mine.toml"))
        answer = json.loads(self.text(*plan, "mine.toml", "--json"))
        self.assertIn("modelled: computations by shape, as H100 SXM (80 GB) computes them ([gpu], from h100-8)",
                      answer["notes"])
        self.assertEqual(answer["cluster"], "mine-fitted")

    def test_ranks_that_shared_a_gpu_make_no_network(self):
        self.call("import", "nccl-tests", self.path("t.txt", nccl_text("alltoall", 2e-5, 1e-10)), "-o", "r.jsonl",
                  "--cluster", "mine")
        shared = self.path_text("r.jsonl").replace('"backend":"nccl"', '"backend":"nccl-one-gpu"')
        self.path("r.jsonl", shared)
        self.assertIn("r.jsonl: found only cases whose ranks shared one GPU, expected ranks with a GPU each",
                      self.refused("fit", "--records", "r.jsonl", "--out", "mine.toml"))
        gemms = "".join(f"gemm,bfloat16,{flops:g},{1e-5 + flops * 1e-15:.9g}\n" for flops in (1e9, 2e9, 4e9, 8e9))
        self.call("import", "csv", self.path("g.csv", "op,dtype,flops,seconds\n" + gemms), "-o", "g.jsonl", "--cluster",
                  "mine", "--nodes", 2, "--ranks-per-node", 4)
        cases = [line for line in self.path_text("g.jsonl").splitlines() if '"kind":"case"' in line]
        end = shared.rindex('{"kind":"end"')
        self.path("both.jsonl", shared[:end] + "\n".join(cases) + "\n" + shared[end:])
        fit = ["fit", "--records", "both.jsonl", "--out", "mine.toml"]
        self.assertIn("skipped 11 cases, because their ranks shared one GPU", self.said(*fit))
        profile = self.path_text("mine.toml")
        self.assertNotIn("[[comm]]", profile)
        self.assertIn("[[compute]]", profile)

        self.call(*fit, "--network-from", "h100-8", "--name", "h100-measured")
        profile = self.path_text("mine.toml")
        self.assertEqual(profile.count("[[comm]]"), profile.count('network = "intra"'))
        self.assertGreater(profile.count("[[comm]]"), 3)
        self.assertRegex(profile, r"nodes = 1\nranks_per_node = 8\n")
        gemm = next(table for table in re.split(r"\n(?=\[)", profile) if 'dtype = "bfloat16"' in table)
        self.assertRegex(gemm, "beta_s_per_flop = (1e-15|1.0+[0-9]*e-15|9.99+[0-9]*e-16)")
        self.assertNotIn("origin", gemm)
        plan = ["tune", "--no-verify", "--model", "qwen3-30b-a3b", "--pp", 1, "--cluster", "mine.toml"]
        self.assertIn("from h100-8", self.text(*plan))
        self.assertIn("--network-from", self.refused(*fit, "--network-from", "h100-8", "--compute-from", "h100-8"))

    def test_compute_from_a_cluster_that_has_nothing_to_take(self):
        self.call("import", "nccl-tests", self.path("t.txt", nccl_text("alltoall", 2e-5, 1e-10)), "-o", "r.jsonl")
        fit = ["fit", "--records", "r.jsonl", "--out", "mine.toml", "--compute-from"]
        self.call(*fit[:-1])
        self.assertIn("--compute-from: found imported-fitted, expected a profile with rows of computations that",
                      self.refused("fit", "--records", "r.jsonl", "--out", "other.toml", "--compute-from", "mine.toml"))
        self.assertIn("cluster: found 'h100', expected a file or one of", self.refused(*fit, "h100"))
        self.assertIn("mine.toml", self.refused(*fit, "mine.toml"))

    def test_fit_takes_records_of_one_cluster_together(self):
        self.call("import", "nccl-tests", self.path("t.txt", nccl_text("alltoall", 2e-5, 1e-10)), "-o", "r.jsonl")
        gemm = self.path("gemm.csv", "op,dtype,flops,seconds\ngemm,float32,1e9,2e-5\ngemm,float32,2e9,3e-5\n")
        self.call("import", "csv", gemm, "-o", "g.jsonl", "--cluster", "other", "--nodes", 1, "--ranks-per-node", 4)
        self.assertRegex(self.refused("fit", "--records", "r.jsonl", "g.jsonl", "--out", "mine.toml"),
                         r"g.jsonl:\d+: cluster: found other \(1 x 4\), expected imported \(2 x 4\) as in the cases")
        faster = self.path("f.txt", nccl_text("alltoall", 1e-5, 5e-11))  # the same sizes, of another cluster
        self.call("import", "nccl-tests", faster, "-o", "f.jsonl", "--cluster", "other")
        self.assertRegex(self.refused("fit", "--records", "r.jsonl", "f.jsonl", "--out", "mine.toml"),
                         r"f.jsonl:\d+: cluster: found other")
        empty = self.path("e.jsonl", pathlib.Path(self.path("r.jsonl")).read_text().splitlines()[0] + "\n")
        self.assertIn("e.jsonl: found no case of an operation",
                      self.refused("fit", "--records", "r.jsonl", empty, "--out", "mine.toml"))
        self.assertFalse(pathlib.Path(self.path("mine.toml")).exists())

    def test_in_place_and_json(self):
        path = self.path("t.txt", nccl_text("allreduce", 3e-5, 1e-10))
        self.call("import", "nccl-tests", path, "-o", "in.jsonl", "--in-place")
        self.check(self.fitted(self.path("in.jsonl"))["allreduce inter 8"], 6e-5, 2e-10)
        self.call("import", "nccl-tests", self.path("t.json", nccl_json("allgather", 3e-5, 1e-10)), "-o", "j.jsonl")
        self.check(self.fitted(self.path("j.jsonl"))["allgather intra 8"], 3e-5, 1e-10)

    def test_what_the_file_lacks_is_asked_for(self):
        path = self.path("t.txt", nccl_text("alltoall", 3e-5, 1e-10, named=False, hosts=("n1",) * 8 + ("n2",) * 8))
        self.assertIn("--op: found none", self.refused("import", "nccl-tests", path, "-o", "r.jsonl"))
        bare = self.path("bare.txt", "\n".join(line for line in pathlib.Path(path).read_text().splitlines()
                                               if "Rank" not in line))
        self.assertIn("--ranks: found no device",
                      self.refused("import", "nccl-tests", bare, "--op", "alltoall", "-o", "r.jsonl"))
        self.call("import", "nccl-tests", bare, "--op", "alltoall", "--ranks", 16, "--network", "inter", "--nodes", 2,
                  "--ranks-per-node", 8, "-o", "r.jsonl")
        self.check(self.fitted(self.path("r.jsonl"))["alltoall inter 16"], 3e-5, 1e-10)

    def test_older_programs_print_no_groups_and_name_no_test(self):
        path = self.path("all_gather_perf.log", nccl_text("allgather", 3e-5, 1e-10, named=False, group=""))
        self.call("import", "nccl-tests", path, "-o", "r.jsonl")
        self.check(self.fitted(self.path("r.jsonl"))["allgather inter 8"], 3e-5, 1e-10)

    def test_wrong_results_are_left_out(self):
        path = self.path("t.txt", nccl_text("allreduce", 3e-5, 1e-10, wrong=SIZES[3:5]))
        said = self.said("import", "nccl-tests", path, "-o", "r.jsonl")
        self.assertIn("9 sizes; left out: 2 with wrong results", said)

    def imported(self, name, text, *flags):
        """What the import said, and its cases by key."""
        said = self.said("import", "nccl-tests", self.path(name, text), *flags, "-o", "r.jsonl", "--overwrite")
        return said, cases_of(self.path("r.jsonl"))

    def test_rows_that_are_torn_or_have_more_words_are_counted_and_left_out(self):
        lines = nccl_text("alltoall", 3e-5, 1e-10).splitlines()
        at = next(i for i, line in enumerate(lines) if line.split()[:1] == [str(SIZES[0])])
        lines[at] += " node-3: NCCL INFO comm"
        lines[at + 1] = lines[at + 1][:60]
        words = lines[at + 2].split()
        lines[at + 2] = " ".join([*words[:5], "N/A", "N/A", "N/A", *words[8:]])
        lines[at + 3] = " ".join(words[:8])  # fits the columns, but its bandwidth is of another size
        lines.insert(at + 4, "4096 NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC 3 4 5 6 7 8")
        said, cases = self.imported("t.txt", "\n".join(lines))
        self.assertIn("7 sizes; left out: 0 with wrong results, 1 without a time, 4 unreadable", said)
        for key, case in cases.items():
            self.assertAlmostEqual(case["summary"]["median_s"], seconds(3e-5, 1e-10, case["parameters"]["bytes"]),
                                   delta=1e-7, msg=key)

    def test_an_error_in_floats_is_no_count_of_wrong_results(self):
        text = nccl_text("allreduce", 3e-5, 1e-10, wrong=SIZES).replace("#wrong", " error")
        said, _ = self.imported("t.txt", re.sub(r"(?<=[0-9] )      7(?= |$)", "  4e-07", text, flags=re.M))
        self.assertIn("11 sizes; left out: 0 with wrong results", said)

    def test_a_log_of_several_programs(self):
        texts = [nccl_text("allreduce", 3e-5, 1e-10), nccl_text("alltoall", 5e-5, 2e-10, hosts=("n1",) * 4)]
        said, cases = self.imported("log.txt", "\n".join(texts))
        self.assertIn("allreduce over 8 ranks, inter, 11 sizes", said)
        self.assertIn("alltoall over 4 ranks, intra, 11 sizes", said)
        self.assertEqual(len(cases), 22)
        unnamed = [nccl_text("allreduce", 3e-5, 1e-10, named=False) for _ in range(2)]
        said, cases = self.imported("log.txt", "\n".join(unnamed), "--op", "allreduce")
        self.assertEqual({len(case["samples"]["seconds"]) for case in cases.values()}, {2})
        self.assertEqual({case["parameters"]["ranks"] for case in cases.values()}, {8})

    def test_json_lists_one_device_a_process(self):
        document = json.loads(nccl_json("allreduce", 3e-5, 1e-10))
        document["config"] = {"nthreads": 2, "ngpus": 4, "devices": [
            {"rank": 8 * i, "group": 0, "pid": i, "hostname": f"n{i}", "device": 0} for i in range(2)]}
        for row in document["results"]:
            row["out_of_place"]["bus_bw"] = bus_share("allreduce", 16) * row["out_of_place"]["alg_bw"]
        said, _ = self.imported("t.json", json.dumps(document))
        self.assertIn("allreduce over 16 ranks, inter, 11 sizes", said)
        self.assertIn("of 2 nodes x 8 ranks", said)

    def test_json_of_another_shape_is_refused_in_a_line(self):
        document = json.loads(nccl_json("allreduce", 3e-5, 1e-10))
        for change in ({"results": 3}, {"results": [1, None]}, {"config": []}, {"config": {"devices": "n1"}},
                       {"config": {"devices": [{"hostname": 7}]}}, {"results": [{"out_of_place": [1]}]},
                       {"config": {"ngpus": 1e12, "devices": [{}]}}):
            path = self.path("x.json", json.dumps({**document, **change}))
            self.assertIn("x.json", self.refused("import", "nccl-tests", path, "-o", "r.jsonl"))

    def test_a_program_of_a_longer_name_is_another(self):
        text = nccl_text("alltoall", 3e-5, 1e-10).replace("alltoall_perf", "alltoallv_perf")
        path = self.path("alltoall.txt", text)
        self.assertIn("found the output of alltoallv_perf", self.refused("import", "nccl-tests", path, "-o", "r.jsonl"))

    def test_records_say_what_the_wire_carries(self):
        _, cases = self.imported("t.txt", nccl_text("allreduce", 3e-5, 1e-10))
        for case in cases.values():
            self.assertAlmostEqual(case["parameters"]["wire_bytes"], case["parameters"]["bytes"] * 2 * 7 / 8)

    def test_mixed_programs_of_one_rank_are_no_group(self):
        text = nccl_text("allreduce", 3e-5, 1e-10, hosts=("n1",))
        mixed = "\n".join(line for pair in zip(text.splitlines(), text.replace("on         n1", "on         n2")
                                               .splitlines()) for line in pair)
        self.assertIn("found rank 0 2 times",
                      self.refused("import", "nccl-tests", self.path("t.txt", mixed), "-o", "r.jsonl"))

    def test_mixed_programs_of_one_node_each_are_of_that_node(self):
        text = nccl_text("allreduce", 3e-5, 1e-10, hosts=("n1",) * 4)
        mixed = "\n".join(line for pair in zip(text.splitlines(), text.replace("on         n1", "on         n2")
                                               .splitlines()) for line in pair)
        said, cases = self.imported("t.txt", mixed)
        self.assertIn("allreduce over 4 ranks, intra, 22 sizes", said)
        self.assertEqual({len(case["samples"]["seconds"]) for case in cases.values()}, {2})

    def test_a_list_of_ranks_with_a_gap_is_refused(self):
        text = nccl_text("allreduce", 3e-5, 1e-10)
        cut = re.sub(r"(#  Rank  2 )(.*\n)*?(#  Rank  7 )", r"#  ...\n\3", text)
        self.assertEqual(cut.count("#  Rank"), 3)
        path = self.path("t.txt", cut)
        self.assertIn("found rank 7 in the list of devices where rank 2 was expected",
                      self.refused("import", "nccl-tests", path, "-o", "r.jsonl"))
        said, _ = self.imported("t.txt", cut, "--ranks", 8, "--nodes", 2, "--ranks-per-node", 4, "--network", "inter")
        self.assertIn("allreduce over 8 ranks, inter, 11 sizes", said)

    def test_the_bandwidths_tell_another_number_of_ranks_or_operation(self):
        text = nccl_text("allreduce", 3e-5, 1e-10)
        self.assertRegex(self.refused("import", "nccl-tests", self.path("t.txt", text), "--ranks", 4, "-o", "r.jsonl"),
                         "found busbw 1.7[45][0-9]* times algbw .*expected 1.5 times: allreduce over 4 ranks")
        mislabelled = text.replace("all_reduce_perf", "alltoall_perf")
        self.assertRegex(self.refused("import", "nccl-tests", self.path("t.txt", mislabelled), "-o", "r.jsonl"),
                         "found busbw 1.7[45][0-9]* times algbw .*expected 0.875 times: alltoall over 8 ranks")

    def test_small_bandwidths_do_not_hide_another_number_of_ranks(self):
        text = nccl_text("allreduce", 3e-2, 1e-10)  # all but the largest sizes print a bandwidth below 0.1
        self.assertRegex(self.refused("import", "nccl-tests", self.path("t.txt", text), "--ranks", 4, "-o", "r.jsonl"),
                         "expected 1.5 times: allreduce over 4 ranks")

    def test_errors_of_old_versions_are_wrong_results(self):
        text = nccl_text("allgather", 3e-5, 1e-10, wrong=SIZES[3:5], group="").replace("#wrong", " error")
        for count, error in (("0", "0e+00"), ("7", "1e+00")):
            text = re.sub(rf"(?<=[0-9] )      {count}(?= |$)", f"  {error}", text, flags=re.M)
        said, cases = self.imported("t.txt", text.replace(": 0 OK", ": 4 FAILED"))
        self.assertIn("9 sizes; left out: 2 with wrong results", said)
        self.assertNotIn(f"op/allgather/inter/8/{SIZES[3]}", cases)
        unknown = nccl_text("allgather", 3e-5, 1e-10).replace(": 0 OK", ": 4 FAILED")
        self.assertIn("FAILED", self.refused("import", "nccl-tests", self.path("t.txt", unknown), "-o", "r.jsonl"))

    def test_programs_of_no_row_are_left_out_of_a_log(self):
        broadcast = nccl_text("sendrecv", 9e-5, 5e-10).replace("sendrecv_perf", "broadcast_perf")
        log = "\n".join([nccl_text("allreduce", 3e-5, 1e-10), broadcast, nccl_text("alltoall", 5e-5, 2e-10)])
        for flags in ((), ("--op", "allreduce")):  # --op is of programs without a name
            said, cases = self.imported("log.txt", log, *flags)
            self.assertIn("log.txt: found the output of broadcast_perf, expected one of an operation", said)
            self.assertEqual({case["parameters"]["op"] for case in cases.values()}, {"allreduce", "alltoall"})
            for key, case in cases.items():
                alpha, beta = {"allreduce": (3e-5, 1e-10), "alltoall": (5e-5, 2e-10)}[case["parameters"]["op"]]
                self.assertAlmostEqual(case["summary"]["median_s"],
                                       seconds(alpha, beta, case["parameters"]["bytes"]), delta=1e-7, msg=key)

    def test_prefixes_of_launchers(self):
        lines = nccl_text("allreduce", 3e-5, 1e-10).splitlines()
        _, plain = self.imported("plain.txt", "\n".join(lines))
        day = "Sat Jan  5 10:11:{0:02} 2030"
        prefixes = {
            "mpirun": "[1,0]<stdout>:", "mpirun-5": "[prterun-n1-77@1,0]<stdout>: ", "mpirun-time": day + "<stdout>:",
            "mpirun-both": day + "[1,0]<stdout>:", "srun": "0: ", "srun-wide": "  0: ", "hydra": "[0] ",
            "torchrun": "[default0]:", "torchrun-rank": "[rank0]: ", "compose": "worker-1  | ",
            "compose-colour": "\x1b[36mworker-1  | \x1b[0m", "kubectl": "2030-01-02T03:04:{0:02}.678901234Z ",
            "zone": "2030-01-02T03:04:{0:02}.5+01:00 ", "kubectl-prefix": "[pod/launcher-x7/main] ",
            "kubectl-mpirun": "2030-01-02T03:04:{0:02}.{0}1Z [1,0]<stdout>:", "ray": "(run pid=71, ip=10.0.0.1) ",
            "journal": "Jan  5 10:11:{0:02} n1 job[41]: ", "ts": "Jan 15 10:11:{0:02} ",
            "python": "2030-01-02 03:04:{0:02},123 ",
            "bracket": "[2030-01-02 03:04:{0:02}] ", "clock": "03:04:{0:02} ", "pdsh": "n1: ", "indent": "    ",
            "all": "\x1b[32m2030-01-02T03:04:{0:02}Z worker-1  | [1,0]<stdout>:[default0]:\x1b[0m"}
        for name, prefix in prefixes.items():
            for end in ("", "\r", "\x1b[0m"):
                text = "\n".join(prefix.format(i % 60) + line + end for i, line in enumerate(lines))
                said, cases = self.imported(f"{name}.txt", text)
                self.assertIn("allreduce over 8 ranks, inter, 11 sizes; left out: 0 with wrong results, 0 without a "
                              "time, 0 unreadable", said, name)
                self.assertEqual({k: c["samples"] for k, c in cases.items()},
                                 {k: c["samples"] for k, c in plain.items()}, name)

    def test_mixed_lines_of_several_sources_are_told_apart(self):
        texts = {"[1,0]<stdout>:": nccl_text("allreduce", 3e-5, 1e-10),
                 "[2,0]<stdout>:": nccl_text("alltoall", 5e-5, 2e-10, hosts=("n1",) * 4)}
        mixed = "\n".join(prefix + line for lines in zip(*(text.splitlines() for text in texts.values()))
                          for prefix, line in zip(texts, lines))
        said, cases = self.imported("t.txt", mixed)
        self.assertIn("allreduce over 8 ranks, inter, 11 sizes", said)
        self.assertIn("alltoall over 4 ranks, intra, 11 sizes", said)
        self.assertEqual(len(cases), 22)

    def test_a_column_of_timestamps(self):
        lines = nccl_text("allreduce", 3e-5, 1e-10).splitlines()
        lines = [line.rstrip() + (" timestamp" if " size " in line else " 2030-01-02 03:04:05" if
                                  line[:1] == " " else "") for line in lines]
        for prefix in ("", "0: ", "2030-01-02T03:04:05Z "):
            said, _ = self.imported("t.txt", "\n".join(prefix + line for line in lines))
            self.assertIn("11 sizes; left out: 0 with wrong results, 0 without a time, 0 unreadable", said)

    def test_another_file_is_refused(self):
        for name, text in {"empty.txt": "", "log.txt": "hello\nworld 1 2 3\n", "x.json": "{}"}.items():
            said = self.refused("import", "nccl-tests", self.path(name, text), "-o", "r.jsonl")
            self.assertIn(f"{name}: found no out-of-place time", said)
        self.refused("import", "nccl-tests", self.path("none.txt"), "-o", "r.jsonl")
        self.refused("import", "nccl-tests", self.path("t.txt", nccl_text("allreduce", 3e-5, 1e-10)))


if __name__ == "__main__":
    main()
