#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>

#include "moe/base/check.h"

namespace moe {
namespace {

template <class Number>
Number number(const std::string& flag, const std::string& text, double least, double most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = std::is_integral_v<Number>;
  if (error != std::errc{} || end != text.data() + text.size() || !(static_cast<double>(value) >= least) ||
      static_cast<double>(value) > most)
    bad_input("{}: found '{}', expected a {} from {} to {}", flag, text, whole ? "whole number" : "number", least,
              most);
  return value;
}

// Adds a number flag that reports what was found and what was expected.
template <class Target>
void add_number(CLI::App& verb, const std::string& flag, Target& target, const std::string& help, double least,
                double most = 1e12) {
  verb.add_option_function<std::string>(
          flag,
          [flag, &target, least, most](const std::string& text) {
            if constexpr (requires { typename Target::value_type; })
              target = number<typename Target::value_type>(flag, text, least, most);
            else
              target = number<Target>(flag, text, least, most);
          },
          help)
      ->type_name("N");
}

// Bytes, with K, M or G for powers of 1024.
int64_t bytes_from(const std::string& flag, const std::string& text) {
  const size_t unit = text.empty() ? std::string::npos : std::string("KMG").find(text.back());
  const bool plain = unit == std::string::npos;
  const auto value = number<int64_t>(flag, plain ? text : text.substr(0, text.size() - 1), 0, 1e12);
  return plain ? value : value << (10 * (unit + 1));
}

void add_bytes(CLI::App& verb, const std::string& flag, int64_t& target, const std::string& help) {
  verb.add_option_function<std::string>(
          flag, [flag, &target](const std::string& text) { target = bytes_from(flag, text); }, help)
      ->type_name("BYTES");
}

void add_selection(CLI::App& verb, Selection& s, bool with_grid) {
  verb.add_option("--cluster", s.cluster, "cluster NAME or profile FILE")->capture_default_str();
  if (with_grid) verb.add_option("--grid", s.grid, "grid NAME or FILE; default: the cluster's own");
  verb.add_option("--schedule", s.schedules,
                  "NAME[,NAME] or all; default: all (tune runs ds-moe, tutel, fsmoe for real)")
      ->delimiter(',');
  add_number(verb, "--degree-forward", s.degrees.forward, "pipeline degree forward; 0: tuned", 0, 4096);
  add_number(verb, "--degree-backward", s.degrees.backward, "pipeline degree backward; 0: tuned", 0, 4096);
  add_number(verb, "--micro-op-bytes", s.degrees.micro_op_bytes,
             "size of a gradient piece of schedules that cut them; default 30 MB, 0: tuned", 0, 1e12);
  add_number(verb, "--min-chunk-bytes", s.degrees.min_chunk_bytes, "monta: no smaller chunk is tried", 0, 1e12);
  verb.add_flag("--nearest", s.nearest, "borrow the row of the nearest group size where a profile has none");
}

void add_layer(CLI::App& verb, Selection& s) {
  LayerFlags& l = s.layer;
  verb.add_option("--layer", s.layer_file, "layer FILE (configs/layers/)");
  add_number(verb, "--batch", l.batch, "samples of one MP group (B)", 1);
  add_number(verb, "--seq", l.seq, "tokens a sample (L)", 1);
  add_number(verb, "--model-dim", l.model_dim, "embedding size (M)", 1);
  add_number(verb, "--hidden", l.hidden, "expert hidden size (H)", 1);
  add_number(verb, "--heads", l.heads, "attention heads", 1);
  add_number(verb, "--kv-heads", l.kv_heads, "key-value heads; default: heads", 1);
  add_number(verb, "--experts", l.experts, "experts in all (E); default: one a node", 1);
  add_number(verb, "--top-k", l.top_k, "experts a token (k)", 1);
  verb.add_option("--capacity-factor", l.capacity_factor, "f, or none: dropless");
  verb.add_option("--capacity-rounding", l.rounding, "ragged | exact | tutel | deepspeed | megatron");
  verb.add_option("--ffn", l.ffn, "gpt | mixtral");
  verb.add_option("--gate", l.gate, "gate, see list");
  verb.add_option("--order", l.order, "order, see list");
  verb.add_option("--dispatcher", l.dispatcher, "dispatcher, see list");
  verb.add_option("--hook", l.hook, "hook, see list");
  verb.add_option("--norm", l.norm, "layernorm | rmsnorm | none; default: layernorm with gpt, rmsnorm with mixtral");
  verb.add_flag("--no-residual", l.no_residual, "nothing is added around attention and the MoE part");
  add_number(verb, "--aux-loss", l.aux_loss, "coefficient of the gate's load-balancing loss; default 0", 0, 1e3);
  add_number(verb, "--z-loss", l.z_loss, "coefficient of the gate's z loss; default 0", 0, 1e3);
  verb.add_option("--dtype", l.dtype, "float32 | float16 | bfloat16 | float64");
  add_number(verb, "--dp", l.dp, "data-parallel group size", 1, 1e6);
  add_number(verb, "--mp", l.mp, "model-parallel group size; default: ranks a node", 1, 1e6);
  add_number(verb, "--ep", l.ep, "expert-parallel group size; default: min(nodes, experts)", 1, 1e6);
  add_number(verb, "--esp", l.esp, "expert-sharding group size; default: ranks a node", 1, 1e6);
  add_number(verb, "--pp", l.pp, "pipeline stages", 1, 1e6);
  verb.add_option("--placement", l.placement, "esp-inside | ep-inside: which ranks of an expert group are neighbours");
}

void add_model(CLI::App& verb, ModelFlags& m) {
  verb.add_option("--model", m.model, "model NAME or FILE (configs/models/)");
  add_number(verb, "--layers", m.layers, "layers; default: the model's, or 1", 1, 1e5);
  add_number(verb, "--micro-batches", m.micro_batches, "micro-batches of --batch samples each", 1, 1e6);
  verb.add_option("--pipeline", m.pipeline, "gpipe | 1f1b: order of micro-batches with --pp")->capture_default_str();
}

const std::vector<std::string> kBackends{"local", "gloo", "nccl"};
const std::vector<std::string> kVerbsOfRanks{"tune", "microbench", "layerbench"};

template <class Options>
void add_run(CLI::App& verb, Options& o, RanksFlags& ranks) {
  add_number(verb, "--timeout", o.timeout_s, "seconds a rank waits for another", 0.1, 86400);
  verb.add_option("--out", o.out, "records FILE (JSON Lines); default: results/VERB-CLUSTER.jsonl");
  verb.add_option_function<std::string>(
      "--backend",
      [&ranks](const std::string& name) {
        require<BadInput>(std::ranges::find(kBackends, name) != kBackends.end(),
                          "--backend: unknown '{}', expected one of: {}", name, fmt::join(kBackends, ", "));
        ranks.backend = name;
      },
      "local: ranks are threads of this process; gloo, nccl: each is a process, started by launch, torchrun, mpirun or "
      "srun");
  verb.add_option_function<std::string>(
      "--device",
      [&o](const std::string& name) {
        require<BadInput>(name == "cpu" || name == "cuda", "--device: unknown '{}', expected one of: cpu, cuda", name);
        o.device = name == "cuda" ? DeviceKind::cuda : DeviceKind::cpu;
      },
      "cpu | cuda: where tensors live; threads share one GPU, processes have one each; default: cpu, of nccl cuda");
  add_number(verb, "--min-ctas", ranks.min_ctas, "nccl: least thread blocks of a communicator; 0: its choice", 0, 64);
  add_number(verb, "--max-ctas", ranks.max_ctas, "nccl: most of them, which leaves the others to the experts", 0, 64);
  verb.add_flag("--implicit-launch-order", ranks.implicit_launch_order, "nccl: NCCL_LAUNCH_ORDER_IMPLICIT");
  add_number(verb, "--rank", ranks.rank, "of this process; default: by the launcher's variables", 0, 1e6);
  add_number(verb, "--ranks", ranks.ranks, "processes in all; likewise", 1, 1e6);
  verb.add_option("--rendezvous", ranks.rendezvous,
                  "HOST:PORT on which rank 0 serves; default: MASTER_ADDR, MASTER_PORT, or this machine's loopback");
  add_number(verb, "--ranks-per-node", ranks.ranks_per_node,
             "of processes, neighbours that count as one node; default: those on one machine", 1, 1e5);
  verb.add_flag("--json", o.json, "one JSON document on stdout, logs on stderr");
}

CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& what, const std::string& example) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->footer("example:\n  ./moetune " + name + example);
  return verb;
}

