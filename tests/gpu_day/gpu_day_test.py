"""usage: gpu_day_test.py PARSER

`cmake/gpu_day.sh` from end to end with stand-ins: programs of a folder that comes first in the path play a GPU's
driver, the toolkit, CMake and moetune. The script runs in a checkout of its own, so nothing is built. PARSER says
whether moetune takes a command line."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PARSER = sys.argv[1]
DAY = "machine configure compile tests modules models nccl unpaced memcheck racecheck".split()
STAGES = [*DAY, *"kernels ops paced attention grid occupancy".split()]
GPU = "GPU 0: NVIDIA H200 (UUID: GPU-01234567-89ab)"

NVIDIA_SMI = f"""case "$1" in
  -L) echo "{GPU}" ;;
  --query-gpu=compute_cap) echo 9.0 ;;
esac
"""
# Configures and builds nothing, and leaves a moetune that writes the records it is asked for.
CMAKE = """[ "$1" = --build ] || exit 0
mkdir -p build/cuda
cat > build/cuda/moetune <<'PROGRAM'
#!/bin/sh
echo "moetune $*"
while [ $# -gt 0 ]; do [ "$1" != --out ] || out=$2; shift; done
[ -z "$out" ] || echo '{"kind":"case","key":"run/a","status":"ok"}' > "$out"
PROGRAM
chmod +x build/cuda/moetune
"""
CTEST = """while [ $# -gt 0 ]; do [ "$1" != --output-junit ] || echo '<testsuite/>' > "$2"; shift; done
echo "    Start 1: device_gpu_test"
echo "1/2 Test #1: device_gpu_test ..................   Passed    1.00 sec"
echo "2/2 Test #2: layer_gpu_test ...................   Passed    9.00 sec"
"""
SANITIZER = 'echo "[       OK ] $*"; echo "[  PASSED  ] 12 tests."\n'
NCU = """while [ $# -gt 0 ]; do [ "$1" != --log-file ] || echo '"0","order","sm__warps_active","71"' > "$2"; shift; done
"""
MISSING = '[ "$1" != --missing ] || cat missing 2>/dev/null || true\n'


class GpuDay(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="moetune-gpu-day-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "cmake").mkdir()
        for name in ("gpu_day.sh", "gpu_stages.sh"):
            shutil.copy(ROOT / "cmake" / name, self.root / "cmake")
        (self.root / "configs/clusters").mkdir(parents=True)
        (self.root / "bin").mkdir()
        self.program("../moetune", MISSING)
        for name, text in {"nvidia-smi": NVIDIA_SMI, "nvcc": "echo 'release 13.0, V13.0'\n", "cmake": CMAKE,
                           "ctest": CTEST, "compute-sanitizer": SANITIZER, "ncu": NCU}.items():
            self.program(name, text)

    def program(self, name, text):
        path = self.root / "bin" / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)

    def moetune(self, text):
        """A moetune that does `text` is what the build leaves."""
        self.program("cmake", CMAKE.replace('echo "moetune $*"\n', 'echo "moetune $*"\n' + text))

    def day(self, *parts, code=0, **environment):
        """Runs parts; returns what was printed, and how the stages of the summary ended: name -> (how, what)."""
        ran = subprocess.run([self.root / "cmake" / "gpu_day.sh", "--out", self.root / "out", *parts],
                             capture_output=True, text=True, timeout=120, cwd=self.root,
                             env={**os.environ, "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                                  "CUDA_HOME": str(self.root / "none"), "CUDACXX": "", **environment})
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        summary = self.root / "out" / "summary.txt"
        lines = summary.read_text().splitlines() if summary.exists() else []
        rows = [re.fullmatch(r"(\w+) +(\S+) +\d+ s  (.*)", line) for line in lines]
        return ran, {row[1]: (row[2], row[3]) for row in rows if row}

    def packed(self):
        files = list((self.root / "out").iterdir())
        self.assertLessEqual(len(files), 8)
        for file in files:
            self.assertLess(file.stat().st_size, 16 << 20)
        with tarfile.open(self.root / "out" / "gpu_day.tar.gz") as tar:
            return {member.name.removeprefix("./") for member in tar if member.isfile()}

    def test_a_day_on_which_all_is_well(self):
        ran, ended = self.day("all")
        self.assertEqual(list(ended), STAGES)
        self.assertEqual({how for how, _ in ended.values()}, {"ok"}, ended)
        self.assertEqual(ended["configure"][1], "for 90")
        self.assertEqual(ended["tests"][1], "2 passed, none skipped")
        self.assertEqual(ended["unpaced"][1], "1 cases")
        self.assertLessEqual(len(ran.stdout.splitlines()), 24)
        self.assertIn("GPU 0: NVIDIA H200, nvcc 13.0\n", ran.stdout)
        self.assertNotIn("UUID", ran.stdout)
        packed = self.packed()
        self.assertLessEqual({f"logs/{stage}.log" for stage in STAGES}, packed)
        self.assertLessEqual({"records/tests.xml", "records/paced.jsonl", "records/occupancy.csv"}, packed)

    def test_the_day_is_done_in_the_order_of_what_tells_most_and_in_its_time(self):
        _, ended = self.day("day")
        self.assertEqual(list(ended), DAY)
        self.assertEqual({how for how, _ in ended.values()}, {"ok"}, ended)
        self.moetune('case "$*" in *unpaced*) sleep 60 ;; esac\n')
        self.day("build")
        (self.root / "build/gpu_day/results.tsv").unlink()
        _, ended = self.day("--within", "9", "layers", "check", code=1)
        self.assertEqual((ended["unpaced"][0], ended["memcheck"][0]), ("timeout", "unbegun"))

    def test_rows_become_a_profile_of_the_gpu(self):
        _, ended = self.day("build", "rows")
        self.assertEqual(ended["modules"], ("ok", "wrote configs/clusters/h200-measured.toml"))
        self.assertTrue((self.root / "configs/clusters/h200-measured.toml").exists())
        self.assertLessEqual({"records/modules.jsonl", "records/one-gpu.toml", "records/h200-measured.toml"},
                             self.packed())
        log = (self.root / "build/gpu_day/logs/modules.log").read_text()
        self.assertIn("--network-from h200-8 --name h200-measured", log)
        self.program("nvidia-smi", NVIDIA_SMI.replace("H200", "GeForce"))
        self.assertEqual(self.day("rows")[1]["modules"], ("ok", "no preset of this GPU"))

    def test_what_ended_well_is_not_done_again_if_it_is_resumed(self):
        self.moetune('[ "$2" != --kernels ] || exit 4\n')
        _, ended = self.day("build", "kernels", "paced", code=1)
        self.assertEqual((ended["kernels"][0], ended["paced"][0]), ("failed", "ok"))
        self.moetune("")
        (self.root / "build/gpu_day/logs/paced.log").unlink()
        self.program("cmake", "exit 1\n")
        (self.root / "build/cuda/moetune").write_text("#!/bin/sh\necho resumed \"$*\"\n"
                                                      'echo \'{"kind":"case","key":"a","status":"ok"}\' > '
                                                      "build/gpu_day/records/kernels.jsonl\n")
        _, ended = self.day("--resume", "build", "kernels", "paced")
        self.assertEqual((ended["compile"][0], ended["kernels"][0], ended["paced"][0]), ("ok", "ok", "ok"))
        self.assertFalse((self.root / "build/gpu_day/logs/paced.log").exists())
        log = (self.root / "build/gpu_day/logs/kernels.log").read_text()
        self.assertIn("resumed microbench --kernels", log)
        self.assertNotIn("--overwrite", log)
        self.assertRegex(log, r"(?m)/kernels\.jsonl$")

    def test_ranks_share_a_gpu_where_nccl_lets_them(self):
        _, ended = self.day("build", "ranks")
        self.assertEqual(ended["nccl"],
                         ("ok", "of four ranks nothing: one GPU, and no NCCL of cmake/nccl_for_one_gpu.sh"))
        header = self.root / ".staged/nccl/include/nccl.h"
        header.parent.mkdir(parents=True)
        header.touch()
        _, ended = self.day("ranks")
        self.assertEqual(ended["nccl"], ("ok", "6 cases"))

    def test_moetune_takes_what_it_is_called_with(self):
        self.day("all")
        logs = "".join(log.read_text() for log in (self.root / "build/gpu_day/logs").iterdir())
        calls = [line.split()[1:] for line in re.findall("^moetune .*", logs, re.MULTILINE)]
        self.assertGreater(len(calls), 6)
        started = [[*words[words.index("--") + 1:]] for words in calls if "--" in words]
        lines = ["\t".join(words) for words in calls + started]
        ran = subprocess.run([PARSER], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
        for line, verdict in zip(lines, ran.stdout.splitlines(), strict=True):
            self.assertEqual(verdict, "ok", line)

    def test_a_stage_that_fails_does_not_end_the_others(self):
        self.moetune('case "$*" in *host-cuda*) echo "rank 2 failed: no memory"; exit 4 ;; esac\n')
        _, ended = self.day("all", code=1)
        self.assertEqual(list(ended), STAGES)
        self.assertEqual(ended.pop("grid"), ("failed", "exit code 4: rank 2 failed: no memory"))
        self.assertEqual({how for how, _ in ended.values()}, {"ok"}, ended)

    def test_records_that_are_not_ok_fail_their_stage(self):
        self.moetune('[ "$1" != layerbench ] || status=invalid\n')
        text = (self.root / "bin" / "cmake").read_text()
        self.program("cmake", text.replace("#!/bin/sh\n", "", 1).replace(
            '''echo '{"kind":"case","key":"run/a","status":"ok"}' ''',
            '''echo "{\\"kind\\":\\"case\\",\\"key\\":\\"run/a\\",\\"status\\":\\"${status:-ok}\\"}" '''))
        _, ended = self.day("build", "bench", code=1)
        self.assertEqual(ended["kernels"][0], "ok")
        self.assertEqual(ended["paced"], ("failed", "exit code 1: 1 of 1 records of paced are not ok: run/a"))

    def test_a_skip_beside_a_visible_gpu_is_a_failure(self):
        self.program("ctest", CTEST.replace("layer_gpu_test ...................   Passed",
                                            "layer_gpu_test ...................***Skipped"))
        _, ended = self.day("build", "test", code=1)
        self.assertEqual(ended["tests"], ("failed", "exit code 1: skipped beside a visible GPU: layer_gpu_test"))
        self.moetune("echo 'no GPU: CUDA says so'; exit 77\n")
        _, ended = self.day("build", "kernels", code=1)
        self.assertEqual(ended["kernels"], ("failed", "exit code 77: no GPU: CUDA says so"))

    def test_a_stage_that_hangs_is_ended_in_time(self):
        self.moetune('[ "$1" != microbench ] || sleep 60\n')
        _, ended = self.day("build", "--within", "8", "kernels", "paced", code=1)
        how, what = ended["kernels"]
        self.assertEqual(how, "timeout")
        self.assertRegex(what, r"ended after [5-8] s")
        self.assertEqual(ended["paced"], ("unbegun", "--within 8 left no time for it"))

    def test_what_the_machine_refuses_is_skipped_with_the_reason(self):
        self.program("ncu", "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1\n")
        self.program("compute-sanitizer", "echo '========= Internal Sanitizer Error: no device'; exit 1\n")
        _, ended = self.day("build", "check", "profile")
        self.assertEqual(ended["occupancy"], ("skipped", "ncu: ERR_NVGPUCTRPERM"))
        self.assertEqual(ended["racecheck"], ("skipped", "========= Internal Sanitizer Error: no device"))
        self.program("compute-sanitizer", "echo '========= 3 errors'; exit 9\n")
        _, ended = self.day("memcheck", code=1)
        self.assertEqual(ended["memcheck"], ("failed", "exit code 9: ========= 3 errors"))
        self.program("compute-sanitizer", "echo '========= a call is not supported'; echo '== 1 error'; exit 9\n")
        _, ended = self.day("memcheck", code=1)
        self.assertEqual(ended["memcheck"], ("failed", "exit code 9: == 1 error"))
        self.program("ncu", "echo '==ERROR== Failed to initialize the profiler: LibraryNotLoaded'; exit 1\n")
        _, ended = self.day("occupancy")
        self.assertEqual(ended["occupancy"], ("skipped", "ncu: LibraryNotLoaded"))
        self.program("ncu", "exit 0\n")
        _, ended = self.day("occupancy", code=1)
        self.assertIn("profiled 0 launches", ended["occupancy"][1])
        self.program("compute-sanitizer", SANITIZER.replace("$*", "Gemm"))
        _, ended = self.day("memcheck", code=1)
        self.assertIn("no test named CudaMathTest passed", ended["memcheck"][1])
        self.program("compute-sanitizer", SANITIZER.replace("OK", "SKIPPED"))
        _, ended = self.day("memcheck", code=1)
        self.assertIn("no test named CudaMathTest passed", ended["memcheck"][1])
        self.program("compute-sanitizer",  # what an earlier call ran does not count
                     'case "$*" in *Softmax*) set -- CudaOrderTest Softmax ;; esac\n' + SANITIZER)
        _, ended = self.day("racecheck", code=1)
        self.assertIn("no test named CudaMathTest passed", ended["racecheck"][1])

    def test_parts_keep_what_others_left(self):
        self.day("build")
        _, ended = self.day("paced")
        self.assertEqual(list(ended), ["configure", "compile", "paced"])
        self.moetune("exit 4\n")
        self.day("build")
        _, ended = self.day("paced", code=1)
        self.assertEqual(ended["paced"][0], "failed")
        _, ended = self.day("machine")
        self.assertEqual(ended["paced"][0], "failed")

    def test_what_an_earlier_call_found_stands_where_there_is_no_time(self):
        self.day("build", "kernels", "paced")
        self.moetune('[ "$1" != microbench ] || sleep 60\n')
        _, ended = self.day("build", "--within", "8", "kernels", "paced", code=1)
        self.assertEqual((ended["kernels"][0], ended["paced"][0]), ("timeout", "ok"))

    def test_a_build_that_fails_leaves_no_program_to_run(self):
        self.day("build", "paced")
        self.program("cmake", "exit 1\n")
        _, ended = self.day("compile", "paced", code=1)
        self.assertEqual((ended["compile"][0], ended["paced"][0]), ("failed", "failed"))

    def test_what_is_missing_is_said_a_line_each(self):
        (self.root / "missing").write_text("libfmt-dev\nLibTorch\n")
        _, ended = self.day("build", "kernels", code=1)
        self.assertEqual(ended["configure"][0], "failed")
        self.assertIn("missing: libfmt-dev LibTorch (", ended["configure"][1])
        log = (self.root / "build/gpu_day/logs/configure.log").read_text()
        self.assertIn("missing: libfmt-dev\nmissing: LibTorch\n", log)

    def test_without_a_compiler_it_is_one_line(self):
        (self.root / "bin" / "nvcc").unlink()
        path = f"{self.root / 'bin'}:/usr/bin:/bin"
        ran, ended = self.day("all", code=77, PATH=path)
        self.assertEqual((ran.stdout, ended), ("", {}))
        self.assertRegex(ran.stderr, r"^gpu_day: found no nvcc in .*, expected a CUDA toolkit\n$")
        self.assertFalse((self.root / "build").exists())

    def test_without_a_gpu_it_builds_and_says_so(self):
        self.program("nvidia-smi", "exit 9\n")
        if os.path.exists("/dev/nvidiactl"):
            self.skipTest("this machine has a GPU")
        _, ended = self.day("build", "test", code=77)
        self.assertEqual(ended["configure"], ("ok", "for every architecture that nvcc knows"))
        self.assertEqual(ended["tests"], ("no-gpu", "there is no GPU to see"))

    def test_without_a_build_a_stage_says_what_to_do(self):
        _, ended = self.day("kernels", code=1)
        self.assertEqual(ended["kernels"], ("failed", "found no build in build/cuda, expected one of the part "
                                                       "build, which succeeded"))

    def test_records_too_large_to_pack_are_named(self):
        self.moetune('[ "$2" != --kernels ] || head -c 20000000 /dev/urandom > build/gpu_day/records/large.bin\n')
        ran, ended = self.day("build", "kernels")
        self.assertEqual(ended["kernels"][0], "ok")
        self.assertNotIn("records/large.bin", self.packed())
        self.assertIn("too large to pack: records/large.bin\n", ran.stdout)

    def test_bad_words_are_refused(self):
        for words, found in ((["benches"], "found part 'benches'"), ([], "found no part"), (["--fast"], "--fast"),
                             (["all", "--within", "soon"], "--within: found 'soon'"), (["all", "--out"], "--out")):
            ran, _ = self.day(*words, code=2)
            self.assertIn(found, ran.stderr)
            self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)

    def test_filters_name_tests_that_there_are(self):
        """What compute-sanitizer is to run is looked for in the sources."""
        stages = (ROOT / "cmake" / "gpu_stages.sh").read_text()
        sources = "".join(path.read_text() for folder in ("tensor/cuda", "layer/cuda", "device")
                          for path in (ROOT / "tests" / folder).rglob("*.cpp"))
        names = {name for filters in re.findall(r"_test '([^']+)'", stages)
                 for name in re.findall(r"[A-Z]\w+", filters)}
        self.assertGreater(len(names), 4)
        for name in names:
            self.assertTrue(name in sources, f"no test of tests/ is named {name}")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
