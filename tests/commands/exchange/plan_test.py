"""usage: plan_test.py PROGRAM

Plans as documents: what is exported simulates alike, a broken one is refused by the task's name; and as execution
traces of Chakra, read by a parser of the documented wire format."""
import copy
import json
import pathlib
import random
import struct

from program import ProgramTest, main, measured, records

LAYER = ["--batch", "2", "--seq", "256", "--model-dim", "512", "--hidden", "1024"]
COLLECTIVES = {"allreduce": 0, "allgather": 2, "alltoall": 6, "reducescatter": 7}


class Wire:
    """A message of Protocol Buffers: its fields by number, in order."""

    def __init__(self, data):
        self.fields, at = {}, 0
        while at < len(data):
            key, at = varint(data, at)
            if key & 7 == 0:
                value, at = varint(data, at)
            elif key & 7 == 1:
                value, at = struct.unpack_from("<d", data, at)[0], at + 8
            else:
                assert key & 7 == 2, key
                size, at = varint(data, at)
                assert at + size <= len(data)
                value, at = data[at:at + size], at + size
            self.fields.setdefault(key >> 3, []).append(value)

    def one(self, field, default=None):
        return self.fields.get(field, [default])[-1]

    def packed(self, field):
        numbers = []
        for data in self.fields.get(field, []):
            at = 0
            while at < len(data):
                number, at = varint(data, at)
                numbers.append(number)
        return numbers

    def attributes(self, field):
        found = {}
        for data in self.fields.get(field, []):
            attribute = Wire(data)
            value = next(values[0] for number, values in attribute.fields.items() if number != 1)
            found[attribute.one(1).decode()] = value
        return found


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def messages(data):
    at, found = 0, []
    while at < len(data):
        size, at = varint(data, at)
        found.append(Wire(data[at:at + size]))
        at += size
    return found