void add_planning_verbs(CLI::App& app, Command& c) {
  CLI::App* list =
      add_verb(app, "list", "schedules, clusters, grids, layers, gates, orders, dispatchers, hooks, ffns", "");
  list->add_flag("--json", c.list_json, "one JSON document");

  CLI::App* simulate =
      add_verb(app, "simulate", "one layer or model, one schedule -> timeline, lane loads, bounds, memory",
               " --cluster testbed-b --schedule fsmoe --batch 4 --seq 1024 --model-dim 2048 --hidden 8192");
  add_selection(*simulate, c.simulate.selection, false);
  add_layer(*simulate, c.simulate.selection);
  add_model(*simulate, c.simulate.model);
  simulate
      ->add_option("--partition", c.simulate.partition,
                   "exact | paper | step1 | none: how a model's gradients are spread over its layers")
      ->capture_default_str();
  NoiseFlags& noise = c.simulate.noise;
  add_number(*simulate, "--jitter", noise.jitter, "replay all ranks too: variation of every task (0.1: 10 %)", 0, 10);
  simulate->add_option("--straggler", noise.stragglers, "RANK:FACTOR[,...]: slow ranks")->delimiter(',');
  add_number(*simulate, "--zipf", noise.zipf, "uneven routing of a dropless layer: Zipf's exponent", 0, 10);
  add_number(*simulate, "--samples", noise.samples, "sampled replays", 1, 1e6);
  add_number(*simulate, "--seed", noise.seed, "seed of the samples", 0, 9e18);
  simulate->add_option("--trace", c.simulate.trace, "write a Perfetto timeline to FILE");
  simulate->add_option("--out", c.simulate.out, "write records, timelines included, to FILE (JSON Lines)");
  simulate->add_flag("--sweep-degrees", c.simulate.sweep_degrees,
                     "with --out: a record of each degree from 1 to 64 too");
  simulate->add_flag("--json", c.simulate.json, "one JSON document on stdout");

  CLI::App* fit = add_verb(app, "fit", "microbench records -> cluster profile (alpha, beta, r^2, held-out error)",
                           " --records results/microbench-testbed-b.jsonl --out results/mine.toml");
  fit->add_option("--records", c.fit.records, "records FILE of microbench or tune")->capture_default_str();
  fit->add_option("--name", c.fit.name, "name of the profile; default: CLUSTER-fitted");
  fit->add_option("--out", c.fit.out, "profile FILE; default: results/NAME.toml");
  fit->add_flag("--json", c.fit.json, "one JSON document on stdout");

  CLI::App* bench = add_verb(app, "plannerbench", "how fast and how lean tuning and replays are, beside their limits",
                             " --json > planner.json");
  bench->add_flag("--json", c.planner_bench.json, "Google Benchmark's JSON on stdout");
}

