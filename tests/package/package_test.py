"""usage: package_test.py CPACK BUILD VERSION

Makes the packages of a build, unpacks each into a folder where nothing was built, and runs what is in it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CPACK, BUILD, VERSION = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
WHOLE = (BUILD / "CPackPlanConfig.cmake").exists()  # a build of the planning half alone has one configuration
PLANNING = BUILD / ("CPackPlanConfig.cmake" if WHOLE else "CPackConfig.cmake")
LAYER = ["--batch", "1", "--seq", "128", "--model-dim", "256", "--schedule", "fsmoe"]


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="moetune-package-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_there(self, *command, code=0, **environment):
        ran = subprocess.run([str(word) for word in command], cwd=self.folder, capture_output=True, text=True,
                             env={**os.environ, **environment})
        self.assertEqual(ran.returncode, code, f"{command}\n{ran.stdout}{ran.stderr}")
        return ran

    def packages(self, config, name):
        self.run_there(CPACK, "--config", config, "-B", self.folder)
        tar, = self.folder.glob(f"{name}-{VERSION}-*.tar.gz")
        deb, = self.folder.glob(f"{name}_{VERSION}_*.deb")
        self.run_there("tar", "xf", tar)
        self.run_there("dpkg-deb", "-x", deb, "deb")
        return [self.folder / tar.name.removesuffix(".tar.gz"), self.folder / "deb" / "usr"], deb

    def plans(self, prefix):
        """The planning verbs, with the data files that are installed."""
        moetune = prefix / "bin" / "moetune"
        self.assertEqual(self.run_there(moetune, "--version").stdout, f"moetune {VERSION}\n")
        clusters = prefix / "share" / "moetune" / "configs" / "clusters"
        shutil.copy(clusters / "testbed-b.toml", clusters / "only-here.toml")
        self.assertIn("  only-here ", self.run_there(moetune, "list").stdout)
        printed = self.run_there(moetune, "simulate", "--cluster", "only-here", *LAYER).stdout
        self.assertIn("fsmoe", printed)
        answer = self.run_there(moetune, "tune", "--no-verify", "--cluster", "only-here", "--model", "tiny-mixtral",
                                "--layers", "1", "--nearest").stdout
        self.assertRegex(answer, r"\nNEXT   moetune simulate ")
        self.assertNotIn("./moetune", answer)
        completion = prefix / "share" / "bash-completion" / "completions" / "moetune"
        self.run_there("bash", "-c", f"source {completion} && complete -p moetune")
        return moetune

    def depends(self, deb):
        depends = self.run_there("dpkg-deb", "-f", deb, "Depends").stdout
        self.assertRegex(depends, r"libfmt\d+")
        self.assertRegex(depends, r"libbenchmark")
        self.assertRegex(depends, r"libspdlog")
        return depends

    def test_install_builds_what_is_missing(self):
        """./moetune builds the programs alone: a library that no program links is not there."""
        name = "torch" if WHOLE else "export"
        library = BUILD / "moe" / name / f"libmoe_{name}.a"
        library.unlink(missing_ok=True)
        self.run_there("cmake", "--install", BUILD, "--prefix", self.folder / "prefix")
        self.assertTrue(library.exists())
        self.assertEqual(len(list((self.folder / "prefix").rglob(library.name))), 1)

    def test_the_planning_half(self):
        prefixes, deb = self.packages(PLANNING, "moetune-plan")
        self.depends(deb)
        for prefix in prefixes:
            moetune = self.plans(prefix)
            self.assertEqual([path.name for path in (prefix / "bin").iterdir()], ["moetune"])
            ran = self.run_there(moetune, "layerbench", *LAYER, code=2)
            self.assertRegex(ran.stderr, r"^moetune: layerbench runs layers, .* Debian package moetune\n$")

    @unittest.skipUnless(WHOLE, "this build is of the planning half")
    def test_all(self):
        prefixes, deb = self.packages(BUILD / "CPackConfig.cmake", "moetune")
        self.assertNotIn("torch", self.depends(deb))
        for prefix in prefixes:
            moetune = self.plans(prefix)
            program = prefix / "libexec" / "moetune" / "moetune-run"
            self.assertNotRegex(self.run_there("readelf", "-d", program).stdout, r"R(UN)?PATH")
            printed = self.run_there(moetune, "layerbench", "--cluster", "only-here", *LAYER, "--out", "r.jsonl",
                                     "--overwrite").stdout
            self.assertRegex(printed, r"fsmoe .* ok")
            record = (self.folder / "r.jsonl").read_text()
            self.assertIn(f'"version":"{VERSION}"', record)
            self.says_what_is_missing(moetune)

    def says_what_is_missing(self, moetune):
        (self.folder / "bin").mkdir(exist_ok=True)
        python = self.folder / "bin" / "python3"
        python.write_text("#!/bin/sh\nexit 1\n")  # has no torch
        python.chmod(0o755)
        nothing = {"MOETUNE_TORCH_DIR": "", "XDG_CACHE_HOME": str(self.folder),
                   "PATH": f"{python.parent}:{os.environ['PATH']}"}
        ran = self.run_there(moetune, "layerbench", *LAYER, code=2, **nothing)
        missing = r"moetune: LibTorch [\d.]+ is missing: .*--fetch-libtorch\n"
        self.assertTrue(re.fullmatch(missing, ran.stderr), ran.stderr)


if __name__ == "__main__":
    for tool in ("dpkg-deb", "dpkg-shlibdeps", "file", "readelf"):
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool}")
            sys.exit(77)
    unittest.main(argv=sys.argv[:1])