class Plans(ProgramTest):
    def exported(self, schedule="fsmoe", *more, layer=LAYER):
        self.call("simulate", *layer, "--schedule", schedule, "--out", "r.jsonl", "--overwrite", *more)
        self.call("export", "plan", "r.jsonl", "-o", "plan.json")
        return json.loads(pathlib.Path(self.path("plan.json")).read_text())

    def times(self, *words):
        document = json.loads(self.text("simulate", *words, "--json"))
        return {key: document[key] for key in ("forward_s", "backward_s", "moe_forward_s", "moe_backward_s",
                                               "gar_in_moe_bytes", "memory_bytes", "bound_s")}

    def test_of_every_schedule_simulate_alike(self):
        names = [row["name"] for row in json.loads(self.text("list", "--json"))["schedules"]]
        tried = 0
        for name in names:
            try:
                expected = self.times(*LAYER, "--schedule", name)
            except AssertionError:
                continue  # not of this layer
            with self.subTest(schedule=name):
                self.exported(name)
                found = self.times("--plan", "plan.json")
                self.assertEqual(expected, found)
                tried += 1
        self.assertGreater(tried, 15)

    def test_of_other_shapes_simulate_alike(self):
        shapes = {"lcm": ["--capacity-rounding", "lcm", "--degree-forward", "3", "--degree-backward", "2"],
                  "dropless": ["--capacity-factor", "none"], "mixtral": ["--ffn", "mixtral", "--kv-heads", "4"],
                  "fewer ranks": ["--ep", "4", "--nearest"]}
        for name, more in shapes.items():
            with self.subTest(shape=name):
                expected = self.times(*LAYER, "--schedule", "fsmoe", *more)
                self.exported("fsmoe", *more)
                found = self.times("--plan", "plan.json", *(["--nearest"] if "--nearest" in more else []))
                self.assertEqual(expected, found)

    def test_of_a_model_it_is_one_layer_and_says_so(self):
        model = ["tune", "--no-verify", *LAYER, "--layers", "3", "--micro-batches", "2", "--overwrite"]
        self.call(*model, "--schedule", "tutel", "--out", "r.jsonl")
        said = self.said("export", "plan", "r.jsonl", "-o", "plan.json")
        self.assertIn("one layer and one micro-batch without the step, the record of 3 layers and 2 micro-batches",
                      said)
        self.assertNotIn("another", said)
        self.assertEqual(json.loads(pathlib.Path(self.path("plan.json")).read_text())["layers"], 1)
        self.call(*model, "--schedule", "wave", "--out", "w.jsonl")
        self.assertIn("found schedule wave, which orders whole iterations", self.refused("export", "plan", "w.jsonl"))

    def test_bound_searches_nothing_and_notes_nothing(self):
        """Without start-up times a search of degrees ends at the largest, and says so: a plan's notes are its own."""
        rows = [f'[[comm]]\nop = "{op}"\nnetwork = "{network}"\nranks = 2\nalpha_s = 0.0\nbeta_s_per_byte = 1e-10\n'
                for op in ("alltoall", "allgather", "reducescatter", "allreduce") for network in ("inter", "intra")]
        head = 'schema = 1\nname = "flat"\nsource = "none"\n[topology]\nnodes = 2\nranks_per_node = 2\n'
        gemm = '[[compute]]\nop = "gemm"\nalpha_s = 0.0\nbeta_s_per_flop = 1e-14\n'
        self.path("flat.toml", head + "".join(rows) + gemm)
        words = ["--batch", "8", "--seq", "2048", "--model-dim", "64", "--hidden", "64", "--cluster", "flat.toml"]
        self.call("simulate", *words, "--schedule", "fsmoe", "--degree-forward", "2", "--degree-backward", "2", "--out",
                  "r.jsonl", "--overwrite")
        self.call("export", "plan", "r.jsonl", "--cluster", "flat.toml", "-o", "plan.json")
        found = json.loads(self.text("simulate", "--plan", "plan.json", "--cluster", "flat.toml", "--json"))
        tuned = json.loads(self.text("simulate", *words, "--schedule", "fsmoe", "--json"))
        self.assertEqual(found["bound_s"], tuned["bound_s"])
        self.assertTrue(any(note.startswith("degree limit") for note in tuned["notes"]), tuned["notes"])
        self.assertFalse(any(note.startswith("degree limit") for note in found["notes"]), found["notes"])

    def test_document_says_all_of_each_task(self):
        plan = self.exported("fsmoe", "--degree-forward", "3", "--degree-backward", "2")
        self.assertEqual((plan["format"], plan["version"], plan["schedule"]), ("moetune-plan", 1, "fsmoe"))
        self.assertEqual((plan["degree_forward"], plan["degree_backward"]), (3, 2))
        self.assertEqual([task["id"] for task in plan["tasks"]], list(range(len(plan["tasks"]))))
        self.assertEqual(sorted(sum((lane["tasks"] for lane in plan["lanes"]), [])), list(range(len(plan["tasks"]))))
        forward = [t for t in plan["tasks"] if t["kind"] == "dispatch" and t["phase"] == "forward"]
        self.assertEqual([t["rows"][0] for t in forward[1:]], [t["rows"][1] for t in forward[:-1]])
        self.assertEqual(forward[-1]["rows"][1], plan["rows"])
        self.assertTrue(all(t["bytes"] > 0 and t["op"] == "alltoall" for t in forward))
        self.assertEqual(plan["parallel"]["ep"], 8)

    def test_a_plan_is_found_however_it_is_indented(self):
        plan = self.exported()
        self.path("indented.json", json.dumps(plan, indent=2))
        self.call("export", "plan", "indented.json", "-o", "again.json")
        self.call("export", "chakra", "indented.json", "-o", "trace.et")
        for words in (["csv", "indented.json"], ["tutel", "plan.json"]):
            self.assertIn(".json: found a plan, expected records", self.refused("export", *words))

    def test_a_record_of_a_plans_file_is_refused(self):
        path = records(self.folder / "l.jsonl", measured("fsmoe", (3, 2), 0.01, plan="0123456789abcdef"))
        for words in (["plan", path], ["chakra", path]):
            self.assertIn("l.jsonl:2: found the record of a plan's file", self.refused("export", *words))

    def test_sizes_that_flags_gave_are_in_the_records(self):
        words = [*LAYER, "--schedule", "lina", "--micro-op-bytes", "1000000"]
        self.call("simulate", *words, "--out", "r.jsonl", "--overwrite")
        done = self.call("export", "plan", "r.jsonl", "-o", "plan.json")
        self.assertNotIn("times as long as the record predicts", done.stderr.decode())
        text = pathlib.Path(self.path("r.jsonl")).read_text()
        self.path("other.jsonl", text.replace('"micro_op_bytes":1000000', '"micro_op_bytes":100000'))
        self.assertNotEqual(text, pathlib.Path(self.path("other.jsonl")).read_text())
        done = self.call("export", "plan", "other.jsonl", "-o", "other.json")
        self.assertIn("times as long as the record predicts", done.stderr.decode())

    def refused_plan(self, change):
        plan = json.loads(pathlib.Path(self.path("plan.json")).read_text())
        change(plan)
        self.path("changed.json", json.dumps(plan))
        return self.refused("simulate", "--plan", "changed.json")

    def test_a_broken_rule_is_refused_by_the_tasks_name(self):
        plan = self.exported("fsmoe", "--degree-forward", "3", "--degree-backward", "2")
        expert = next(t for t in plan["tasks"] if t["kind"] == "expert")
        name = f"forward expert 1/3 of layer 0 (task {expert['id']})"

        def without_dependencies(plan):
            plan["tasks"][expert["id"]]["after"] = []

        def twice(plan):
            plan["lanes"][expert["lane"]]["tasks"].append(expert["id"])

        def on_another_lane(plan):
            plan["tasks"][expert["id"]]["lane"] = 1 - min(1, expert["lane"])

        def short_slice(plan):
            plan["slices"][0]["end"] -= 4

        self.assertIn(f"changed.json: plan: {name}", self.refused_plan(without_dependencies))
        self.assertIn(f"{name}: is queued 2 times", self.refused_plan(twice))
        self.assertIn(name, self.refused_plan(on_another_lane))
        if plan["slices"]:
            self.assertIn("changed.json: plan:", self.refused_plan(short_slice))

    def test_degrees_and_layers_are_those_of_the_tasks(self):
        self.exported("fsmoe", "--degree-forward", "3", "--degree-backward", "2")
        self.assertIn("changed.json: degree_forward: found 4000, expected 3, as its tasks are cut",
                      self.refused_plan(lambda plan: plan.update(degree_forward=4000)))
        self.assertIn("changed.json: degree_backward: found 3, expected 2",
                      self.refused_plan(lambda plan: plan.update(degree_backward=3)))
        self.assertIn("tasks[2].layer: found 99999, expected the whole number 0",
                      self.refused_plan(lambda plan: plan["tasks"][2].update(layer=99999)))

    def test_what_is_no_plan_names_the_place(self):
        self.exported()

        def missing(plan):
            del plan["tasks"][3]["kind"]

        def unknown(plan):
            plan["tasks"][3]["kind"] = "dance"

        def later(plan):
            plan["version"] = 2

        def gradients(plan):
            plan["gradients"][0]["bytes"] += 4

        def misspelt(plan):
            plan["tasks"][3]["chunck"] = plan["tasks"][3].pop("chunk")

        def no_width(plan):
            del plan["layer"]["model_dim"]

        def no_lanes(plan):
            del plan["lanes"]

        def a_trace(plan):
            plan["format"] = "trace"

        def other_replicas(plan):
            plan["parallel"]["edp"] += 1

        def no_placement(plan):
            del plan["parallel"]["placement"]

        def no_id(plan):
            plan["tasks"][3]["after"] = [[]]

        def no_access(plan):
            plan["tasks"][3]["reads"] = [1]

        def no_network(plan):
            plan["lanes"][0]["networks"] = [None]

        def nested(plan):
            plan["rows"] = json.loads("[" * 900 + "]" * 900)

        self.assertIn("changed.json: tasks[3].kind: found no such key", self.refused_plan(missing))
        self.assertIn("changed.json: tasks[3].chunck: found unknown key 'chunck'", self.refused_plan(misspelt))
        self.assertIn("changed.json: layer.model_dim: found no such key", self.refused_plan(no_width))
        self.assertIn("changed.json: lanes: found no such key", self.refused_plan(no_lanes))
        self.assertIn("changed.json: format: found 'trace', expected 'moetune-plan'", self.refused_plan(a_trace))
        self.assertIn("changed.json: tasks[3].kind: found 'dance', expected one of", self.refused_plan(unknown))
        self.assertIn("edp", self.refused_plan(other_replicas))
        self.assertIn("changed.json: parallel.placement: found no such key", self.refused_plan(no_placement))
        self.assertIn("tasks[3].after[0]: found a list of 0, expected a whole number", self.refused_plan(no_id))
        self.assertIn("tasks[3].reads[0]: found 1, expected an object", self.refused_plan(no_access))
        self.assertIn("lanes[0].networks[0]: found null, expected inter or intra", self.refused_plan(no_network))
        self.assertIn("nested deeper than 100 levels", self.refused_plan(nested))
        self.assertIn("changed.json: version: found 2, expected the whole number 1", self.refused_plan(later))
        self.assertIn("changed.json: gradients[0].bytes", self.refused_plan(gradients))
        self.assertIn("end of the text", self.refused("simulate", "--plan", self.path("x.json", "{")))
        self.refused("simulate", "--plan", "plan.json", "--cluster", "testbed-a")
        self.refused("simulate", "--plan", "plan.json", "--batch", "4")

    def test_another_order_is_another_plan(self):
        """Sound changes are taken, with a warning that the hash is of the plan before."""
        plan = self.exported("fsmoe", "--degree-forward", "2", "--degree-backward", "2")
        plan["schedule"] = "tutel"
        self.path("changed.json", json.dumps(plan))
        done = self.call("simulate", "--plan", "changed.json")
        self.assertIn("hash: found", done.stderr.decode())

    def test_chakra(self):
        plan = self.exported("fsmoe", "--degree-forward", "3", "--degree-backward", "2")
        document = json.loads(self.text("simulate", "--plan", "plan.json", "--json"))
        self.call("export", "chakra", "plan.json", "--cluster", "testbed-b", "-o", "trace.et")
        metadata, *nodes = messages(pathlib.Path(self.path("trace.et")).read_bytes())
        self.assertEqual(metadata.one(1), b"0.0.4")
        self.assertEqual(len(nodes), len(plan["tasks"]))
        before = {b: a for lane in plan["lanes"] for a, b in zip(lane["tasks"], lane["tasks"][1:])}
        for task, timed, node in zip(plan["tasks"], document["tasks"], nodes):
            attributes = node.attributes(10)
            self.assertEqual(node.one(1, 0), task["id"])
            self.assertIn(task["kind"], node.one(2).decode())
            self.assertEqual(node.packed(5), task["after"])
            self.assertEqual(node.packed(4), [before[task["id"]]] if task["id"] in before else [])
            self.assertEqual(node.one(7), round((timed["end_s"] - timed["start_s"]) * 1e6))
            self.assertAlmostEqual(attributes["duration_s"], timed["end_s"] - timed["start_s"], places=12)
            if task.get("op") in COLLECTIVES:
                self.assertEqual(node.one(3), 7, "COMM_COLL_NODE")
                self.assertEqual(attributes["comm_type"], COLLECTIVES[task["op"]])
                self.assertEqual(attributes["comm_size"], task["bytes"])
                self.assertEqual(attributes["pg_name"].decode(), task["group"])
            else:
                self.assertEqual(node.one(3), 4, "COMP_NODE")
                self.assertEqual(attributes["num_ops"], task.get("flops", 0))

    def test_chakra_without_prices_has_no_times(self):
        self.exported()
        done = self.call("export", "chakra", "plan.json", "-o", "trace.et")
        self.assertIn("no times", done.stderr.decode())
        nodes = messages(pathlib.Path(self.path("trace.et")).read_bytes())[1:]
        self.assertTrue(all(node.one(7) is None for node in nodes))


