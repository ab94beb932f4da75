#include <algorithm>
#include <fmt/ranges.h>

#include "cli/flag_kinds.h"

namespace moe {
namespace {

const std::vector<std::string> kBackends{"local", "gloo", "nccl"};
const std::vector<std::string> kVerbsOfRanks{"tune", "microbench", "layerbench"};

template <class Options>
void add_run(CLI::App& verb, Options& o, RanksFlags& ranks) {
  add_number(verb, "--timeout", o.timeout_s, "seconds a rank waits for another", 0.1, 86400);
  add_records(verb, o.out, "records FILE (JSON Lines); default: results/VERB-CLUSTER.jsonl");
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

}  // namespace

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
      ->type_name("N|all");
  tune->add_flag("--measure-degrees", c.tune.measure_degrees,
                 "with --measure all: run fsmoe at degrees 1, 2, 4, 8 too and count the layers whose best forward and "
                 "backward degrees differ by measurement; twice the time");
  add_number(
      *tune, "--strategy-layers", c.tune.strategy_layers,
      "with --no-verify: layers on which FSMoE's own strategies are compared with the exact search; default: 12, "
      "0: none",
      0, 1e6);
  add_number(*tune, "--iterations", c.tune.iterations, "timed passes a schedule; default: 5, of all layers 3", 1, 1e6);
  add_number(*tune, "--seed", c.tune.seed, "seed of weights, inputs and gate noise", 0, 9e18);
  tune->add_option("--trace", c.tune.trace,
                   "Perfetto timeline FILE of one verified layer, default: beside the records; with --no-verify of a "
                   "planned one, default: none");
  add_run(*tune, c.tune, c.ranks);
  for (const char* runs :
       {"--measure", "--measure-degrees", "--iterations", "--seed", "--timeout", "--backend", "--device", "--min-ctas",
        "--max-ctas", "--implicit-launch-order", "--rank", "--ranks", "--rendezvous", "--ranks-per-node"})
    tune->get_option(runs)->excludes("--no-verify");
  needs(*tune, "--strategy-layers", {"--no-verify"});

  CLI::App* microbench =
      add_verb(app, "microbench", "time alltoall, allgather, reducescatter, allreduce, gemm -> records",
               " --cluster testbed-b --repetitions 5");
  microbench->add_option("--cluster", c.microbench.cluster, "cluster NAME or profile FILE to emulate, or host")
      ->capture_default_str();
  microbench::MicrobenchOptions& m = c.microbench;
  add_number(*microbench, "--repetitions", m.repetitions, "samples a size", 1, 1e6);
  add_bytes(*microbench, "-b,--min-bytes", m.least_bytes, "collectives' least size: 64K, 1M, ...; default: -e");
  add_bytes(*microbench, "-e,--max-bytes", m.most_bytes,
            "their largest size; default: -b, and without both FSMoE's sizes or a share of them");
  add_number(*microbench, "-f,--step-factor", m.step_factor, "a size over the one before", 1.0001, 1e6);
  add_bytes(*microbench, "-i,--step-bytes", m.step_bytes, "a size less the one before, in the place of -f");
  add_number(*microbench, "-n,--iterations", m.iterations, "of an op in one sample; 0: chosen by its time", 0, 1e6);
  add_number(*microbench, "-w,--warmup", m.warm_ups, "runs of an op before its samples", 1, 1e6);
  add_number(*microbench, "-c,--check", m.check, "1: count wrong elements; 0: don't look", 0, 1);
  microbench
      ->add_option("-d,--dtype", m.dtype,
                   "of collectives and GEMMs: float32 | float64, or float16 | bfloat16 (GEMMs: on GPUs)")
      ->capture_default_str();
  microbench->add_flag("--modules{all}", c.microbench.modules,
                       "with --cluster host: time attention, gates, orders and experts too; all, or =NAME[,NAME]");
  microbench->add_flag("--kernels", c.microbench.kernels,
                       "check and time the layer's own kernels beside memcpy and plain GEMMs instead");
  add_run(*microbench, c.microbench, c.ranks);
  for (const char* step : {"--step-factor", "--step-bytes"}) needs(*microbench, step, {"--min-bytes", "--max-bytes"});
  microbench->get_option("--step-factor")->excludes("--step-bytes");
  stands_alone(*microbench, "--kernels", {"--repetitions", "--json"});

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
  needs(*layerbench, "--grid-layers", {"--grid"});
  for (const char* times : {"--iterations", "--trace", "--tasks"})
    layerbench->get_option(times)->excludes("--check-only");
  layerbench->get_option("--tasks")->excludes("--json");  // which always has them
}

void check_backend(const CLI::App& verb, const RanksFlags& ranks) {
  if (verb.get_option_no_throw("--backend") == nullptr) return;
  const auto asked = [&](const std::string& flag) { return verb.count(flag) > 0; };
  for (const char* flag : {"--min-ctas", "--max-ctas", "--implicit-launch-order"})
    require<BadInput>(!asked(flag) || ranks.backend == "nccl", "{}: found --backend {}, expected nccl", flag,
                      ranks.backend);
  for (const char* flag : {"--rank", "--ranks", "--rendezvous", "--ranks-per-node"})
    require<BadInput>(!asked(flag) || ranks.backend != "local",
                      "{}: found --backend local, whose ranks are threads; expected one whose ranks are processes",
                      flag);
  require<BadInput>(
      ranks.backend != "nccl" || !asked("--device") || verb.get_option("--device")->as<std::string>() == "cuda",
      "--device: found cpu with --backend nccl, expected cuda");
}

void add_launch(CLI::App& app, Command& c) {
  CLI::App* launch = add_verb(app, "launch", "start N processes of a verb on this machine, over gloo",
                              " --ranks 4 -- layerbench --ranks-per-node 2 --batch 1 --seq 128 --model-dim 128");
  add_number(*launch, "--ranks", c.launch.ranks, "processes", 1, 1024);
}

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

}  // namespace moe
