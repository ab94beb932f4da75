"""usage: imports_test.py PROGRAM

Other people's measurements as records: what comes out of `fit` is the line that went in."""
import gzip
import json
import pathlib
import shutil

from program import DATA, ProgramTest, main

SIZES = [2 ** n for n in range(16, 27)]
PROGRAMS = {"allreduce": "all_reduce_perf", "alltoall": "alltoall_perf", "allgather": "all_gather_perf",
            "reducescatter": "reduce_scatter_perf", "sendrecv": "sendrecv_perf"}


def seconds(alpha, beta, size):
    return alpha + beta * size


def shown(microseconds):
    """As nccl-tests prints a time: seven wide, two digits behind the point or fewer."""
    whole = len(str(int(microseconds))) if microseconds >= 1 else 0
    return f"{microseconds:7.{2 if whole < 5 else 1 if whole < 6 else 0}f}"


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
        columns = [f"  {shown(time)}  {size / time / 1e3:6.2f}  {size / time / 1e3:6.2f}  {bad:6}"
                   for time in (t, 2 * t)]
        lines.append(f"{size:12}  {size // 4:12}     float  {redop:>6}      -1{columns[0]}{columns[1]}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 41.7 ", "#",
              f"# Collective test concluded: {PROGRAMS[op]}", ""]
    return "\n".join(lines)