void add_shape_verbs(CLI::App& app, Command& c) {
  MemoryOptions& m = c.memory;
  CLI::App* memory = add_verb(app, "memory", "bytes of a layer or a model on one rank, and whether they fit",
                              " --model mixtral-7b --cluster testbed-b --zero 1");
  memory->add_option("--cluster", m.selection.cluster, "cluster NAME or profile FILE")->capture_default_str();
  add_model(*memory, m.model);
  add_number(*memory, "--zero", m.zero, "ZeRO stage: 1 shards optimizer states, 2 gradients too, 3 weights too", 0,
             kMostZeroStage);
  memory->add_option("--recompute", m.recompute, "none | selective (attention scores) | full")->capture_default_str();
  add_number(*memory, "--memory-gib", m.memory_gib, "memory of a rank; default: the profile's", 1e-6, 1e6);
  memory->add_flag("--parm", m.parm, "count the layers of Parm's grid that fit its GPUs");
  memory->add_flag("--json", m.json, "one JSON document on stdout");
  add_layer(*memory, m.selection);

  PlacementRequest& r = c.placement.request;
  CLI::App* placement =
      add_verb(app, "placement", "long contexts: CP beside or around EP, by MoNTA's rule; the ranks of every group",
               " --ep 8 --cp 4 --switch-ports 32");
  add_number(*placement, "--tp", r.tp, "tensor- and sequence-parallel group size, inside a node", 1, 1024);
  add_number(*placement, "--ep", r.ep, "expert-parallel group size", 1, 1e6);
  add_number(*placement, "--cp", r.cp, "context-parallel group size", 1, 1e6);
  add_number(*placement, "--pp", r.pp, "pipeline stages", 1, 1e6);
  add_number(*placement, "--dp", r.dp, "data-parallel group size", 1, 1e6);
  add_number(*placement, "--ranks-per-node", r.ranks_per_node, "GPUs a node", 1, 1024);
  add_number(*placement, "--switch-ports", r.switch_ports, "ports of the switch that joins GPUs of one TP position", 1,
             1e6);
  placement->add_flag("--json", c.placement.json, "one JSON document on stdout");
}

