"""usage: imports_test.py PROGRAM

Other people's measurements as records: what comes out of `fit` is the line that went in."""
import gzip
import json
import pathlib
import shutil

from program import DATA, SIZES, ProgramTest, cases_of, main, seconds


class Samples(ProgramTest):
    def test_csv(self):
        lines = ["# made up", "op,network,ranks,bytes,seconds,dtype,flops"]
        for size in SIZES:
            lines.append(f"alltoall,inter,8,{size},{seconds(4e-5, 2e-10, size)!r},,")
            lines.append(f"gemm,,,,{seconds(1e-5, 1e-14, size * 1e4)!r},bfloat16,{size * 1e4}")
        path = self.path("s.csv", "\n".join(lines) + "\n")
        self.call("import", "csv", path, "--nodes", 8, "--ranks-per-node", 4, "-o", "r.jsonl")
        rows = self.fitted(self.path("r.jsonl"))
        self.assertAlmostEqual(rows["alltoall inter 8"]["alpha_s"], 4e-5, places=10)
        self.assertAlmostEqual(rows["gemm bfloat16"]["beta"], 1e-14, delta=1e-19)

    def test_a_byte_order_mark_is_passed_over(self):
        path = self.path("s.csv", "\ufeffop,network,ranks,bytes,seconds\nalltoall,inter,8,1,1\n")
        self.call("import", "csv", path, "--nodes", 2, "--ranks-per-node", 4, "-o", "r.jsonl")

    def test_ends_of_lines(self):
        rows = ["op,network,ranks,bytes,seconds", "# a comment", "", 'alltoall,inter,"8",1024,1',
                "alltoall,inter,8,2048,2"]
        for end in ("\n", "\r\n", "\r"):
            path = pathlib.Path(self.path("s.csv"))
            path.write_bytes(end.join(rows).encode())
            said = self.said("import", "csv", path, "--nodes", 2, "--ranks-per-node", 4, "-o", "r.jsonl", "--overwrite")
            self.assertIn("csv: 2 samples", said)
            self.assertEqual(len(cases_of(self.path("r.jsonl"))), 2)
            path.write_bytes(end.join(rows + ["alltoall,inter,8,1,fast"]).encode())
            self.assertIn("s.csv:6: seconds: found 'fast'", self.refused(
                "import", "csv", path, "--nodes", 2, "--ranks-per-node", 4, "-o", "r2.jsonl"))

    def test_two_columns_of_one_name_are_refused(self):
        path = self.path("s.csv", "op,network,ranks,bytes,seconds,bytes\nalltoall,inter,8,1,1,2\n")
        self.assertIn("s.csv:1: found several columns of the name 'bytes'", self.refused(
            "import", "csv", path, "--nodes", 2, "--ranks-per-node", 4, "-o", "r.jsonl"))

    def test_bad_rows_name_their_line(self):
        head = "op,network,ranks,bytes,seconds\n"
        for row, said in {"dance,inter,8,1,1\n": "s.csv:2: op: found 'dance'",
                          "alltoall,outer,8,1,1\n": "s.csv:2: network: found 'outer'",
                          "alltoall,inter,8,1\n": "s.csv:2: found 4 cells, expected 5",
                          "alltoall,inter,8,1,fast\n": "s.csv:2: seconds: found 'fast'",
                          "alltoall,inter,1,1,1\n": "s.csv:2: ranks: found '1'",
                          "alltoall,inter,2.9,1,1\n": "s.csv:2: ranks: found '2.9', expected a whole number",
                          "alltoall,inter,1000000000000,1,1\n": "s.csv:2: ranks: found '1000000000000'",
                          '"alltoall,inter': "s.csv:2: found a quote without an end"}.items():
            self.assertIn(said, self.refused("import", "csv", self.path("s.csv", head + row), "--nodes", 2,
                                             "--ranks-per-node", 4, "-o", "r.jsonl"))
        path = self.path("s.csv", head + "alltoall,inter,8,1,1\n")
        self.assertIn("--nodes", self.refused("import", "csv", path, "-o", "r.jsonl"))
        self.assertIn("--nodes: found 1 nodes x 4 ranks", self.refused(
            "import", "csv", path, "--nodes", 1, "--ranks-per-node", 4, "-o", "r.jsonl"))


