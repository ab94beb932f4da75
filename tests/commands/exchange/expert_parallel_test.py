"""usage: expert_parallel_test.py PROGRAM

What DeepEP's tests and nccl_ep's ep_bench print, and tables of AISimulate, as records. The lines have the forms of
deepseek-ai/DeepEP's tests/ (February 2025 to May 2026) and of NVIDIA/nccl's contrib/nccl_ep/ep_bench.cu."""
import math
import random
import unittest

from program import ProgramTest, cases_of, main

NODE = ("--nodes", 1, "--ranks-per-node", 8)
TWO = ("--nodes", 2, "--ranks-per-node", 8)


def drawn_parts(experts, top_k, parts, tokens, seed=7):
    """How many of equal parts of the experts a token's lie in, by drawing them."""
    draw = random.Random(seed)
    return sum(len({e * parts // experts for e in draw.sample(range(experts), top_k)}) for _ in range(tokens)) / tokens


class Logs(ProgramTest):
    def imported(self, format, *texts, flags=()):
        files = [self.path(f"log{i}.txt", text) for i, text in enumerate(texts)]
        said = self.said("import", format, *files, *flags, "-o", "r.jsonl", "--overwrite")
        return said, {(c["parameters"]["network"], c["parameters"]["ranks"], c["parameters"]["bytes"]): [
            round(s[0] * 1e6, 3) for s in c["samples"]["seconds"]] for c in cases_of(self.path("r.jsonl")).values()}

    def refuse(self, format, text, *flags):
        return self.refused("import", format, self.path("log.txt", text), *flags, "-o", "x.jsonl")


INTRA = """[config] num_tokens=4096, hidden=7168, num_topk=8
[layout] Kernel performance: 0.049 ms

[testing] Running with BF16, without top-k (async=False, previous=False) ... passed
[tuning] SMs 24, NVL chunk 4: 301.10 GB/s (NVL), 1029.44 us
[tuning] SMs 24, NVL chunk default: 305.72 GB/s (NVL), 1016.31 us
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 30, 352.43 GB/s (NVL), t: 453.49 us

[tuning] Best dispatch (BF16): SMs 24, NVL chunk 13, 483.86 GB/s (NVL), t: 640.59 us

[tuning] Best combine: SMs 24, NVL chunk 15: 399.63 GB/s (NVL), t: 775.61 us
"""
INTER = """[config] num_tokens=4096, hidden=7168, num_topk_groups=2, num_topk=8
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 40, RDMA chunk 16: 229 + 1391 us, 43.36 GB/s (RDMA), 141.61 GB/s (NVL)
[tuning] Best dispatch (BF16): SMs 24, NVL chunk 32, RDMA chunk 16: 135 + 2606 us, 44.89 GB/s (RDMA), 146.59 GB/s (NVL)
[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 20, 778.64 + 2681.00 us, 43.63 GB/s (RDMA), 142.49 GB/s (NVL)
"""
COPIES = 4096 * 8 * 7168 * 2  # bytes of a token's k rows, of all tokens


class DeepEp(Logs):
    def test_normal_kernels_of_a_node(self):
        said, found = self.imported("deepep", INTRA, flags=NODE)
        self.assertEqual(found, {("intra", 8, COPIES): [640.59, 775.61]})
        self.assertIn("1 times of dispatch in BF16, 1 of combine; left out: 1 of dispatch in FP8, 0 unreadable", said)
        _, found = self.imported("deepep", INTRA, flags=("--nodes", 2, "--ranks-per-node", 8, "--ranks", 4))
        self.assertEqual(list(found), [("intra", 4, COPIES)])

    def test_normal_kernels_between_nodes(self):
        _, found = self.imported("deepep", INTER, flags=TWO)
        self.assertEqual(found, {("inter", 16, COPIES): [2741, 3459.64]})
        forms = (": 135 + 2606 us, 44.89 GB/s (RDMA), 146.59 GB/s (NVL)",
                 ", transmit: 2606.00 us, notify: 135.00 us, BW: 44.89 GB/s (RDMA), 146.59 GB/s (NVL)")
        other = INTER.replace(*forms)
        self.assertNotEqual(other, INTER)
        self.assertEqual(self.imported("deepep", other, flags=TWO)[1], found)

    def test_prefixes_colours_and_several_runs(self):
        small = INTRA.replace("num_tokens=4096", "num_tokens=128").replace("640.59", "60.5").replace("775.61", "70.5")
        text = "".join(f"\x1b[32m[1,0]<stdout>: {line}\x1b[0m\n" for line in (INTRA + small).splitlines())
        _, found = self.imported("deepep", text, flags=NODE)
        self.assertEqual(found, {("intra", 8, COPIES): [640.59, 775.61], ("intra", 8, COPIES / 32): [60.5, 70.5]})

    def test_rates_without_times(self):
        """The first versions print rates alone: their bytes follow from the number of experts, on average."""
        intra = INTRA.replace(", t: 640.59 us", "").replace(", t: 775.61 us", "")
        self.assertIn("--experts: found none, and ", self.refuse("deepep", intra, *NODE))
        _, found = self.imported("deepep", intra, flags=(*NODE, "--experts", 256))
        [(dispatch, combine)] = found.values()
        rows = 4096 * drawn_parts(256, 8, 8, 20000)
        self.assertAlmostEqual(dispatch, rows * 7168 * 2 / 483.86e3, delta=0.005 * dispatch)
        self.assertAlmostEqual(dispatch, 640.59, delta=0.005 * dispatch)  # as a later version prints the same
        self.assertAlmostEqual(combine, 775.61, delta=0.005 * combine)
        exact = 8 * (1 - math.comb(224, 8) / math.comb(256, 8))
        self.assertAlmostEqual(dispatch, 4096 * exact * 7168 * 2 / 483.86e3, delta=0.002)
        inter = INTER.replace(": 135 + 2606 us,", ":").replace(", 778.64 + 2681.00 us,", ":")
        _, found = self.imported("deepep", inter, flags=(*TWO, "--experts", 256))
        [(dispatch, combine)] = found.values()
        self.assertAlmostEqual(dispatch, 2606, delta=0.002 * dispatch)  # without what announces it
        self.assertAlmostEqual(combine, 2681, delta=0.002 * combine)
        self.assertIn("found rates without times of 8 nodes, of which a token goes to 2", self.refuse(
            "deepep", inter, "--nodes", 8, "--ranks-per-node", 8, "--experts", 256))

    def test_low_latency(self):
        lines = ["Allocating buffer size: 2116.291072 MB ..."]
        size = 128 * 8 * 7168 * 2
        for rank in range(16):
            us = 415.2 + rank
            lines += [f"[rank {rank}] Dispatch + combine bandwidth: 27.38 GB/s, avg_t=805.21 us, min_t=791.81 us, "
                      "max_t=820.42 us",
                      f"[rank {rank}] Dispatch bandwidth: 11.44 GB/s, avg_t=656.57 us | Combine bandwidth: "
                      f"{size / us / 1e3:.2f} GB/s, avg_t={us:.2f} us",
                      f"[rank {rank}] Dispatch send/recv time: 21.1 + 9.1 us | Combine send/recv time: 20.9 + 9 us"]
        _, found = self.imported("deepep", "\n".join(lines), flags=TWO)
        [((network, ranks, found_size), times)] = found.items()
        self.assertEqual((network, ranks, times), ("inter", 16, [430.2]))  # of the slowest rank
        self.assertAlmostEqual(found_size, size, delta=2e-4 * size)
        _, found = self.imported("deepep", "\n".join(lines + lines), flags=TWO)
        self.assertEqual(list(found.values()), [[430.2, 430.2]])

    def elastic(self, fp8, slow=0.0):
        lines = ["Config:", " > Ranks: 2 x 2", " > Experts: 8/256", " > Tokens: 8192 (max: 8192), hidden: 7168",
                 " > #SM: 32, #QPs: 9/9", "", "Running all test cases:"]
        for i, kind in enumerate(fp8):
            lines.append(f" > Testing with do_handle_copy=0, expert_alignment=1, use_fp8_dispatch={kind}, num_bias=2, "
                         "with_previous_event=1, async_with_compute_stream=1, allocate_on_comm_stream=1 ...")
            for mark, name, us, copy in (("*", "dispatch", 300, 92), ("-", "expanded dispatch", 310, 152),
                                         ("#", "cached dispatch", 290, 99), ("@", "combine", 400, 60),
                                         ("+", "reduced combine", 410, 61)):
                for rank in (2, 3, 1, 0):
                    took, bytes_ = us + rank + slow + i, 252328160 + rank
                    after = "copy" if "dispatch" in name else "reduce"
                    lines.append(f"   {mark} EP: {rank:3}/4 | {name}: 0 GB/s (SO), {bytes_ / took / 1e3:.0f} GB/s "
                                 f"(SU), {took:.3f} us, {bytes_} bytes | {after}: 5456 GB/s, {copy:.3f} us")
        return "\n".join(lines)

    def test_version_2(self):
        said, found = self.imported("deepep", self.elastic((0, 1)))
        self.assertEqual(found, {("inter", 4, 8192 * 8 * 7168 * 2): [395, 463, 464]})
        self.assertIn("1 times of dispatch in BF16, 2 of combine; left out: 1 of dispatch in FP8, 0 unreadable", said)
        self.assertIn("of 2 nodes x 2 ranks", said)
        torn = self.elastic((0,)).replace("252328160 bytes", "25232 bytes")
        said, found = self.imported("deepep", torn)
        self.assertIn("2 unreadable", said)

    def test_what_is_missing_is_said(self):
        self.assertIn("found no time of dispatch or combine, expected what DeepEP's", self.refuse("deepep", "hello\n"))
        best = INTRA[INTRA.index("[tuning] Best dispatch (BF16)"):]
        self.assertIn("found times without their configuration", self.refuse("deepep", best, *NODE))
        fp8 = INTRA[:INTRA.index("[tuning] Best dispatch (BF16)")]
        self.assertIn("found 1 times of dispatch in FP8 alone", self.refuse("deepep", fp8, *NODE))
        self.assertIn("--ranks: found none, and ", self.refuse("deepep", INTRA))
        self.assertIn("--ranks: found none, and ", self.refuse("deepep", INTER, "--ranks-per-node", 8))
        self.assertIn("--experts: found 4, expected at least the 8", self.refuse(
            "deepep", INTRA.replace(", t: 640.59 us", ""), *NODE, "--experts", 4))


def ep_bench(ranks=16, mode="High Throughput BF16", dispatch="Dispatch:    total=812.50 us (min=800.00, max=830.10)",
             combine="Combine:     total=1012.25 us (min=990.00, max=1030.00)", more=""):
    return f"""=== NCCL EP Performance Benchmark ===
Configuration:
  Algorithm:       HIGH_THROUGHPUT
  Layout:          flat
  Ranks:           {ranks}
  Max num SMs:     auto
  Tokens:          4096
{more}  Hidden:          7168
  Top-k:           8
  Experts:         256 (local: 16)
  Warmup iters:    10

=== Summary ({mode}, across {ranks} ranks) ===
NOTE: total time = kernel time + memcpyD2D + misc
--- BW based on total time ---
{dispatch}
             recv: total_bw=100.00  nvl_bw=60.00  rdma_bw=40.00 GB/s
{combine}
             send: total_bw=100.00  nvl_bw=60.00  rdma_bw=40.00 GB/s
Total (D+C): avg=1824.75 us, min=1800.00 us, max=1850.00 us

--- BW based on kernel time ---
Dispatch:    kernel=700.00 us
Combine:     kernel=900.00 us
Total (D+C): kernel=1600.00 us

Byte counts (per rank avg): total_send=116.98 MB (8160 tokens), rdma_send=58.50 MB (4080 tokens)
"""


class EpBench(Logs):
    def test_both_modes(self):
        _, found = self.imported("ep-bench", ep_bench(), ep_bench(8), flags=TWO)
        self.assertEqual(found, {("inter", 16, COPIES): [812.5, 1012.25], ("intra", 8, COPIES): [812.5, 1012.25]})
        low = ep_bench(16, "Low Latency", "Dispatch (BF16):  avg=90.50 us, min=80.00 us, max=99.00 us\n"
                       "                  throughput: avg=10.00 GB/s, min=9.00 GB/s (rank 3), max=11.00 GB/s (rank 1)",
                       "Combine (BF16):   avg=110.25 us, min=100.00 us, max=120.00 us").replace(
            "--- BW based on kernel time ---", "--- Kernel-only performance ---").replace("kernel=", "avg=")
        said, found = self.imported("ep-bench", low, flags=TWO)
        self.assertEqual(found, {("inter", 16, COPIES): [90.5, 110.25]})
        said, found = self.imported("ep-bench", low.replace("Dispatch (BF16)", "Dispatch (FP8)"), flags=TWO)
        self.assertEqual(found, {("inter", 16, COPIES): [110.25]})
        self.assertIn("left out: 1 of dispatch in FP8", said)

    def test_what_is_refused(self):
        self.assertIn("found ep_bench with ranks of different tokens", self.refuse(
            "ep-bench", ep_bench(more="  Sub-test:        Non-uniform tokens in [0, 4096]\n"), *TWO))
        self.assertIn("--network: found none, and ", self.refuse("ep-bench", ep_bench()))
        self.assertIn("--experts has no effect for format ep-bench",
                      self.refuse("ep-bench", ep_bench(), "--experts", 8))


class AiSimulate(ProgramTest):
    def cases(self, text, *flags):
        path = self.path("t.csv", text)
        said = self.said("import", "aisimulate", path, *flags, "-o", "r.jsonl", "--overwrite")
        return said, {key: [round(s[0], 12) for s in c["samples"]["seconds"]] for key, c in
                      cases_of(self.path("r.jsonl")).items()}

    def test_collectives(self):
        head = "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n"
        rows = "TRTLLM,1.0,NVIDIA H100,{},NCCL,{},{},{},{}\n"
        said, cases = self.cases(head + rows.format("all_gather", "half", 8, 1024, 0.025) +
                                 rows.format("alltoall", "int8", 16, 4096, 0.05) +
                                 rows.format("all_reduce", "int4", 8, 4096, 0.05) +
                                 rows.format("broadcast", "half", 8, 4096, 0.05), *TWO)
        self.assertEqual(cases, {"op/allgather/intra/8/2048": [0.025e-3], "op/alltoall/inter/16/4096": [0.05e-3]})
        self.assertIn("2 rows; left out: 2", said)

    def test_gemms(self):
        head = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
        said, cases = self.cases(head + "VLLM,1,H100,gemm,x,bfloat16,1024,4096,512,0.234\n"
                                 "VLLM,1,H100,gemm,x,fp8,1024,4096,512,0.1\n"
                                 "VLLM,1,H100,gemm,x,bfloat16,8,4096,512,0.1\n", *TWO)
        self.assertEqual(cases, {f"op/gemm/bfloat16/{2 * 1024 * 4096 * 512}": [0.234e-3]})
        self.assertIn("1 rows; left out: 2", said)

    def test_exchanges_of_deepep(self):
        head = ("node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,dispatch_transmit_us,"
                "dispatch_notify_us,combine_sms,combine_transmit_us,combine_notify_us\n")
        said, cases = self.cases(head + "2,7168,256,8,256,20,94.37,31.17,20,212.63,34.83\n"
                                 "2,7168,256,8,256,24,94.37,31.17,24,202.5,34.5\n1,7168,256,8,256,20,65.3,0,20,121,0\n")
        size = 256 * 8 * 7168 * 2
        self.assertEqual({k: [round(s * 1e6, 6) for s in v] for k, v in cases.items()},
                         {f"op/alltoall/inter/16/{size}": [237.0], f"op/alltoall/intra/8/{size}": [121.0]})
        self.assertIn("2 rows; left out: 1", said)

    def test_what_is_refused(self):
        parquet = self.folder / "t.parquet"
        parquet.write_bytes(b"PAR1" + bytes(100))
        self.assertIn("found a Parquet file, expected its rows as CSV",
                      self.refused("import", "aisimulate", parquet, *TWO, "-o", "x.jsonl"))
        for text, said in (("a,b\n1,2\n", "found none of the columns nccl_dtype, gemm_dtype and combine_transmit_us"),
                           ("op_name,nccl_dtype,num_gpus,message_size,latency\nall_gather,half,8,10,no\n",
                            "t.csv:2: latency: found 'no'"),
                           ("op_name,nccl_dtype,num_gpus,latency\n", "expected one of the name message_size"),
                           ("gemm_dtype,m,n,k,latency\nfp8,64,64,64,1\n", "found no row that a profile has")):
            self.assertIn(said, self.refused("import", "aisimulate", self.path("t.csv", text), *TWO, "-o", "x.jsonl"))


if __name__ == "__main__":
    main()