void add_reproduce(CLI::App& app, Command& c) {
  CLI::App* verb =
      add_verb(app, "reproduce", "a paper's table or figure beside ours, and what no print decides", " fsmoe-table5");
  verb->add_option("TABLE", c.reproduce.table, "key of a table, see list");
  verb->add_option("--assume", c.reproduce.assume,
                   "assumption NAME or FILE (configs/papers/assume/) for what no paper "
                   "prints");
  verb->add_flag("--audit", c.reproduce.audit, "every combination of FSMoE's open conventions");
  verb->add_flag("--all", c.reproduce.all, "every table, with and without the example assumptions, and the audit");
  verb->add_option("--write", c.reproduce.write, "with --all: write Markdown to FILE");
  verb->add_option("--out", c.reproduce.out, "records FILE; default: results/reproduce-TABLE.jsonl");
  verb->add_flag("--json", c.reproduce.json, "one JSON document on stdout");
}

void add_running_verbs(CLI::App& app, Command& c) {
  CLI::App* tune = add_verb(app, "tune",
                            "measure a cluster, fit it, find the best schedule and degrees for every layer of a grid, "
                            "and verify some of them by real runs",
                            " --cluster testbed-b --grid fsmoe-b --schedule fsmoe,tutel");
  add_selection(*tune, c.tune.selection, true);
  tune->add_flag("!--no-verify", c.tune.verify, "plan on the profile as it stands: nothing is measured or run");
  tune->add_option_function<std::string>(
          "--measure",
          [&c](const std::string& text) {
            c.tune.measured_layers.reset();
            if (text != "all") c.tune.measured_layers = number<int>("--measure", text, 1, 1e6);
          },
          "layers to run for real, or all: ends in the grid's mean speedups, measured; default: 6")
      ->type_name("N|all")
      ->excludes("--no-verify");
  tune->add_flag("--measure-degrees", c.tune.measure_degrees,
                 "with --measure all: run fsmoe at degrees 1, 2, 4, 8 too and count the layers whose best forward and "
                 "backward degrees differ by measurement; twice the time");
  add_number(*tune, "--strategy-layers", c.tune.strategy_layers,
             "with --no-verify: layers on which FSMoE's own strategies are compared with the exact search", 0, 1e6);
  add_number(*tune, "--iterations", c.tune.iterations, "timed passes a schedule; default: 5, of all layers 3", 1, 1e6);
  add_number(*tune, "--seed", c.tune.seed, "seed of weights, inputs and gate noise", 0, 9e18);
  tune->add_option("--trace", c.tune.trace,
                   "Perfetto timeline FILE of one verified layer; default: beside the records");
  add_run(*tune, c.tune, c.ranks);

  CLI::App* microbench =
      add_verb(app, "microbench", "time alltoall, allgather, reducescatter, allreduce, gemm -> records",
               " --cluster testbed-b --repetitions 5");
  microbench->add_option("--cluster", c.microbench.cluster, "cluster NAME or profile FILE to emulate, or host")
      ->capture_default_str();
  MicrobenchOptions& m = c.microbench;
  add_number(*microbench, "--repetitions", m.repetitions, "samples a size", 1, 1e6);
  add_bytes(*microbench, "-b,--min-bytes", m.least_bytes, "collectives' least size: 64K, 1M, ...; default: -e");
  add_bytes(*microbench, "-e,--max-bytes", m.most_bytes,
            "their largest size; default: -b, and without both FSMoE's sizes or a share of them");
  add_number(*microbench, "-f,--step-factor", m.step_factor, "a size over the one before", 1.0001, 1e6);
  add_bytes(*microbench, "-i,--step-bytes", m.step_bytes, "a size less the one before, in the place of -f");
  add_number(*microbench, "-n,--iterations", m.iterations, "of an op in one sample; 0: chosen by its time", 0, 1e6);
  add_number(*microbench, "-w,--warmup", m.warm_ups, "runs of an op before its samples", 0, 1e6);
  add_number(*microbench, "-c,--check", m.check, "1: count wrong elements; 0: don't look", 0, 1);
  microbench->add_option("-d,--dtype", m.dtype, "of collectives: float32 | float64")->capture_default_str();
  microbench->add_flag("--modules{all}", c.microbench.modules,
                       "with --cluster host: time attention, gates, orders and experts too; all, or =NAME[,NAME]");
  microbench->add_flag("--kernels", c.microbench.kernels,
                       "time the layer's own kernels beside memcpy and plain GEMMs instead; writes no records");
  add_run(*microbench, c.microbench, c.ranks);

  CLI::App* layerbench = add_verb(app, "layerbench", "run MoE layers under schedules, for real, beside the prediction",
                                  " --cluster testbed-b --batch 2 --seq 256 --model-dim 1024 --hidden 2048");
  add_selection(*layerbench, c.layerbench.selection, false);
  layerbench->add_option("--grid", c.layerbench.selection.grid,
                         "layers of a grid, NAME or FILE, in the place of one layer");
  add_number(*layerbench, "--grid-layers", c.layerbench.layers,
             "with --grid: so many of its layers, spread over it; 0: all; default: 6", 0, 1e6);
  add_layer(*layerbench, c.layerbench.selection);
  add_number(*layerbench, "--iterations", c.layerbench.iterations, "timed passes a schedule", 1, 1e6);
  add_number(*layerbench, "--seed", c.layerbench.seed, "seed of weights, inputs and gate noise", 0, 9e18);
  layerbench
      ->add_option(
          "--workload", c.layerbench.workload,
          "which experts tokens want: gate | balanced | zipf:S | hot[:EXPERT] | trace:FILE (CSV: token, layer, "
          "experts)")
      ->capture_default_str();
  layerbench->add_option("--trace", c.layerbench.trace, "write a Perfetto timeline, measured above simulated, to FILE");
  layerbench->add_flag("--tasks", c.layerbench.tasks, "print each kind of task's time beside its prediction");
  layerbench->add_option("--dump", c.layerbench.dump,
                         "write every rank's tensors and gradients as safetensors into FOLDER/SCHEDULE");
  layerbench->add_flag("--check-only", c.layerbench.check_only, "verify outputs and gradients, time nothing");
  add_run(*layerbench, c.layerbench, c.ranks);
}