STACK = ["--layers", "3", "--micro-batches", "2", *LAYER]
STAGES = ["--model", "qwen3-235b-a22b", "--layers", "4", "--pp", "2", "--micro-batches", "4"]
TESTBED, H100S, ONE_NODE = ["--cluster", "testbed-b"], ["--cluster", "h100-deepep-4-nodes", "--nearest"], \
    ["--cluster", "h100-8"]
ITERATIONS = {
    "wave": (TESTBED, [*STACK, "--schedule", "wave"]),
    "split gradients": (TESTBED, [*STACK, "--schedule", "fsmoe", "--degree-forward", "3", "--degree-backward", "2"]),
    "pieces": (TESTBED, [*STACK, "--schedule", "lina", "--micro-op-bytes", "100000"]),
    "recomputed": (TESTBED, [*STACK, "--schedule", "tutel", "--recompute", "full"]),
    "ZeRO": (TESTBED, [*STACK, "--schedule", "flowmoe", "--zero", "1"]),
    "stages": (H100S, [*STAGES, "--schedule", "wave"]),
    "virtual stages": (H100S, [*STAGES, "--virtual-stages", "2", "--schedule", "fsmoe-dw"]),
    "dense layers": (ONE_NODE, ["--model", "deepseek-v3", "--layers", "4", "--micro-batches", "2", "--batch", "1",
                                "--schedule", "wave"]),
}