class Reading(ProgramTest):
    """Faults of files that others wrote."""
    CLUSTER = ("--nodes", 1, "--ranks-per-node", 2, "-o", "r.jsonl", "--overwrite")

    def trace(self, name=b"f", duration=b"1", end=b"]}", start=b'{"traceEvents": ['):
        events = []
        for i, m in enumerate((512, 1024, 2048, 4096)):
            events += [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": i * 1000, "dur": 5, "args": {
                "External id": i, "Input Dims": [[m, 1024], [1024, 1024]], "Input type": ["c10::BFloat16"] * 2}},
                       {"ph": "X", "cat": "kernel", "name": "nvjet_tst", "ts": i * 1000 + 9, "dur": 5 + m * 4e-2,
                        "args": {"External id": i, "stream": 7}}]
        last = b'{"ph": "X", "cat": "python_function", "name": "' + name + b'", "ts": 1, "dur": ' + duration + b"}"
        path = self.folder / "t.json"
        path.write_bytes(start + b", ".join([*(json.dumps(e).encode() for e in events), last]) + end)
        return str(path)

    def test_bytes_of_names_and_open_arrays_are_read(self):
        for trace in ({"name": b"my_f\xffn"}, {"name": b"my_f\x01n"}, {"start": b"[", "end": b""},
                      {"start": b"[", "end": b",\n"}):
            self.call("import", "kineto", self.trace(**trace), *self.CLUSTER)
            gemms = [c for c in cases_of(self.path("r.jsonl")).values() if c["parameters"]["op"] == "gemm"]
            self.assertEqual(len(gemms), 4)

    def test_a_fault_is_named_by_its_byte(self):
        for trace, at in (({"duration": b"N/A"}, b"N/A"), ({"end": b",]}"}, b"]}")):
            path = self.trace(**trace)
            byte = pathlib.Path(path).read_bytes().rindex(at) + 1
            self.assertIn(f"t.json: byte {byte}: found bad syntax at '",
                          self.refused("import", "kineto", path, *self.CLUSTER))
        path = self.trace(end=b"")
        self.assertIn(f"t.json: byte {pathlib.Path(path).stat().st_size + 1}: found the end of the text",
                      self.refused("import", "kineto", path, *self.CLUSTER))

    def test_what_unpacks_to_too_much_is_refused(self):
        path = self.folder / "r.jsonl.gz"
        with gzip.open(path, "wb", 1) as file:
            for _ in range(600):
                file.write(b"\n" * (1 << 20))
        self.assertIn("expected records (JSON Lines) of at most that (--max-input)",
                      self.refused("report", path, "-o", "page.html"))
        small = self.path("small.json", "[" + " " * 5000 + "]")
        self.assertIn("found more than 1", self.refused("import", "kineto", small, *self.CLUSTER, "--max-input", "1K"))

    def test_long_words_are_cut_in_errors(self):
        said = self.refused("list", "x" * 20000)
        self.assertLess(len(said), 2000)


def gpu_trace(rank, late_us=0):
    """What Kineto writes of a GPU: kernels with the arguments of record_param_comms, operations with their shapes."""
    events = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]
    at = [1000.0]

    def kernel(name, us, stream, external, **args):
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at[0], "dur": us,
                       "args": {"External id": external, "device": 0, "stream": stream, **args}})
        at[0] += us + 1

    external = 1
    for size in SIZES:
        for name, beta, linked in (("all_to_allv", 3e-10, False), ("_allgather_base", 5e-11, True)):
            args = {"Collective name": name, "In msg nelems": size // 2, "Out msg nelems": size // 2, "Group size": 8,
                    "dtype": "BFloat16", "Process Group Name": "7",
                    "Process Group Ranks": str(list(range(8)) if name == "all_to_allv" else list(range(0, 16, 2)))}
            if linked:  # the kernel's operation has them
                events.append({"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": at[0], "dur": 2,
                               "args": {"External id": external, **args}})
            kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 20 + beta * size * 1e6 + late_us, 20,
                   external, **({} if linked else args))
            external += 1
    for n in range(1, 12):
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at[0], "dur": 9,
                       "args": {"External id": external, "Input Dims": [[256 * n, 512], [512, 1024]],
                                "Input type": ["c10::BFloat16", "c10::BFloat16"]}})
        kernel("sm90_xmma_gemm_bf16bf16", 5 + 2e-9 * 256 * n * 512 * 1024, 7, external)
        external += 1
    kernel("flash_fwd_kernel", 50, 7, -1)
    kernel("my_exchange_kernel", 70, 7, -1, **{"Collective name": "mine", "In msg nelems": 4096, "dtype": "Float",
                                               "Out msg nelems": 4096, "Group size": 8,
                                               "Process Group Ranks": str(list(range(8)))})
    kernel("vectorized_elementwise_kernel", 3, 7, -1)
    return {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 16},
            "traceEvents": events}