def nccl_json(op, alpha, beta):
    rows = []
    for size in SIZES:
        t = seconds(alpha, beta, size) * 1e6
        timed = [{"time": time, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0} for time in (t, 2 * t)]
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
        self.assertIn("alltoall over 8 ranks, inter, 11 sizes; left out: 0 with wrong results, 0 without a time", said)
        self.assertIn("110 cases of 10 operations and groups, of 2 nodes x 4 ranks", said)
        rows = self.fitted(self.path("r.jsonl"))
        for op, (alpha, beta) in lines.items():
            self.check(rows[f"{op} inter 8"], alpha, beta)
            self.check(rows[f"{op} intra 4"], alpha / 2, beta / 4)

    def test_a_layer_is_planned_on_what_was_imported(self):
        lines = {"alltoall": ("n1", "n2"), "allreduce": ("n1", "n2"), "allgather": ("n1", "n1"),
                 "reducescatter": ("n1", "n1")}
        files = [self.path(f"{op}.txt", nccl_text(op, 2e-5, 1e-10, hosts=hosts)) for op, hosts in lines.items()]
        self.call("import", "nccl-tests", *files, "-o", "r.jsonl", "--cluster", "mine")
        self.call("fit", "--records", "r.jsonl", "--out", "mine.toml")
        gemm = '\n[[compute]]\nop = "gemm"\nalpha_s = 1e-5\nbeta_s_per_flop = 1e-14\n'
        profile = pathlib.Path(self.path("mine.toml"))
        profile.write_text(profile.read_text() + gemm)
        document = json.loads(self.text("simulate", "--cluster", "./mine.toml", "--schedule", "fsmoe", "--json"))
        self.assertEqual(document["status"], "ok")
        self.assertEqual(document["cluster"], "mine-fitted")

    def test_in_place_and_json(self):
        path = self.path("t.txt", nccl_text("allreduce", 3e-5, 1e-10))
        self.call("import", "nccl-tests", path, "-o", "in.jsonl", "--in-place")
        self.check(self.fitted(self.path("in.jsonl"))["allreduce inter 8"], 6e-5, 2e-10)
        self.call("import", "nccl-tests", self.path("t.json", nccl_json("allgather", 3e-5, 1e-10)), "-o", "j.jsonl")
        self.check(self.fitted(self.path("j.jsonl"))["allgather intra 8"], 3e-5, 1e-10)

    def test_what_the_file_lacks_is_asked_for(self):
        path = self.path("t.txt", nccl_text("alltoall", 3e-5, 1e-10, named=False))
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

    def test_another_file_is_refused(self):
        for name, text in {"empty.txt": "", "log.txt": "hello\nworld 1 2 3\n", "x.json": "{}"}.items():
            said = self.refused("import", "nccl-tests", self.path(name, text), "-o", "r.jsonl")
            self.assertIn(f"{name}: found no out-of-place time", said)
        self.refused("import", "nccl-tests", self.path("none.txt"), "-o", "r.jsonl")
        self.refused("import", "nccl-tests", self.path("t.txt", nccl_text("allreduce", 3e-5, 1e-10)))


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

    def test_bad_rows_name_their_line(self):
        head = "op,network,ranks,bytes,seconds\n"
        for row, said in {"dance,inter,8,1,1\n": "s.csv:2: op: found 'dance'",
                          "alltoall,outer,8,1,1\n": "s.csv:2: network: found 'outer'",
                          "alltoall,inter,8,1\n": "s.csv:2: found 4 cells, expected 5",
                          "alltoall,inter,8,1,fast\n": "s.csv:2: seconds: found 'fast'",
                          "alltoall,inter,1,1,1\n": "s.csv:2: ranks: found '1'",
                          '"alltoall,inter': "s.csv:2: found a quote without an end"}.items():
            self.assertIn(said, self.refused("import", "csv", self.path("s.csv", head + row), "--nodes", 2,
                                             "--ranks-per-node", 4, "-o", "r.jsonl"))
        path = self.path("s.csv", head + "alltoall,inter,8,1,1\n")
        self.assertIn("--nodes", self.refused("import", "csv", path, "-o", "r.jsonl"))
        self.assertIn("--nodes: found 1 nodes x 4 ranks", self.refused(
            "import", "csv", path, "--nodes", 1, "--ranks-per-node", 4, "-o", "r.jsonl"))


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

    def test_a_map_says_what_kernels_do(self):
        path = self.trace("t.json", gpu_trace(0))
        without = self.said("import", "kineto", path, "--ranks-per-node", 8, "-o", "r.jsonl")
        self.assertIn("without sizes 1", without)
        kernels = self.path("map.csv", "kernel,kind\nmy_exchange,alltoall\nflash_fwd,other\n")
        said = self.said("import", "kineto", path, "--ranks-per-node", 8, "--map", kernels, "-o", "m.jsonl")
        self.assertIn("23 (", said)
        self.assertIn("without sizes 0", said)
        self.assertIn("attention 0", said)
        self.assertIn("map.csv:2: kind: found 'dance'",
                      self.refused("import", "kineto", path, "--map", self.path("map.csv", "kernel,kind\nx,dance\n"),
                                   "--ranks-per-node", 8, "-o", "r2.jsonl"))

    def test_the_network_is_asked_for(self):
        path = self.trace("t.json", gpu_trace(0))
        self.assertIn("--network", self.refused("import", "kineto", path, "-o", "r.jsonl"))

    def test_a_real_trace_of_gloo(self):
        """tests/exchange/data/make_gloo_trace.py wrote it: two ranks, collectives of three sizes and GEMMs of two."""
        files = [self.path(f"{rank}.json.gz") for rank in (0, 1)]
        for rank, path in enumerate(files):
            shutil.copy(DATA / f"gloo-rank{rank}.json.gz", path)
        said = self.said("import", "kineto", *files, "--ranks-per-node", 2, "-o", "r.jsonl")
        self.assertIn("6 (", said)
        cases = [json.loads(line) for line in pathlib.Path(self.path("r.jsonl")).read_text().splitlines()]
        cases = {case["key"]: case for case in cases if case["kind"] == "case"}
        for key in [f"op/allreduce/intra/2/{4 * n}" for n in (1024, 4096, 16384)] + [
                f"op/allgather/intra/2/{8 * n}" for n in (1024, 4096, 16384)]:
            self.assertIn(key, cases)
            self.assertEqual(cases[key]["backend"], "gloo")
            self.assertGreater(cases[key]["summary"]["median_s"], 0)
        self.assertIn(f"op/gemm/float32/{2 * 64 ** 3}", cases)

    def test_what_is_no_trace_is_refused(self):
        for name, text in {"a.json": "{", "b.json": "[]", "c.json": '{"traceEvents": []}'}.items():
            self.assertIn(name, self.refused("import", "kineto", self.path(name, text), "-o", "r.jsonl"))
        whole = gzip.compress(json.dumps(gpu_trace(0)).encode())
        path = pathlib.Path(self.path("cut.json.gz"))
        path.write_bytes(whole[:len(whole) // 2])
        self.assertIn("cut.json.gz", self.refused("import", "kineto", path, "--ranks-per-node", 8, "-o", "r.jsonl"))


if __name__ == "__main__":
    main()
