"""`cmake/nccl_for_one_gpu.sh` with stand-ins for nvcc, git, make and strip: what it builds of which sources, and what
it refuses in one line."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[2] / "cmake" / "nccl_for_one_gpu.sh"
PROGRAMS = {"nvcc": "printf 'compute_80\\ncompute_90\\ncompute_120\\n'", "nvidia-smi": "echo 9.0", "strip": "exit 0",
            "git": "for last in \"$@\"; do :; done; cp -r \"$NCCL\" \"$last\"; echo \"$@\" > \"$NCCL/cloned\"",
            "make": """for word in "$@"; do
  case $word in BUILDDIR=*) build=${word#BUILDDIR=} ;; CUDA_INC=*) ls "${word#CUDA_INC=}" > "$NCCL/headers" ;; esac
done
printf '%s\\n' "$@" > "$NCCL/made"
grep '^all_' "$2/src/device/symmetric/generate.py" >> "$NCCL/made"
mkdir -p "$build/include" "$build/lib"
echo header > "$build/include/nccl.h"
echo library > "$build/lib/libnccl.so.2.30.7"
ln -s libnccl.so.2.30.7 "$build/lib/libnccl.so.2"
ln -s libnccl.so.2 "$build/lib/libnccl.so\""""}
GENERATOR = 'all_reds = ["sum", "avg"]\nall_tys = ["f32","f16"]\n'


class NcclScript(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="moetune-nccl-script-"))
        self.addCleanup(shutil.rmtree, self.root)
        for name, text in PROGRAMS.items():
            self.program(name, text)
        (self.root / "include").mkdir()
        for name in ("cuda_runtime.h", "nccl.h", "nccl_device.h"):
            (self.root / "include" / name).touch()
        self.sources = self.root / "nccl"
        (self.sources / "makefiles").mkdir(parents=True)
        (self.sources / "src/device/symmetric").mkdir(parents=True)
        (self.sources / "src/device/symmetric/generate.py").write_text(GENERATOR)
        (self.sources / "Makefile").touch()
        self.version(2, 30, 7)

    def program(self, name, text):
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)

    def version(self, major, minor, patch):
        (self.sources / "makefiles/version.mk").write_text(
            f"NCCL_MAJOR   := {major}\nNCCL_MINOR   := {minor}\nNCCL_PATCH   := {patch}\n")

    def call(self, *words, code=0):
        ran = subprocess.run([SCRIPT, "--prefix", self.root / "out", *words], capture_output=True, text=True,
                             cwd=self.root, env={**os.environ, "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
                                                 "NCCL": str(self.sources), "CUDACXX": "", "CUDA_HOME": "/none"})
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stderr

    def test_builds_what_moetune_calls_for_one_architecture(self):
        said = self.call("--sources", self.sources, "120")
        self.assertRegex(said, r"NCCL 2\.30\.7 for sm_120 in .*/out, .* after \d+ s\n$")
        self.assertEqual((self.root / "out/include/nccl.h").read_text(), "header\n")
        self.assertEqual((self.root / "out/lib/libnccl.so").read_text(), "library\n")
        made = (self.sources / "made").read_text()
        self.assertIn("NVCC_GENCODE=-gencode=arch=compute_120,code=sm_120\n", made)
        self.assertIn('all_reds = ["sum"]\nall_tys = ["f32"]\n', made)
        self.assertEqual((self.sources / "src/device/symmetric/generate.py").read_text(), GENERATOR, "sources changed")
        self.assertEqual((self.sources / "headers").read_text(), "cuda_runtime.h\n", "an NCCL's headers too")
        pattern = re.search("^ONLY_FUNCS=(.*)", made, re.MULTILINE)[1].replace("*", "[^ ]*") + "$"
        for function, built in (("SendRecv", True), ("AllGather RING LL", True), ("Broadcast RING SIMPLE", True),
                                ("AllReduce Sum bf16 TREE LL128", True), ("ReduceScatter Sum f64 NVLS SIMPLE", True),
                                ("Reduce Sum f16 RING LL", True), ("AllReduce Prod f32 RING LL", False),
                                ("AllReduce Sum i32 RING LL", False), ("AllGather COLLNET_DIRECT SIMPLE", False)):
            self.assertEqual(re.match(pattern, function) is not None, built, function)  # as NCCL's generator does

    def test_clones_for_the_gpu_that_is_there(self):
        self.assertIn("for sm_90", self.call())
        cloned = (self.sources / "cloned").read_text()
        self.assertRegex(cloned, r"--branch v2\.30\.\d+-1 https://github\.com/NVIDIA/nccl")

    def test_refusals_are_one_line(self):
        for words, code, line in (
                (["75"], 2, "found architecture 75, expected one that "),
                (["hopper"], 2, "found architecture 'hopper'"),
                (["--fast"], 2, "--fast: found an unknown"), (["--sources"], 2, "--sources: found no value after it"),
                (["--sources", self.root, "90"], 2, "found no makefiles/version.mk")):
            said = self.call(*words, code=code)
            self.assertIn(line, said)
            self.assertEqual(said.count("\n"), 1, said)
        self.version(2, 28, 9)
        self.assertIn("found NCCL 2.28.9, expected 2.30 or later", self.call("--sources", self.sources, "90", code=2))
        self.version(2, 30, 7)
        self.program("make", "echo no compiler; exit 2")
        self.assertIn("no compiler\nnccl_for_one_gpu: NCCL 2.30.7 could not be built",
                      self.call("--sources", self.sources, "90", code=1).split("takes minutes\n")[1])
        self.program("git", "exit 1")
        self.assertIn("could not clone", self.call("90", code=1))
        (self.root / "bin/nvcc").unlink()
        self.assertIn("found no nvcc", self.call("90", code=77))
        self.assertFalse((self.root / "out").exists())


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
