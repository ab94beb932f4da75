"""usage: modelbench_test.py PROGRAM

The verb `modelbench`: a model trained under schedules, its records, and what can't be trained."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1))
TINY = pathlib.Path(__file__).resolve().parents[2] / "configs/models/tiny-gpt.toml"
STEPS = 3
ALL = ["ds-moe", "tutel", "tutel-improved", "pipemoe+lina", "fsmoe-no-iio", "fsmoe-no-partition", "fsmoe",
       "fsmoe-interleaved"]
ONE = ["modelbench", "--out", "r.jsonl", "--layers", "1", "--steps", "1", "--held-out", "1"]  # a second


class Modelbench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True)

    def expect_run(self, *arguments):
        found = self.run_program(*arguments)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        return found.stdout

    def records(self):
        return [json.loads(line) for line in self.text().splitlines()]

    def text(self):
        return (self.folder / "r.jsonl").read_text()

    def write_model(self, name, change, to):
        text = TINY.read_text()
        self.assertIn(change, text)
        (self.folder / name).write_text(text.replace(change, to))


class Trains(Modelbench):
    def test_the_default_model_under_every_schedule(self):
        """Which it compares by default: whatever the schedule, the same losses."""
        printed = json.loads(self.expect_run("modelbench", "--layers", "2", "--steps", str(STEPS), "--out", "r.jsonl",
                                             "--trace", "t.json", "--json"))
        self.assertEqual((printed["model"], printed["cluster"], printed["layers"]), ("gpt2-xl@fsmoe", "testbed-b", 2))
        self.assertGreater(printed["entropy_rate"], 0)
        self.assertGreater(printed["order_1_entropy"], printed["entropy_rate"])
        rows = printed["schedules"]
        self.assertEqual([row["schedule"] for row in rows], ALL)
        cases = {line["schedule"]: line for line in self.records() if line["kind"] == "case"}
        for row in rows:
            with self.subTest(schedule=row["schedule"]):
                self.check_row(row, cases[row["schedule"]])
                for loss, first in zip(row["loss"], rows[0]["loss"]):
                    self.assertAlmostEqual(loss, first, delta=1e-4 * first)
        self.check_trace()
        self.check_use(printed)

    def test_a_whole_iteration_in_one_order(self):
        """Lanes that mix passes: faster by more than machines err, with the same losses."""
        printed = json.loads(self.expect_run(
            "modelbench", "--layers", "2", "--micro-batches", "4", "--steps", str(STEPS), "--schedule",
            "fsmoe-dw,wave", "--out", "r.jsonl", "--json"))
        plain, wave = printed["schedules"]
        self.assertEqual((plain["schedule"], wave["schedule"]), ("fsmoe-dw", "wave"))
        for loss, other in zip(wave["loss"], plain["loss"], strict=True):
            self.assertAlmostEqual(loss, other, delta=1e-6 * other)  # other degrees, other sums
        for times in ("predicted", "measured"):
            self.assertLess(wave[times]["total_s"], 0.95 * plain[times]["total_s"])
        cases = {line["schedule"]: line for line in self.records() if line["kind"] == "case"}
        self.check_row(wave, cases["wave"])

    def check_use(self, printed):
        """Checks the share of what ranks could compute: by the model's file and the profile's, read here."""
        def read(path):
            return tomllib.loads((TINY.parents[1] / path).read_text())
        model, cluster = read("models/gpt2-xl@fsmoe.toml"), read("clusters/testbed-b.toml")
        layer = model["layer"] | next(on for on in model["on"] if "testbed-b" in on["clusters"])
        width, seq, hidden = layer["model_dim"], layer["seq"], layer["hidden"]
        # multiply-accumulates of a token: q, k, v, out; scores and values; gate; experts; output projection
        of_layer = 4 * width**2 + 2 * seq * width + 8 * width + layer["top_k"] * 2 * width * hidden
        token = printed["layers"] * of_layer + width * model["vocabulary"]
        self.assertAlmostEqual(printed["step_flops"] / (6 * token * printed["tokens"]), 1, delta=1e-12)
        beta = next(row["beta_s_per_flop"] for row in cluster["compute"] if row["op"] == "gemm")
        self.assertAlmostEqual(printed["peak_flops"] * beta, 1, delta=1e-12)
        self.assertEqual(printed["peak_by"], "gemm float32 of testbed-b")
        self.assertGreater(printed["process_peak_bytes"], 1e7)
        for row in printed["schedules"]:
            for times in (row["measured"], row["predicted"]):
                share = printed["step_flops"] / (32 * printed["peak_flops"] * times["total_s"])
                self.assertAlmostEqual(times["model_flops_utilisation"] / share, 1, delta=1e-12)
                self.assertTrue(0.01 < share < 1, share)
                self.assertTrue(0 <= times["bubble"] < 0.1, times["bubble"])  # there is one stage
            # AdamW has two moments in the place of a weight; weights and gradients are among the rest
            self.assertGreater(row["measured"]["states_bytes"], 0.2 * row["measured"]["peak_bytes"])

    def test_a_peak_that_is_given(self):
        whole = json.loads(self.expect_run(*ONE, "--schedule", "tutel", "--peak-flops", "1e14", "--json"))
        self.assertEqual((whole["peak_flops"], whole["peak_by"]), (1e14, "--peak-flops"))
        measured = whole["schedules"][0]["measured"]
        share = whole["step_flops"] / (32 * 1e14 * measured["total_s"])
        self.assertAlmostEqual(measured["model_flops_utilisation"] / share, 1, delta=1e-12)

    def test_the_bubble_of_a_pipeline(self):
        """GPipe's: of p stages and m micro-batches (p - 1) / (m + p - 1) of a step, and what sends add to that."""
        found = json.loads(self.expect_run(
            "modelbench", "--cluster", "h100-deepep-2-nodes", "--nearest", "--dtype", "bfloat16", "--model", "tiny-gpt",
            "--pp", "2", "--micro-batches", "4", "--pipeline", "gpipe", "--schedule", "tutel", "--steps", "1",
            "--held-out", "0", "--timeout", "600", "--out", "r.jsonl", "--json"))
        row = found["schedules"][0]
        self.assertTrue(1 / 5 <= row["predicted"]["bubble"] < 1 / 5 + 0.03, row["predicted"]["bubble"])
        self.assertAlmostEqual(row["measured"]["bubble"], row["predicted"]["bubble"], delta=0.01)

    def test_the_bubble_of_virtual_stages(self):
        """Interleaved 1F1B's: of V chunks a stage (p - 1) / (V m + p - 1) of a step, and what sends add to that: less
        than the (p - 1) / (m + p - 1) of one chunk. It is as long as predicted."""
        self.write_model("deep.toml", "layers = 2", "layers = 4")
        found = json.loads(self.expect_run(
            "modelbench", "--cluster", "h100-deepep-2-nodes", "--nearest", "--dtype", "bfloat16", "--model",
            "./deep.toml", "--pp", "2", "--micro-batches", "4", "--virtual-stages", "2", "--schedule", "tutel",
            "--steps", "1", "--held-out", "0", "--timeout", "600", "--out", "r.jsonl", "--json"))
        row = found["schedules"][0]
        self.assertTrue(1 / 9 <= row["predicted"]["bubble"] < 1 / 5 - 0.03, row["predicted"]["bubble"])
        self.assertAlmostEqual(row["measured"]["bubble"], row["predicted"]["bubble"], delta=0.01)
        self.assertAlmostEqual(row["measured"]["total_s"] / row["predicted"]["total_s"], 1, delta=0.015)
        parameters = next(line["parameters"] for line in self.records() if line["kind"] == "case")
        self.assertEqual(parameters["virtual_stages"], 2)

    def test_losses_do_not_depend_on_how_stages_share_layers(self):
        self.write_model("deep.toml", "layers = 2", "layers = 4")
        losses = []
        for words in ((), ("--first-stage-layers", "3"), ("--last-stage-layers", "3")):
            found = json.loads(self.expect_run(
                "modelbench", "--cluster", "h100-deepep-2-nodes", "--nearest", "--model", "./deep.toml", "--pp", "2",
                "--micro-batches", "2", "--schedule", "tutel,fsmoe", "--steps", "2", "--held-out", "0", "--timeout",
                "600", "--out", "r.jsonl", "--overwrite", "--json", *words))
            losses += [row["loss"] for row in found["schedules"]]
            parameters = next(line["parameters"] for line in self.records() if line["kind"] in ("case", "cases"))
            self.assertEqual([parameters.get(key) for key in ("first_stage_layers", "last_stage_layers")],
                             [3 if flag in words else None for flag in ("--first-stage-layers", "--last-stage-layers")])
        self.assertEqual(losses, losses[:1] * 6)

    def check_row(self, row, case):
        measured, predicted = row["measured"], row["predicted"]
        self.assertIn(row["status"], ("ok", "invalid"))  # by what else the machine does
        self.assertEqual((measured, predicted), (case["summary"], case["prediction"]))
        asked = case["parameters"]
        self.assertEqual((asked["cluster"], asked["model"], asked["layers"]), ("testbed-b", "gpt2-xl@fsmoe", 2))
        self.assertLess(measured["worst_error"], 2e-5)
        for name in ("forward_s", "backward_s", "total_s", "exposed_s", "peak_bytes"):
            self.assertGreater(measured[name], 0)
            self.assertGreater(predicted[name], 0)
        self.assertGreater(measured["held_out_loss"], 0)
        self.assertEqual(measured["steps"], STEPS)
        self.assertEqual(measured["tensors_made"], 0)
        self.assertEqual(len(row["loss"]), measured["steps"])
        self.assertEqual(case["samples"]["loss"], [[loss] for loss in row["loss"]])
        self.assertEqual([row["loss"][0], row["loss"][-1]], [measured["first_loss"], measured["last_loss"]])
        for name in ("forward_s", "total_s"):
            self.assertEqual(len(case["samples"][name]), STEPS)
        kinds = {(task["phase"], task["kind"]) for task in row["tasks"]}
        for kind in (("forward", "embed"), ("forward", "head"), ("backward", "head"), ("backward", "embed"),
                     ("step", "optimizer")):
            self.assertIn(kind, kinds)

    def check_trace(self):
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
        for schedule in ALL:
            for kind in ("measured", "simulated"):
                self.assertTrue(any(name.startswith(f"{schedule} r_f") and kind in name for name in names),
                                (schedule, kind, names))

    def test_a_trace_of_stages_has_each_rank_s_own_lanes(self):
        self.expect_run("modelbench", "--cluster", "h100-deepep-2-nodes", "--nearest", "--dtype", "bfloat16", "--model",
                        "tiny-gpt", "--pp", "2", "--micro-batches", "2", "--pipeline", "gpipe", "--schedule", "tutel",
                        "--steps", "2", "--held-out", "0", "--out", "r.jsonl", "--trace", "t.json")
        events = json.loads((self.folder / "t.json").read_text())["traceEvents"]
        processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        measured = [pid for pid, name in processes.items() if "measured" in name]
        simulated, = [pid for pid, name in processes.items() if "simulated" in name]
        tracks = {pid: {event["args"]["name"] for event in events
                        if event["name"] == "thread_name" and event["pid"] == pid} for pid in processes}
        tasks = {pid: {event["args"]["task"] for event in events if event["ph"] == "X" and event["pid"] == pid}
                 for pid in processes}
        half = len(measured) // 2
        self.assertGreaterEqual(half, 1)
        for place, pid in enumerate(measured):
            self.assertIn(f"measured, rank {place}", processes[pid])
            stage = f"stage {1 + place // half} "
            self.assertTrue(tracks[pid] and all(track.startswith(stage) for track in tracks[pid]), tracks[pid])
        self.assertEqual(tasks[measured[0]] | tasks[measured[-1]], tasks[simulated])
        self.assertFalse(tasks[measured[0]] & tasks[measured[-1]])

    def test_what_a_rank_does_not_keep(self):
        """Shared states and scores that are computed again: the same losses, in more time."""
        one = ["modelbench", "--schedule", "fsmoe", "--layers", "2", "--steps", "2", "--held-out", "1", "--json"]
        kept = json.loads(self.expect_run(*one, "--out", "kept.jsonl"))["schedules"][0]
        again = json.loads(self.expect_run(*one, "--out", "r.jsonl", "--zero", "1", "--recompute", "selective"))
        row = again["schedules"][0]
        self.assertEqual(row["loss"], kept["loss"])
        self.assertEqual(row["measured"]["held_out_loss"], kept["measured"]["held_out_loss"])
        self.assertGreater(row["predicted"]["total_s"], kept["predicted"]["total_s"])
        self.assertIn(("step", "weights"), {(task["phase"], task["kind"]) for task in row["tasks"]})
        asked = [line for line in self.records() if line["kind"] == "case"][-1]["parameters"]
        self.assertEqual((asked["zero"], asked["recompute"]), (1, "selective"))

    def test_the_text_is_narrow(self):
        text = self.expect_run(*ONE, "--schedule", "tutel,fsmoe", "--tasks", "--optimizer", "sgd", "--momentum", "0.5")
        for line in text.splitlines():
            self.assertTrue(len(line) <= 120 or ": " in line, line)  # reasons may be longer
        for words in ("sgd at 0.003", "over tutel", "held-out", "no model is below", "What a step uses",
                      "of it states", "Tasks of fsmoe", "forward embed", "step optimizer"):
            self.assertIn(words, text)

    def test_any_file_is_a_text(self):
        """Its bytes are the tokens; no one knows how low a loss gets on it."""
        (self.folder / "t.txt").write_text("".join(f"{i} is followed by {i + 1}. " for i in range(400)))
        printed = json.loads(self.expect_run(*ONE, "--text", "t.txt", "--schedule", "tutel", "--json"))
        self.assertEqual(printed["text"], "t.txt (256 tokens)")
        self.assertNotIn("entropy_rate", printed)
        self.assertAlmostEqual(printed["schedules"][0]["loss"][0], 5.5, delta=1)  # ln 256: nothing is known yet


