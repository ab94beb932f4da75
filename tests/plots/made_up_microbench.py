"""Records as `moetune microbench` writes them, of made-up times: testbed-b's rows with 1 % of seeded noise."""
import json
import random

STEP, SIZES, NOISE = 2**18 * 4, (1, 2, 4, 8, 12, 16, 20, 24), 0.01
ROWS = (("alltoall", "inter", 8, 1.75e-4, 3.06e-10), ("allgather", "intra", 4, 3.2e-5, 1.68e-10),
        ("reducescatter", "intra", 4, 3.91e-5, 1.67e-10), ("allreduce", "inter", 8, 8.37e-5, 5.99e-10))
ATTENTION = {"forward": (9.06e-4, 8.35e-14), "backward": (1.81e-3, 8.35e-14)}  # of 256 tokens
GEMM_ALPHA, GEMM_BETA = 9.24e-5, 4.42e-14
CLUSTER = {"cluster": "testbed-b", "nodes": 8, "ranks_per_node": 4}


def case(key, parameters, seconds):
    print(json.dumps({
        "kind": "case", "key": key, "status": "ok", "parameters": CLUSTER | parameters, "backend": "local",
        "emulated": True, "dilation": 1.0, "samples": {}, "summary": {"median_s": seconds}, "prediction": {}},
        separators=(",", ":")))


def main():
    draw = random.Random(20250514)
    print(json.dumps({"kind": "run", "schema": 1, "started": "2025-01-01T00:00:00Z", "argv": ["made up for tests"],
                      "config_digest": "0", "git": {}, "compiler": "", "libraries": {}, "machine": {},
                      "environment": {}}, separators=(",", ":")))
    for op, network, ranks, alpha, beta in ROWS:
        for size in SIZES:
            n = size * STEP
            parameters = {"op": op, "network": network, "ranks": ranks, "bytes": float(n)}
            case(f"op/{op}/{network}/{ranks}/{n}", parameters, (alpha + n * beta) * draw.gauss(1, NOISE))
    for size in SIZES[:5]:
        n = 2.0 * round((size * 2**19)**0.5)**3
        case(f"op/gemm/float32/{n:.0f}", {"op": "gemm", "dtype": "float32", "flops": n, "gemms": 1},
             (GEMM_ALPHA + n * GEMM_BETA) * draw.gauss(1, NOISE))
    for phase, (alpha, beta) in ATTENTION.items():
        for gigaflops in (0.3, 0.6, 1.2, 2.4, 4.8, 9.7, 19.3):
            n = gigaflops * 1e9
            case(f"op/attention/{phase}/256/{n:.0f}",
                 {"op": "module", "name": "attention", "phase": phase, "flops": n, "seq": 256},
                 (alpha + n * beta) * draw.gauss(1, NOISE))
    print('{"kind":"end","ended":"2025-01-01T00:00:00Z"}')


if __name__ == "__main__":
    main()
