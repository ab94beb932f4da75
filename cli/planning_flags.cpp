#include "cli/flag_kinds.h"

namespace moe::cli {

void add_list(CLI::App& app, Command& c) {
  CLI::App* verb = add_verb(app, "list", "list schedules, clusters, grids, layers, models, gates and other parts", "");
  begin_group(*verb, kOutput);
  add_json(*verb, c.list.json);
}

void add_doctor(CLI::App& app, Command& c) {
  CLI::App* verb = add_verb(app, "doctor", "report what disturbs measurements on this machine; changes nothing",
                            " --strict && ./moetune tune --cluster host");
  begin_group(*verb, kHow);
  verb->add_flag("--strict", c.doctor.strict, "exit code 5 where there is a warning");
  begin_group(*verb, kOutput);
  verb->add_flag("--all", c.doctor.all, "what is fine, too");
  add_json(*verb, c.doctor.json);
}

namespace {

void add_noise(CLI::App& verb, planner::NoiseFlags& noise) {
  add_number(verb, "--jitter", noise.jitter, "replay all ranks too: variation of every task (0.1: 10 %)", {0, 10});
  verb.add_option("--straggler", noise.stragglers, "slow ranks")->type_name("RANK:FACTOR[,..]")->delimiter(',');
  add_number(verb, "--zipf", noise.zipf, "uneven routing of a dropless layer: Zipf's exponent", {0, 10});
  add_number(verb, "--samples", noise.samples, "replays with other jitter; default: 100", {1, 1e6});
  add_number(verb, "--seed", noise.seed, "seed of jitter and of the experts' popularity; default: 1", {0, 9e18});
}

}  // namespace

void add_simulate(CLI::App& app, Command& c) {
  planner::SimulateOptions& s = c.simulate;
  CLI::App* verb =
      add_verb(app, "simulate", "simulate a layer or a model under schedules: timeline, lane loads, bounds, memory",
               " --cluster testbed-b --schedule fsmoe --batch 4 --seq 1024 --model-dim 2048 --hidden 8192");
  add_text(*verb, "--cluster", "CLUSTER|FILE", s.selection.cluster, "cluster profile");
  add_nodes(*verb, s.selection);
  add_schedule(*verb, s.selection);
  add_model(*verb, s.model);
  add_layer(*verb, s.selection);
  begin_group(*verb, kHow);
  add_states(*verb, s.selection);
  add_node_limit(*verb, s.selection);
  add_degrees(*verb, s.selection);
  add_text(*verb, "--partition", "exact|paper|step1|none", s.partition,
           "how a model's gradients are spread over its layers; default: exact");
  add_noise(*verb, s.noise);
  begin_group(*verb, kOutput);
  add_trace(*verb, s.trace, "write a Perfetto timeline");
  add_records(*verb, s.out, "write records, timelines included (JSON Lines)");
  add_number_or_all(*verb, "--gantt", s.drawn,
                    "draw the lanes of the N fastest schedules that differ as text, on one scale; default: 3", 0);
  verb->add_flag("--sweep-degrees", s.sweep_degrees, "with --out: a record of each degree from 1 to 64 too");
  add_json(*verb, s.json);
  verb->get_option("--gantt")->excludes("--json");
  add_plan(*verb, s.plan, {"--cluster", "--nearest", "--trace", "--json"});
  needs(*verb, "--sweep-degrees", {"--out"});
  needs(*verb, "--overwrite", {"--out"});
}

void add_fit(CLI::App& app, Command& c) {
  CLI::App* verb =
      add_verb(app, "fit", "fit records of microbench to a cluster profile (alpha, beta, r^2, held-out error)",
               " --records results/microbench-testbed-b.jsonl --out results/mine.toml");
  add_text(*verb, "--records", "FILE...", c.fit.records, "records of microbench, tune or import, of one cluster")
      ->capture_default_str();
  begin_group(*verb, kHow);
  verb->add_flag("--strict", c.fit.strict, "exit code 5 where the fit of an operation is WEAK or UNUSABLE");
  begin_group(*verb, kOutput);
  add_text(*verb, "--name", "NAME", c.fit.name, "name of the profile; default: CLUSTER-fitted");
  add_text(*verb, "-o,--out", "FILE", c.fit.out, "the profile; default: results/NAME.toml");
  add_json(*verb, c.fit.json);
}

void add_plannerbench(CLI::App& app, Command& c) {
  CLI::App* verb =
      add_verb(app, "plannerbench", "measure speed and memory of tuning and simulation, and compare them with limits",
               " --json > planner.json");
  begin_group(*verb, kOutput);
  verb->add_flag("--json", c.plannerbench.json, "Google Benchmark's JSON on stdout");
}

void add_memory(CLI::App& app, Command& c) {
  planner::MemoryOptions& m = c.memory;
  CLI::App* verb = add_verb(app, "memory", "estimate the memory of a layer or a model on one rank, and whether it fits",
                            " --model mixtral-7b --cluster testbed-b --zero 1");
  add_text(*verb, "--cluster", "CLUSTER|FILE", m.selection.cluster, "cluster profile");
  add_nodes(*verb, m.selection);
  add_model(*verb, m.model);
  add_layer(*verb, m.selection);
  verb->add_flag("--parm", m.parm, "count the layers of Parm's grid that fit its GPUs instead");
  begin_group(*verb, kHow);
  add_states(*verb, m.selection);
  add_number(*verb, "--memory-gib", m.memory_gib, "memory of a rank; default: the profile's", {1e-6, 1e6});
  begin_group(*verb, kOutput);
  add_json(*verb, m.json);
  stands_alone(*verb, "--parm", {"--top-k", "--experts", "--json"});
}

void add_model_verb(CLI::App& app, Command& c) {
  CLI::App* verb =
      add_verb(app, "model", "print what is understood of a model's file: layers, parameters, FLOPs, the TOML",
               " qwen3-30b-a3b");
  verb->add_option("MODEL", c.model.model, "a name, see list; a model file; a Hugging Face config.json, or its folder")
      ->type_name("MODEL|FILE")
      ->required();
  begin_group(*verb, kOutput);
  add_json(*verb, c.model.json);
}

void add_placement(CLI::App& app, Command& c) {
  PlacementRequest& r = c.placement.request;
  CLI::App* verb =
      add_verb(app, "placement",
               "place context-parallel and expert-parallel groups by MoNTA's rule; print the ranks of every group",
               " --ep 8 --cp 4 --switch-ports 32");
  add_number(*verb, "--dp", r.dp, with_default("data-parallel group size", r.dp), {1, 1e6});
  add_number(*verb, "--tp", r.tp, with_default("tensor- and sequence-parallel group size, inside a node", r.tp),
             {1, 1024});
  add_number(*verb, "--cp", r.cp, with_default("context-parallel group size", r.cp), {1, 1e6});
  add_number(*verb, "--ep", r.ep, with_default("expert-parallel group size", r.ep), {1, 1e6});
  add_number(*verb, "--pp", r.pp, with_default("pipeline stages", r.pp), {1, 1e6});
  add_number(*verb, "--ranks-per-node", r.ranks_per_node, with_default("GPUs a node", r.ranks_per_node), {1, 1024});
  add_number(*verb, "--switch-ports", r.switch_ports,
             with_default("ports of the switch that joins GPUs of one TP position", r.switch_ports), {1, 1e6});
  begin_group(*verb, kOutput);
  add_json(*verb, c.placement.json);
}

void add_reproduce(CLI::App& app, Command& c) {
  reproduce::ReproduceOptions& r = c.reproduce;
  CLI::App* verb = add_verb(app, "reproduce", "compare a paper's table or figure with our numbers", " fsmoe-table5");
  verb->add_option("TABLE", r.table, "key of a table, see list")->type_name("");
  add_text(*verb, "--assume", "ASSUMPTIONS|FILE", r.assume, "for what no paper prints (configs/papers/assume/)");
  verb->add_flag("--measure", r.measure,
                 "of fsmoe-table5, fsmoe-degrees, fsmoe-fig6: a column of what ran, of runs in results/");
  add_text(*verb, "--records", "FILE", r.records, "the same, of these records or documents of modelbench --json");
  verb->add_flag("--audit", r.audit, "every combination of FSMoE's open conventions");
  verb->add_flag("--all", r.all, "every table, with and without the example assumptions, and the audit");
  begin_group(*verb, kOutput);
  add_text(*verb, "--write", "FILE", r.write,
           "with --all: write a summary in Markdown to FILE, and a page per paper to a folder of its name without the "
           "ending");
  add_records(*verb, r.out, "records; default: results/reproduce-TABLE.jsonl");
  add_json(*verb, r.json);
}

}  // namespace moe::cli