class Packs(Modelbench):
    """Lina's controller packs experts while a model trains; the losses stay."""
    STEPS = 16
    ON_A100 = ["--cluster", "a100-8", "--nearest", "--hidden", "200", "--ep", "8", "--experts", "8", "--mp", "1",
               "--esp", "1"]

    def packed(self, *arguments, program=()):
        found = subprocess.run([PROGRAM, *program, "modelbench", "--schedule", "lina,lina-packed", "--online-packing",
                                "--steps", str(self.STEPS), "--held-out", "1", "--out", "r.jsonl", "--json",
                                *arguments], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.said = found.stderr
        stays, packs = json.loads(found.stdout)["schedules"]
        self.assertNotIn("packings", stays)
        self.assertEqual([packing["packing"] for packing in packs["packings"]],
                         [2**i for i in range(len(packs["packings"]))])
        self.assertEqual(sum(packing["steps"] for packing in packs["packings"]), self.STEPS)
        self.assertEqual(packs["measured"]["packing"], packs["packings"][-1]["packing"])
        for loss, other in zip(packs["loss"], stays["loss"], strict=True):
            self.assertAlmostEqual(loss, other, delta=2e-5 * other)
        self.check_rule(packs["packings"])
        return packs

    def check_rule(self, packings):
        """Twice as many after step 10 and every fourth from there on, where an AlltoAll took longer than the experts
        in the steps since the last decision; the last decision here is after step 14."""
        for packing, after in zip(packings, packings[1:]):
            self.assertEqual(after["first_step"], packing["first_step"] + packing["steps"])
            self.assertIn(after["first_step"], (11, 15))
            self.assertGreater(after["moved_bytes"], 0)
            if packing["steps"] in (10, 4):  # all that the controller went by
                self.assertGreater(packing["alltoall_s"], packing["expert_s"])

    def test_on_an_emulated_cluster(self):
        """Times are modelled, so each decision is that of the prices."""
        packs = self.packed(*self.ON_A100, "--layers", "2")
        for packing in packs["packings"]:
            self.assertAlmostEqual(packing["step_s"] / packing["predicted_s"], 1, delta=0.25)
            self.assertEqual(packing["moving_s"], 0)
        planned = [packing["planned_bytes"] for packing in packs["packings"]]
        self.assertEqual(planned, sorted(planned))
        slower = [packing["packing"] for packing in packs["packings"] if packing["alltoall_s"] > packing["expert_s"]]
        self.assertEqual(len(packs["packings"]), min(3, 1 + len(slower)), "as far as the rule and two decisions go")
        self.assertGreater(len(packs["packings"]), 1)

    def test_stops_where_memory_ends(self):
        """On ranks that hold two experts of each layer and not four, by the bytes that the whole run plans."""
        asked = [*self.ON_A100, "--layers", "2"]
        planned = [packing["planned_bytes"] for packing in self.packed(*asked)["packings"]]
        self.assertEqual(len(planned), 3)
        profile = (TINY.parents[1] / "clusters/a100-8.toml").read_text()
        small, found = re.subn("(?m)^memory_bytes = .*", f"memory_bytes = {int(sum(planned[1:]) / 2)}", profile)
        self.assertEqual(found, 1)
        (self.folder / "small.toml").write_text(small)
        packs = self.packed("--cluster", "./small.toml", *asked[2:], "--overwrite")
        self.assertEqual([packing["packing"] for packing in packs["packings"]], [1, 2])
        self.assertIn("lina-packed packs at most 2 times as many experts per device: packing 4: a rank has no "
                      "memory for 4 experts of each layer", self.said)

    def test_over_processes(self):
        self.write_model("small.toml", "hidden = 128", "hidden = 8")
        self.packed("--cluster", "host", "--model", "./small.toml", "--ep", "4", program=("launch", "--ranks", "4",
                                                                                         "--"))

    def test_goes_on_from_a_checkpoint(self):
        """With the experts of --ep, packed again by its own steps."""
        words = ["modelbench", *self.ON_A100, "--layers", "1", "--schedule", "lina-packed", "--online-packing",
                 "--held-out", "0", "--checkpoint", "kept", "--checkpoint-every", "12", "--overwrite", "--out",
                 "r.jsonl", "--json", "--steps", "16"]
        whole = json.loads(self.expect_run(*words))["schedules"][0]
        (self.folder / "kept/step-000016/manifest.json").unlink()
        again = json.loads(self.expect_run(*words))["schedules"][0]
        self.assertEqual([packing["first_step"] for packing in whole["packings"]][:2], [1, 11])
        self.assertEqual([packing["first_step"] for packing in again["packings"]], [13, 15])
        self.assertEqual(again["loss"][:12], whole["loss"][:12])
        for loss, other in zip(again["loss"], whole["loss"], strict=True):
            self.assertAlmostEqual(loss, other, delta=2e-5 * other)

    def test_refuses_what_would_not_pack(self):
        for words, arguments in (("--online-packing: found --schedule tutel, expected one that packs experts",
                                  ("--schedule", "tutel")),
                                 ("--online-packing: found --steps 10, expected more than 10",
                                  ("--schedule", "lina-packed", "--steps", "10"))):
            found = self.run_program("modelbench", "--online-packing", "--out", "r.jsonl", *arguments)
            self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
            self.assertIn(words, found.stderr)
            self.assertEqual(len(found.stderr.splitlines()), 1)


class Refuses(Modelbench):
    def expect_refused(self, words, *arguments):
        """One line on stderr, nothing on stdout, files as they were."""
        (self.folder / "r.jsonl").write_text("what was there\n")
        before = {path: path.read_bytes() for path in self.folder.iterdir()}
        found = self.run_program("modelbench", "--out", "r.jsonl", "--overwrite", "--trace", "t.json", *arguments)
        self.assertEqual((found.returncode, found.stdout), (2, ""), (arguments, found.stderr))
        self.assertEqual(len(found.stderr.splitlines()), 1, found.stderr)
        self.assertIn(words, found.stderr)
        self.assertEqual({path: path.read_bytes() for path in self.folder.iterdir()}, before, arguments)

    def test_what_is_not_known(self):
        self.expect_refused("found 'gpt-5', expected a file or one of: bert-base", "--model", "gpt-5")
        self.expect_refused("--optimizer: unknown 'lion', expected one of: sgd, adamw", "--optimizer", "lion")
        self.expect_refused("none.txt: found no readable file", "--text", "none.txt")
        self.expect_refused("--markov-order: found '5', expected a whole number from 1 to 4", "--markov-order", "5")

    def test_what_would_have_no_effect(self):
        self.expect_refused("--momentum: found it with --optimizer adamw, expected", "--momentum", "0.5")
        self.expect_refused("--markov-order: found it with --text bytes, expected", "--text", "bytes", "--markov-order",
                            "2")
        self.expect_refused("--layer", "--layer", "example")

    def test_what_no_optimizer_does(self):
        self.expect_refused("momentum: found 1, expected 0 or more, below 1", "--optimizer", "sgd", "--momentum", "1")

    def test_texts_that_are_too_short(self):
        """In all, for a sample to train on, for one that is held out. A sample has 33 tokens."""
        tiny = ["--cluster", "host", "--model", "tiny-gpt"]
        for size, words in ((10, "t.txt: found 10 bytes, expected 20 at least"),
                            (30, "t.txt: found 27 bytes to train on, expected 33 at least"),
                            (200, "t.txt: found 20 bytes held out, expected 33 at least")):
            (self.folder / "t.txt").write_text("x" * size)
            self.expect_refused(words, *tiny, "--text", "t.txt")
        self.expect_refused("t.txt: found 180 bytes to train on", "--text", "t.txt")

    def test_texts_of_more_tokens_than_the_model_knows(self):
        self.write_model("few.toml", "vocabulary = 256", "vocabulary = 8")
        self.expect_refused("--text: found 16 different tokens, model tiny-gpt knows 8", "--model", "./few.toml")
        self.write_model("none.toml", "vocabulary = 256\n", "")
        self.expect_refused("--model: found tiny-gpt without a vocabulary", "--model", "./none.toml")

    def test_what_cannot_be_written_in_the_end(self):
        """Before anything is measured or trained, which would be said on more lines."""
        (self.folder / "file").write_text("")
        (self.folder / "folder").mkdir()
        for flag, target, words in (("--checkpoint", "file", "--checkpoint: cannot make file: "),
                                    ("--dump", "file/below", "--dump: cannot make file/below: "),
                                    ("--save-weights", "folder", "folder: cannot be written (Is a directory)"),
                                    ("--save-weights", "none/w", "none/w: cannot be written (No such file"),
                                    ("--trace", "none/t.json", "none/t.json: cannot be written (No such file")):
            with self.subTest(f"{flag} {target}"):
                found = self.run_program("modelbench", "--cluster", "host", "--model", "tiny-gpt", "--schedule",
                                         "tutel", "--out", "r.jsonl", flag, target)
                self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
                self.assertEqual(len(found.stderr.splitlines()), 1, found.stderr)
                self.assertIn(words, found.stderr)
                self.assertFalse((self.folder / "r.jsonl").exists())

    def test_checkpoints_that_cannot_be_read(self):
        """Never a training that begins again: the one before, or exit code 2."""
        words = ["modelbench", "--model", "tiny-gpt", "--nearest", "--schedule", "tutel", "--layers", "1", "--held-out",
                 "0", "--checkpoint", "kept", "--overwrite", "--out", "r.jsonl", "--quiet"]
        self.expect_run(*words, "--steps", "2", "--checkpoint-every", "1")
        newest = self.folder / "kept" / "step-000002" / "manifest.json"
        newest.write_text("garbage")
        found = self.run_program(*[word for word in words if word != "--quiet"], "--steps", "2")
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn("warning: kept/step-000002: its manifest is no ", found.stderr)
        data = self.folder / "kept" / "step-000001" / "rank-0.safetensors"
        changed = bytearray(data.read_bytes())
        changed[-5] ^= 1
        data.write_bytes(changed)
        newest.write_text("garbage")
        found = self.run_program(*words, "--steps", "2")
        self.assertEqual((found.returncode, found.stdout), (2, ""), found.stderr)
        self.assertEqual(len(found.stderr.splitlines()), 1, found.stderr)
        self.assertIn("kept/step-000002: its manifest is no ", found.stderr)

    def test_16_bits_on_a_cpu(self):
        self.expect_refused("dtype bfloat16 needs a GPU", "--cluster", "host", "--dtype",
                            "bfloat16")


class Records(Modelbench):
    def broken_off(self, words):
        """What a run leaves that is killed before its last two lines."""
        self.expect_run(*words)
        kept = "".join(self.text().splitlines(keepends=True)[:-2])
        (self.folder / "r.jsonl").write_text(kept)
        return kept

    def expect_refused(self, before, words):
        found = self.run_program(*words)
        self.assertEqual((found.returncode, found.stdout), (2, ""), words)
        self.assertIn("r.jsonl: found a run that was interrupted", found.stderr)
        self.assertEqual(len(found.stderr.splitlines()), 1)
        self.assertEqual(self.text(), before, words)

    def test_a_file_answers_one_question(self):
        """The question is flags and the contents of files: of a model, and of a text."""
        self.write_model("m.toml", "batch = 4", "batch = 2")
        text = self.folder / "t.txt"
        text.write_text("one two three four " * 100)
        asked = {"--model": "./m.toml", "--schedule": "tutel,fsmoe", "--text": "t.txt", "--layers": "1", "--steps": "1",
                 "--held-out": "1", "--seed": "1", "--optimizer": "adamw", "--learning-rate": "0.01"}

        def words(**changed):
            flags = asked | {"--" + name.replace("_", "-"): value for name, value in changed.items()}
            return ["modelbench", "--out", "r.jsonl", "--nearest", *(word for pair in flags.items() for word in pair)]
        bench = words()
        before = self.broken_off(bench)
        for changed in ({"seed": "2"}, {"steps": "2"}, {"optimizer": "sgd"}, {"learning_rate": "1"},
                        {"text": "markov"}, {"held_out": "2"}, {"schedule": "tutel"}, {"layers": "2"}):
            self.expect_refused(before, words(**changed))
        text.write_text("one two three five " * 100)
        self.expect_refused(before, bench)
        text.write_text("one two three four " * 100)
        self.write_model("m.toml", "batch = 4", "batch = 3")
        self.expect_refused(before, bench)
        self.write_model("m.toml", "batch = 4", "batch = 2")
        self.expect_run(*bench, "--json", "--trace", "t.json")
        self.assertTrue(self.text().startswith(before))
        kinds = [line["kind"] for line in self.records()]
        self.assertEqual((kinds.count("run"), kinds.count("resume"), kinds[-1]), (1, 1, "end"))
        done = [line["key"] for line in self.records() if line["kind"] == "case" and line["status"] == "ok"]
        self.assertEqual(len(done), len(set(done)))


if __name__ == "__main__":
    unittest.main()