class Kineto(ProgramTest):
    def trace(self, name, document):
        path = pathlib.Path(self.path(name))
        with gzip.open(path, "wt") if name.endswith(".gz") else open(path, "w") as out:
            json.dump(document, out)
        return str(path)

    def test_collectives_and_gemms_of_a_gpu(self):
        path = self.trace("t.json.gz", gpu_trace(0))
        said = self.said("import", "kineto", path, "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertIn("22 (", said)
        self.assertIn("11 (", said)
        self.assertIn("attention 1 (50.0 us)", said)
        rows = self.fitted(self.path("r.jsonl"))
        self.assertAlmostEqual(rows["alltoall intra 8"]["beta"], 3e-10, delta=1e-13)
        self.assertAlmostEqual(rows["alltoall intra 8"]["alpha_s"], 20e-6, delta=1e-9)
        self.assertAlmostEqual(rows["allgather inter 8"]["beta"], 5e-11, delta=1e-14)
        self.assertAlmostEqual(rows["gemm bfloat16"]["alpha_s"], 5e-6, delta=1e-9)
        self.assertAlmostEqual(rows["gemm bfloat16"]["beta"], 1e-15, delta=1e-18)

    def test_of_several_ranks_the_last_to_come_counts(self):
        early = self.trace("0.json", gpu_trace(0, late_us=400))
        last = self.trace("1.json", gpu_trace(1))
        self.call("import", "kineto", early, last, "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertAlmostEqual(self.fitted(self.path("r.jsonl"))["alltoall intra 8"]["alpha_s"], 20e-6, delta=1e-9)

    def test_kernels_of_one_operation_are_one_gemm(self):
        trace = gpu_trace(0)
        for event in [e for e in trace["traceEvents"] if e["name"] == "sm90_xmma_gemm_bf16bf16"]:
            event["dur"] -= 2
            trace["traceEvents"].append({**event, "name": "void splitKreduce_kernel", "dur": 2})
        said = self.said("import", "kineto", self.trace("t.json", trace), "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertIn(", 11 (", said)
        row = self.fitted(self.path("r.jsonl"))["gemm bfloat16"]
        self.assertAlmostEqual(row["alpha_s"], 5e-6, delta=1e-9)
        self.assertAlmostEqual(row["beta"], 1e-15, delta=1e-18)

    def test_ranks_meet_by_sequence_numbers(self):
        def trace(*timed):
            args = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float",
                    "Group size": 8, "Process Group Name": "0", "Process Group Ranks": str(list(range(8)))}
            return {"distributedInfo": {"world_size": 8}, "traceEvents": [
                {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": 1000 * seq,
                 "dur": us, "args": {"stream": 20, "Seq": seq, **args}} for seq, us in timed]}
        late = self.trace("0.json", trace((1, 500), (2, 50), (3, 400)))  # began a collective earlier
        early = self.trace("1.json", trace((2, 300), (3, 60)))
        self.call("import", "kineto", late, early, "--ranks-per-node", 8, "-o", "r.jsonl")
        [case] = cases_of(self.path("r.jsonl")).values()
        self.assertEqual(sorted(round(s[0] * 1e6) for s in case["samples"]["seconds"]), [50, 60, 500])

    def test_uneven_alltoalls_meet_by_their_sequence(self):
        """Ranks without a capacity send different counts: the one that moves most gives the size, the last the time."""
        def trace(name, rank, waits_us):
            events = []
            for seq, wait in enumerate(waits_us):
                counts = [10 ** 5 * (seq + 1), 3 * 10 ** 5 * (seq + 1)]
                if rank == 1:
                    counts.reverse()
                events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 20,
                               "ts": 1000 * seq, "dur": 50 * (seq + 1) + wait,
                               "args": {"stream": 20, "Collective name": "all_to_allv", "In msg nelems": counts[0],
                                        "Out msg nelems": counts[1], "Group size": 2, "dtype": "BFloat16", "Seq": seq,
                                        "Process Group Name": "ep", "Process Group Ranks": "[0, 1]"}})
            return self.trace(name, {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events})
        files = [trace("0.json", 0, (400, 0, 300)), trace("1.json", 1, (0, 200, 0))]
        self.call("import", "kineto", *files, "--ranks-per-node", 2, "-o", "r.jsonl")
        found = {case["parameters"]["bytes"]: case["samples"]["seconds"] for case in
                 cases_of(self.path("r.jsonl")).values()}
        self.assertEqual({size: [round(s[0] * 1e6) for s in samples] for size, samples in found.items()},
                         {600000: [50], 1200000: [100], 1800000: [150]})

    def gemm_trace(self, name, kernels):
        """Operations with their input shapes, and the name and duration of the kernel that each launches."""
        events = []
        for external, (op, dims, kernel, us) in enumerate(kernels):
            args = {"External id": external}
            if dims:
                events.append({"ph": "X", "cat": "cpu_op", "name": op, "ts": external * 1000, "dur": 5,
                               "args": {**args, "Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}})
            events.append({"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": external * 1000 + 9,
                           "dur": us, "args": {**args, "stream": 7}})
        return self.trace(name, {"traceEvents": events})

    def gemm_flops(self, path, *flags):
        said = self.said("import", "kineto", path, "--nodes", 1, "--ranks-per-node", 2, "-o", "r.jsonl", "--overwrite",
                         *flags)
        return said, sorted(case["parameters"]["flops"] for case in cases_of(self.path("r.jsonl")).values())

    def test_the_launching_operation_tells_a_gemm(self):
        path = self.gemm_trace("t.json", [
            ("aten::mm", [[512, 1024], [1024, 256]], "Cijk_Alik_Bljk_BBS_MT64x64x32", 25),
            ("aten::mm", [[64, 128], [128, 48], [64, 48]], "made_up_name", 25),  # the third is what is written
            ("aten::addmm", [[512], [512, 100], [100, 512], [], []], "another_name", 25),
            ("aten::addmm", [[512, 512], [512, 50], [50, 512]], "another_name", 25),
            ("aten::bmm", [[8, 64, 32], [8, 32, 16]], "Custom_Cijk", 25),
            ("aten::_grouped_mm", [[4096, 64], [8, 64, 32], [8]], "grouped", 25),
            ("aten::_grouped_mm", [[8, 64, 16], [16, 4096], [8]], "grouped", 25),
            ("aten::add", [[512, 512], [512, 512]], "vectorized_elementwise_kernel", 25)])
        said, flops = self.gemm_flops(path)
        self.assertEqual(flops, sorted(2.0 * n for n in (
            512 * 1024 * 256, 64 * 128 * 48, 512 * 100 * 512, 512 * 50 * 512, 8 * 64 * 32 * 16, 4096 * 64 * 32,
            64 * 16 * 4096)))
        self.assertIn("others 1 (25.0 us)", said)

    def test_one_thin_gemm_does_not_spoil_the_row(self):
        thick = [("aten::mm", [[256 * n, 512], [512, 1024]], "gemm", 5 + 2e-9 * 256 * n * 512 * 1024)
                 for n in range(1, 9)]
        thin = [("aten::mm", [[1, 8192], [8192, 8192]], "gemv", 60)]
        said, flops = self.gemm_flops(self.gemm_trace("t.json", thick + thin))
        self.assertEqual(len(flops), 8)
        self.assertIn("1 GEMMs with fewer than 16 rows, columns or terms are left out", said)
        self.assertIn("rows that fit well: gemm bfloat16", said)
        _, flops = self.gemm_flops(self.gemm_trace("t.json", thin))  # of a trace that has no others they are kept
        self.assertEqual(flops, [2.0 * 8192 * 8192])

    def test_messages_of_traces(self):
        trace = gpu_trace(0)
        trace["traceEvents"] += [
            {"ph": "X", "cat": "kernel", "name": "k" * 1000, "ts": 9, "dur": 1e6, "args": {"stream": 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9, "dur": -5, "args": {"stream": 1}}]
        said = self.said("import", "kineto", self.trace("t.json", trace), "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertIn("without sizes 0", said)
        self.assertIn("1 kernels without a duration above 0 are left out", said)
        self.assertLess(max(map(len, said.splitlines())), 300)
        bare = self.trace("bare.json", {"traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 9, "dur": 5, "args": {"stream": 1}}]})
        said = self.refused("import", "kineto", bare, "--ranks-per-node", 8, "-o", "r2.jsonl")
        self.assertIn("collectives without NCCL's arguments", said)
        self.assertNotIn("record_shapes", said)

    def test_a_map_says_what_kernels_do(self):
        path = self.trace("t.json", gpu_trace(0))
        without = self.said("import", "kineto", path, "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertIn("collectives of no row 1 (70.0 us), without sizes 0", without)
        kernels = self.path("map.csv", "kernel,kind\nmy_exchange,alltoall\nflash_fwd,other\n")
        said = self.said("import", "kineto", path, "--ranks-per-node", 8, "--map", kernels, "-o", "m.jsonl")
        self.assertIn("23 (", said)
        self.assertIn("collectives of no row 0", said)
        self.assertIn("attention 0", said)
        self.assertIn("map.csv:2: kind: found 'dance'",
                      self.refused("import", "kineto", path, "--map", self.path("map.csv", "kernel,kind\nx,dance\n"),
                                   "--ranks-per-node", 8, "-o", "r2.jsonl"))

    def test_the_network_is_asked_for(self):
        path = self.trace("t.json", gpu_trace(0))
        said = self.refused("import", "kineto", path, "-o", "r.jsonl")
        self.assertIn("--network", said)
        self.assertIn("t.json", said)

    def test_a_real_trace_of_gloo(self):
        """data/make_gloo_trace.py wrote it: two ranks, collectives of three sizes and GEMMs of two."""
        files = [self.path(f"{rank}.json.gz") for rank in (0, 1)]
        for rank, path in enumerate(files):
            shutil.copy(DATA / f"gloo-rank{rank}.json.gz", path)
        said = self.said("import", "kineto", *files, "--ranks-per-node", 2, "-o", "r.jsonl")
        self.assertIn("6 (", said)
        cases = cases_of(self.path("r.jsonl"))
        for key in [f"op/allreduce/intra/2/{4 * n}" for n in (1024, 4096, 16384)] + [
                f"op/allgather/intra/2/{8 * n}" for n in (1024, 4096, 16384)]:
            self.assertIn(key, cases)
            self.assertEqual(cases[key]["backend"], "gloo")
            self.assertGreater(cases[key]["summary"]["median_s"], 0)
        self.assertIn(f"op/gemm/float32/{2 * 64 ** 3}", cases)
        self.assertRegex(said, "with a weak fit, whose prices are labelled: allgather intra 2 \\(held-out error")
        self.assertRegex(said, "can't be used: allreduce intra 2 \\(.*; gemm float32 \\(found times that do not grow")
        self.assertIn("time three sizes or more", said)
        self.assertIn("a plan may need rows beside these: gemm, alltoall, reducescatter, allreduce (", said)
        self.assertIn("next: ./moetune fit --records r.jsonl --out results/imported.toml", said)

    def test_from_a_trace_to_an_answer(self):
        """What an import says fits is what fit makes, and prices a plan."""
        trace = gpu_trace(0)  # of an AllGather between nodes: here it is an AllReduce inside one
        for event in trace["traceEvents"]:
            if event.get("args", {}).get("Collective name") == "_allgather_base":
                event["args"] |= {"Collective name": "allreduce", "Process Group Ranks": str(list(range(8)))}
        said = self.said("import", "kineto", self.trace("t.json.gz", trace), "--ranks-per-node", 8, "--nodes", 1, "-o",
                         "r.jsonl", "--cluster", "mine")
        good = said.split("rows that fit well: ")[1].split("\n")[0].split("; ")
        self.assertEqual(sorted(good), ["allreduce intra 8", "alltoall intra 8", "gemm bfloat16"])
        self.assertEqual(sorted(self.fitted(self.path("r.jsonl"))), sorted(good))
        self.assertNotIn("can't be used", said)
        self.assertIn("a plan may need rows beside these: allgather, reducescatter (", said)
        answer = self.text("tune", "--no-verify", "--cluster", self.path("fitted.toml"), "--dtype", "bfloat16",
                           "--batch", "2", "--experts", "8", "--mp", "1", "--esp", "1", "--ep", "8", "-o", "t.jsonl")
        self.assertIn("USE    ", answer)
        self.assertLessEqual(answer.count("\n"), 25)

    def test_what_is_no_trace_is_refused(self):
        for name, text in {"a.json": "{", "b.json": "[]", "c.json": '{"traceEvents": []}'}.items():
            self.assertIn(name, self.refused("import", "kineto", self.path(name, text), "-o", "r.jsonl"))
        whole = gzip.compress(json.dumps(gpu_trace(0)).encode())
        path = pathlib.Path(self.path("cut.json.gz"))
        path.write_bytes(whole[:len(whole) // 2])
        self.assertIn("cut.json.gz", self.refused("import", "kineto", path, "--ranks-per-node", 8, "-o", "r.jsonl"))


if __name__ == "__main__":
    main()