void add_launch(CLI::App& app, Command& c) {
  CLI::App* launch = add_verb(app, "launch", "start N processes of a verb on this machine, over gloo",
                              " --ranks 4 -- layerbench --ranks-per-node 2 --batch 1 --seq 128 --model-dim 128");
  add_number(*launch, "--ranks", c.launch.ranks, "processes", 1, 1024);
}

// The command that launch starts: with a backend of processes, and right by itself.
void complete_launch(Command& c, std::vector<std::string> words) {
  require<BadInput>(!words.empty(), "launch: found no verb, expected -- VERB and its flags");
  require<BadInput>(std::ranges::find(kVerbsOfRanks, words.front()) != kVerbsOfRanks.end(),
                    "launch: found '{}', expected one of: {}", words.front(), fmt::join(kVerbsOfRanks, ", "));
  const bool backend = std::ranges::any_of(words, [](const std::string& w) { return w.starts_with("--backend"); });
  if (!backend) words.insert(words.end(), {"--backend", "gloo"});
  std::vector<const char*> argv{"moetune"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto started = parse_command_line(static_cast<int>(argv.size()), argv.data());
  if (!started) return;  // it asked for help
  require<BadInput>(started->ranks.backend != "local",
                    "--backend: found local, expected one whose ranks are processes");
  require<BadInput>(!started->ranks.rank && !started->ranks.ranks,
                    "launch: found --rank or --ranks behind the --, expected --ranks N before it");
  const int ranks_per_node = started->ranks.ranks_per_node;
  require<BadInput>(ranks_per_node == 0 || c.launch.ranks % ranks_per_node == 0,
                    "--ranks-per-node: found {}, expected a divisor of launch's --ranks {}", ranks_per_node,
                    c.launch.ranks);
  c.launch.timeout_s = started->ranks.timeout_s;
  c.launch.command = std::move(words);
}

void require_verb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc > 1 && argv[1][0] == '-') return;  // --help, --version, or CLI11's business
  std::string known;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (argc > 1 && verb->get_name() == argv[1]) return;
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  bad_input("verb: found {}, expected one of: {}", argc > 1 ? fmt::format("'{}'", argv[1]) : "none", known);
}

}  // namespace