class Iterations(ProgramTest):
    def saved(self, cluster, words):
        document = json.loads(self.text("simulate", *cluster, *words, "--save-plan", "plan.json", "--json", "--quiet"))
        return json.loads(self.path_text("plan.json")), document["schedules"][0]

    def test_simulate_alike(self):
        for name, (cluster, words) in ITERATIONS.items():
            with self.subTest(iteration=name):
                plan, direct = self.saved(cluster, words)
                done = self.call("simulate", *cluster, "--plan", "plan.json", "--json")
                self.assertNotIn("hash: found", done.stderr.decode())
                found = json.loads(done.stdout)
                self.assertEqual(found["memory_bytes"], direct["memory_bytes"])
                self.assertEqual((found["layers"], found["micro_batches"]), (plan["layers"], plan["micro_batches"]))
                for key in ("forward_s", "total_s"):
                    self.assertAlmostEqual(found[key] / direct[key], 1, places=12)
                self.assertAlmostEqual(found["forward_s"] + found["backward_s"], found["total_s"], places=12)
                self.assertLessEqual(found["bound_s"], found["total_s"] * (1 + 1e-12))

    def test_what_is_no_plan_is_not_replaced(self):
        kept = self.path("kept.json", "{}")
        self.assertIn("kept.json: found a file that is no plan, expected a new one, or a plan to replace",
                      self.refused("simulate", *TESTBED, *STACK, "--schedule", "fsmoe", "--save-plan", kept))
        self.assertEqual(self.path_text("kept.json"), "{}")

    def test_traces_have_one_stage(self):
        plan, _ = self.saved(*ITERATIONS["wave"])
        self.call("export", "chakra", "plan.json", "-o", "trace.et")
        self.assertEqual(len(messages(pathlib.Path(self.path("trace.et")).read_bytes())), 1 + len(plan["tasks"]))
        self.saved(*ITERATIONS["stages"])
        self.assertIn("plan.json: found a plan of 2 stages", self.refused("export", "chakra", "plan.json"))

    def test_a_broken_iteration_is_refused(self):
        plan, _ = self.saved(*ITERATIONS["stages"])
        tasks = plan["tasks"]
        of = lambda kind, phase: [t for t in tasks if t["kind"] == kind and t["phase"] == phase]
        sums = [t for t in tasks if "slice" in t]

        def one_micro_batch_twice(plan):
            """Micro-batch 3 becomes micro-batch 2, which passes every layer twice."""
            for task in plan["tasks"]:
                for owner in [task, *task["reads"], *task["writes"]]:
                    if owner.get("micro_batch") == 3:
                        owner["micro_batch"] = 2

        def on_the_other_stage(plan):
            for lane in plan["lanes"]:
                lane["stage"] = 1 - lane.get("stage", 0)

        def sums_early(plan):
            for task in sums:
                plan["tasks"][task["id"]]["after"] = []

        def received_in_another_order(plan):
            first, second = [t for t in of("recv", "forward")][:2]
            for a, b in ((first, second), (second, first)):
                plan["tasks"][a["id"]]["micro_batch"] = b.get("micro_batch", 0)

        def twice_stepped(plan):
            first, second = of("optimizer", "step")[:2]
            plan["tasks"][second["id"]]["layer"] = first["layer"]

        def half_of_it(plan):
            plan["layers"] = 8

        def short(plan):
            plan["gradients"][0]["bytes"] -= 4

        for change in (one_micro_batch_twice, on_the_other_stage, sums_early, received_in_another_order, twice_stepped,
                       half_of_it, short):
            with self.subTest(change=change.__name__):
                changed = copy.deepcopy(plan)
                change(changed)
                self.assertNotEqual(changed, plan)
                self.path("changed.json", json.dumps(changed))
                self.assertIn("changed.json: ", self.refused("simulate", *H100S, "--plan", "changed.json"))

    def test_mutations_end_in_one_line(self):
        """Exit code 0, or 2 with one line that names the file, for 200 random changes of one value."""
        draw = random.Random(7)
        taken = 0
        for name in ("wave", "stages"):
            plan, _ = self.saved(*ITERATIONS[name])
            for _ in range(100):
                changed = copy.deepcopy(plan)
                at = changed
                while True:
                    key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
                    if not isinstance(at[key], (dict, list)) or not at[key]:
                        break
                    at = at[key]
                at[key] = draw.choice([-1, 0, 1, 2, 3, 17, 10**6, 10**12, 0.5, "x", None, True, [], {}])
                self.path("changed.json", json.dumps(changed))
                done = self.run_program("simulate", *ITERATIONS[name][0], "--plan", "changed.json", "--json", "--quiet")
                self.assertIn(done.returncode, (0, 2), (key, at[key], done.stderr))
                if done.returncode == 0:
                    taken += 1
                    continue
                [line] = done.stderr.decode().splitlines()
                self.assertIn("changed.json", line)
        self.assertLess(taken, 150)


if __name__ == "__main__":
    main()