std::optional<Command> parse_command_line(int argc, const char* const* argv) {
  Command command;
  CLI::App app("moetune: benchmark and autotuning suite for the training of Mixture-of-Experts layers", "moetune");
  app.require_subcommand(1);
  app.set_version_flag("--version", "moetune " MOETUNE_VERSION);
  app.get_formatter()->column_width(28);
  add_planning_verbs(app, command);
  add_running_verbs(app, command);
  add_shape_verbs(app, command);
  add_reproduce(app, command);
  add_launch(app, command);
  require_verb(app, argc, argv);
  // What launch starts stands behind a --, and is parsed for itself.
  const bool launches = argc > 1 && std::string_view(argv[1]) == "launch";
  const int own = launches ? static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv) : argc;
  try {
    app.parse(own, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ExtrasError& error) {
    bad_input("{}; --help lists the flags", error.what());
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    bad_input("{}; --help lists what is expected", text);
  }
  command.verb = app.get_subcommands().front()->get_name();
  if (command.verb == "launch") complete_launch(command, {argv + std::min(own + 1, argc), argv + argc});
  command.ranks.timeout_s = command.verb == "tune"         ? command.tune.timeout_s
                            : command.verb == "layerbench" ? command.layerbench.timeout_s
                                                           : command.microbench.timeout_s;
  const bool processes = command.ranks.backend != "local";
  if (processes && app.get_subcommands().front()->count("--cluster") == 0)
    command.tune.selection.cluster = command.layerbench.selection.cluster = command.microbench.cluster =
        std::string(kHostCluster);
  if (command.ranks.backend == "nccl")
    command.tune.device = command.layerbench.device = command.microbench.device = DeviceKind::cuda;
  const std::vector<std::string> all(argv, argv + argc);
  command.simulate.argv = command.tune.argv = command.microbench.argv = command.layerbench.argv =
      command.reproduce.argv = all;
  return command;
}

bool runs_layers(const Command& c) {
  return c.verb == "microbench" || c.verb == "layerbench" || (c.verb == "tune" && c.tune.verify);
}

}  // namespace moe
