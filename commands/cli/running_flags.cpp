#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>

#include "commands/cli/flag_kinds.h"
#include "commands/cli/launch.h"
#include "commands/cli/verbs.h"
#include "commands/torch_peer.h"
#include "layerbench/layerbench.h"
#include "microbench/microbench.h"
#include "modelbench/modelbench.h"
#include "moe/base/enum_array.h"

namespace moe::cli {
namespace {

template <class Options>
void add_ranks(CLI::App& verb, Options& o, RanksFlags& ranks) {
  add_choice(
      verb, "--backend", ranks.backend, {Backend::local, Backend::gloo, Backend::nccl},
      "local: ranks are threads of this process; gloo, nccl: each rank is a process, started by launch, torchrun, "
      "mpirun or srun");
  add_choice(verb, "--device", o.device, {DeviceKind::cpu, DeviceKind::cuda},
             "device of the tensors; threads share one GPU, processes have one each; default: cpu, with nccl cuda");
  add_number(verb, "--threads", o.threads,
             "CPU threads of a rank; default: OMP_NUM_THREADS, else its share of cores; emulated ranks: 1", {1, 4096});
  add_number(verb, "--rank", ranks.rank, "this process's rank; default: from the launcher's variables", {0, 1e6});
  add_number(verb, "--ranks", ranks.ranks, "total number of processes; default: from the launcher's variables",
             {1, 1e6});
  add_number(verb, "--ranks-per-node", ranks.ranks_per_node,
             "number of successive processes that count as one node; default: those on one machine", {1, 1e5});
  add_text(verb, "--rendezvous", "HOST:PORT", ranks.rendezvous,
           "address of rank 0; default: MASTER_ADDR and MASTER_PORT, or this machine's loopback");
  add_number(verb, "--timeout", o.timeout_s, "longest time in seconds that a rank waits for another", {0.1, 86400});
  add_number(verb, "--min-ctas", ranks.min_ctas,
             "for nccl: least number of thread blocks of a communicator; 0: NCCL's choice", {0, 64});
  add_number(verb, "--max-ctas", ranks.max_ctas,
             "for nccl: largest number of thread blocks of a communicator, so that experts get the others", {0, 64});
  verb.add_flag("--implicit-launch-order", ranks.implicit_launch_order,
                "for nccl: set NCCL_LAUNCH_ORDER_IMPLICIT, so that launches of several communicators keep their order");
}

// Adds the flags of verbs that run attention.
void add_attention(CLI::App& verb, commands::RunOptions& o) {
  add_choice(verb, "--attention", o.attention, {{"own", AttentionBy::own}, {"torch", AttentionBy::torch}},
             "on GPUs: attention by our kernels, or by LibTorch's, which keep no scores; default: own");
}

template <class Options>
void add_results(CLI::App& verb, Options& o) {
  add_records(verb, o.out, "records (JSON Lines); default: results/VERB-CLUSTER.jsonl");
  add_json(verb, o.json);
}

// Adds the flags of tune for measurements and runs, which --no-verify disables.
void add_verification(CLI::App& verb, tuner::TuneOptions& o) {
  verb.add_flag("!--no-verify", o.verify, "only plan, with the profile as it is; measure and run nothing");
  verb.add_option_function<std::string>(
          "--measure",
          [&o](const std::string& text) {
            o.measured_layers.reset();
            if (text != "all") o.measured_layers = number<int>("--measure", text, {1, 1e6});
          },
          "number of a grid's layers to run; all: also print the measured mean speedups; default: 6")
      ->type_name("N|all");
  verb.add_flag("--measure-degrees", o.measure_degrees,
                "with --measure all: also run fsmoe at degrees 1, 2, 4, 8, and count the layers whose measured best "
                "forward and backward degrees differ; takes twice the time");
  add_number(verb, "--strategy-layers", o.strategy_layers,
             "with --no-verify: number of layers on which FSMoE's strategies are compared with the full search; "
             "default: none",
             {0, 1e6});
  add_number(verb, "--iterations", o.iterations, "timed passes of each schedule; default: 5, or 3 with --measure all",
             {1, 1e6});
  add_number(verb, "--seed", o.seed, "seed of weights, inputs and gate noise", {0, 9e18});
}

// Refuses flags that would have no effect.
void check_tune(const CLI::App& verb, const tuner::TuneOptions& o) {
  const bool one = names_one_model(o);
  for (const char* of_grids : {"--measure", "--measure-degrees", "--strategy-layers"})
    require<BadInput>(!one || verb.count(of_grids) == 0, "{}: found it with one layer or model, expected a grid",
                      of_grids);
  for (const char* of_one : {"--current", "--all", "--top", "--shape", "--global-batch", "--framework"})
    require<BadInput>(one || verb.count(of_one) == 0,
                      "{}: found it with a grid, expected --layer, --model or a layer's flags", of_one);
}
void check_training(const CLI::App& verb, const modelbench::ModelbenchOptions& m) {
  require<BadInput>(verb.count("--momentum") == 0 || m.optimizer == "sgd",
                    "--momentum: found it with --optimizer {}, expected --optimizer sgd", m.optimizer);
  require<BadInput>(verb.count("--markov-order") == 0 || m.text == modelbench::kMarkov,
                    "--markov-order: found it with --text {}, expected --text markov", m.text);
  require<BadInput>(!m.check_only || m.save_weights.empty() || !m.weights.empty(),
                    "--save-weights: found it with --check-only, which trains nothing, expected --weights too");
}

// Adds layerbench's --against, and refuses flags that the comparison with PyTorch does not support.
void add_against(CLI::App& verb, std::string& against) {
  add_choice<std::string>(verb, "--against", against, {{"torch", "torch"}},
                          "instead compare one rank of the layer with PyTorch: eager, compiled, and tutel if it is "
                          "installed; needs Python with torch and the package moetune");
  std::vector<std::string> kept{"--layer",   "--schedule", "--degree-forward", "--degree-backward", "--iterations",
                                "--threads", "--out"};
  for_each_layer_field([&](const auto& field) {
    if (!field.planned_only) kept.push_back(field.flag());
  });
  forbid_other_flags(verb, "--against", kept);
}

}  // namespace

VerbCall add_tune(CLI::App& verb, Command& c) {
  const auto options = std::make_shared<tuner::TuneOptions>();
  tuner::TuneOptions& o = *options;
  set_example(verb, " --cluster host --model tiny-gpt");
  commands::Selection& s = o.selection;
  add_text(verb, "--cluster", "CLUSTER|host|FILE", s.cluster, "profile to emulate; host: this machine, measured");
  add_nodes(verb, s);
  add_text(verb, "--grid", "GRID|FILE", s.grid, "layers to tune; default: the cluster's own");
  add_schedule(verb, s);
  add_model(verb, o.model);
  add_layer(verb, s);
  add_choice(verb, "--shape", o.any_shape, {{"auto", true}, {"given", false}},
             "auto: also search groups, stages and micro-batches, at the same global batch; default: given");
  add_global_batch(verb, o.global_batch);
  add_framework(verb, o.model);
  verb.add_option("--current",
                  "for a layer or a model: your current schedule and layout, to compare with the best one and to show "
                  "the changes that lead there, as tutel:2:2,mp=2,ep=8,micro-batches=8,zero=1,recompute=full (NAME: "
                  "--batch, --global-batch, --zero, --recompute, and flags of groups and micro-batches), or as a file: "
                  "Megatron-Core's arguments, YAML of Megatron-Bridge or NeMo, DeepSpeed's JSON, torchtitan's TOML")
      ->type_name("SCHEDULE[:R_F[:R_B]]|FILE[,NAME=VALUE..]");
  verb.add_option("--measured",
                  "with --current: measured seconds of a training step, or a training's log (Megatron-Core, NeMo, "
                  "Megatron-Bridge, DeepSpeed), to compare with the prediction")
      ->type_name("FILE|SECONDS");
  begin_group(verb, kHowHeading);
  add_states(verb, s);
  add_planned_fields(verb, s);
  add_degrees(verb, s);
  add_verification(verb, o);
  add_ranks(verb, o, c.ranks);
  add_attention(verb, o);
  verb.add_flag(
      "--strict", o.strict,
      "exit code 5 if a WEAK fit prices a compared plan, or if runs were disturbed or far from their prediction");
  verb.add_flag("--all", o.run_all,
                "for a layer or a model: run every schedule, and print everything that the short answer leaves out");
  begin_group(verb, kOutput);
  add_number(verb, "--top", o.top,
             "for a layer or a model: the long answer, with N schedules and shapes; default: at most 25 lines",
             {1, 1000});
  add_trace(verb, o.trace,
            "write a Perfetto timeline of one verified layer; default: beside the records; with --no-verify of a "
            "planned layer; default: none");
  add_results(verb, o);
  for (const char* runs : {"--measure", "--measure-degrees", "--iterations", "--seed", "--timeout", "--backend",
                           "--device", "--attention", "--threads", "--min-ctas", "--max-ctas",
                           "--implicit-launch-order", "--rank", "--ranks", "--rendezvous", "--ranks-per-node"})
    verb.get_option(runs)->excludes("--no-verify");
  needs(verb, "--measured", {"--current"});
  for (const char* plans : {"--strategy-layers", "--nodes"}) needs(verb, plans, {"--no-verify"});
  for_each_layer_field([&](const auto& field) {
    if (field.planned_only) needs(verb, field.flag(), {"--no-verify"});
  });
  verb.final_callback([&verb, options] {
    check_tune(verb, *options);
    const auto text = [&](const char* flag) { return verb.get_option(flag)->as<std::string>(); };
    if (verb.count("--current") > 0) options->current = current_layout(text("--current"));
    if (verb.count("--measured") > 0) options->current->measured = measured_steps(text("--measured"));
    for (const char* other : {"simulate", "layerbench", "modelbench"})
      options->given_for[other] = shared_flags(*verb.get_parent()->get_subcommand(other), verb);
  });
  VerbCall call = running(options, &RunVerbs::tune, o.selection.cluster);
  call.run = [options] { return tuner::run_planned_tune(*options); };
  call.plans_only = [options] { return !options->verify; };
  return call;
}

VerbCall add_microbench(CLI::App& verb, Command& c) {
  const auto options = std::make_shared<microbench::MicrobenchOptions>();
  microbench::MicrobenchOptions& m = *options;
  set_example(verb, " --cluster testbed-b --repetitions 5");
  add_text(verb, "--cluster", "CLUSTER|host|FILE", m.cluster, "profile to emulate; host: this machine, measured");
  verb.add_option("--op", m.ops, "only these operations; default: all, and also contention of lanes and overheads")
      ->type_name("OP[,..]")
      ->delimiter(',');
  add_bytes(verb, "-b,--min-bytes", m.min_bytes, "smallest size of collectives: 64K, 1M, ...; default: the largest");
  add_bytes(
      verb, "-e,--max-bytes", m.max_bytes,
      "largest size of collectives; default: the smallest; without both flags: FSMoE's sizes, or a share of them");
  add_number(verb, "-f,--step-factor", m.step_factor, "ratio of successive sizes", {1.0001, 1e6});
  add_bytes(verb, "-i,--step-bytes", m.step_bytes, "difference between successive sizes, instead of -f");
  add_text(verb, "-d,--dtype", "float32|float64|float16|bfloat16", m.dtype,
           "type of collectives and GEMMs; 16-bit GEMMs only run on GPUs");
  verb.add_flag(
      "--modules{all}", m.modules,
      "with --cluster host: also time attention, gates, orders and experts: all, or =NAME[,NAME]; on a GPU, time the "
      "tasks of layers on one rank: all, or =MODEL[,MODEL]");
  verb.add_flag("--kernels", m.kernels,
                "instead check and time the layer's own kernels on --device, compared with copies and plain GEMMs");
  begin_group(verb, kHowHeading);
  add_number(verb, "--repetitions", m.repetitions, "samples of each size", {1, 1e6});
  add_number(verb, "-n,--iterations", m.iterations, "runs of an op in one sample; 0: chosen by the op's time",
             {0, 1e6});
  add_number(verb, "-w,--warmup", m.warm_ups, "runs of an op before its samples", {1, 1e6});
  add_number(verb, "-c,--check", m.check, "1: count wrong elements; 0: do not check", {0, 1});
  add_ranks(verb, m, c.ranks);
  begin_group(verb, kOutput);
  add_results(verb, m);
  for (const char* step : {"--step-factor", "--step-bytes"}) needs(verb, step, {"--min-bytes", "--max-bytes"});
  verb.get_option("--step-factor")->excludes("--step-bytes");
  forbid_other_flags(verb, "--kernels", {"--repetitions", "--json", "--device", "--out", "--overwrite"});
  return running(options, &RunVerbs::microbench, m.cluster);
}

VerbCall add_layerbench(CLI::App& verb, Command& c) {
  const auto options = std::make_shared<layerbench::LayerbenchOptions>();
  layerbench::LayerbenchOptions& l = *options;
  commands::Selection& s = l.selection;
  set_example(verb, " --cluster testbed-b --batch 2 --seq 256 --model-dim 1024 --hidden 2048");
  add_text(verb, "--cluster", "CLUSTER|host|FILE", s.cluster, "profile to emulate; host: this machine, measured");
  add_text(verb, "--grid", "GRID|FILE", s.grid, "layers of a grid instead of one layer");
  add_number(verb, "--grid-layers", l.layers,
             "with --grid: number of its layers to run, chosen to differ; 0: all; default: 6", {0, 1e6});
  add_number(verb, "--drawn", l.drawn,
             "with --grid: instead run N random layers (--seed) within its ranges that are not layers of the grid",
             {1, 1e4});
  verb.add_option("--only", l.only, "with --grid: only the layers with these names")
      ->type_name("NAME[,..]")
      ->delimiter(',');
  add_schedule(verb, s);
  add_stack(verb, l.stack, "number of layers, each of which feeds the next; default: 1");
  add_layer(verb, s);
  begin_group(verb, kHowHeading);
  add_recompute(verb, s);
  add_offload(verb, s);
  add_degrees(verb, s);
  add_plan(verb, l.plan, {"--cluster", "--nearest"});  // the flags added after this line are allowed with it
  verb.add_flag("--check-only", l.check_only, "only verify outputs and gradients, without timing");
  verb.add_flag("!--no-predict", l.predict, "with both degrees: only measure the layer, without a prediction");
  add_number(verb, "--iterations", l.iterations,
             "timed passes of each schedule; default: 5, or more if passes are not emulated and take less than a "
             "second together",
             {1, 1e6});
  add_number(verb, "--seed", l.seed, "seed of weights, inputs and gate noise", {0, 9e18});
  add_text(verb, "--slow", "KIND:FACTOR[:RANK]", l.slow,
           "slow down tasks of a kind on purpose: expert:1.1, or only on rank 3: expert:1.1:3");
  verb.add_flag("--graphs", l.graphs,
                "on GPUs: also time passes that are replayed as CUDA graphs, alternating with issued passes");
  verb.add_flag("--profile", l.profile,
                "on GPUs: run one more pass of each schedule between cudaProfilerStart and -Stop, for Nsight");
  add_text(verb, "--workload", "gate|balanced|zipf:S|hot[:EXPERT]|trace:FILE", l.workload,
           "how tokens choose experts (trace: CSV of token, layer, experts)");
  add_ranks(verb, l, c.ranks);
  add_attention(verb, l);
  begin_group(verb, kOutput);
  add_trace(verb, l.trace, "write a Perfetto timeline with measured lanes above simulated lanes");
  verb.add_flag("--tasks", l.tasks, "print the time of each kind of task and its prediction");
  add_text(verb, "--dump", "FOLDER", l.dump,
           "write every rank's tensors and gradients as safetensors into FOLDER/SCHEDULE");
  add_text(verb, "--record-routing", "FILE", l.record_routing,
           "write the experts that tokens chose under the first schedule, as a routing trace");
  add_results(verb, l);
  for (const char* of_grid : {"--grid-layers", "--drawn", "--only"}) needs(verb, of_grid, {"--grid"});
  verb.get_option("--drawn")->excludes("--grid-layers")->excludes("--only");
  for (const char* stack : {"--layers", "--micro-batches", "--pipeline", "--virtual-stages", "--recompute", "--offload",
                            "--record-routing"})
    verb.get_option(stack)->excludes("--grid");
  for (const char* times : {"--iterations", "--trace", "--tasks", "--graphs", "--profile"})
    verb.get_option(times)->excludes("--check-only");
  for (const char* stack : {"--layers", "--micro-batches"}) verb.get_option(stack)->excludes("--graphs");
  verb.get_option("--tasks")->excludes("--json");  // JSON always has the tasks
  needs(verb, "--no-predict", {"--degree-forward", "--degree-backward"});
  for (const char* predicted : {"--trace", "--tasks", "--check-only"})
    verb.get_option(predicted)->excludes("--no-predict");
  verb.get_option("--slow")->excludes("--check-only");
  begin_group(verb, kHowHeading);
  const std::vector<std::string> trains{"--grid",           "--schedule",
                                        "--micro-batches",  "--pipeline",
                                        "--virtual-stages", "--recompute",
                                        "--offload",        "--plan",
                                        "--degree-forward", "--degree-backward",
                                        "--micro-op-bytes", "--min-chunk-bytes",
                                        "--check-only",     "--no-predict",
                                        "--slow",           "--graphs",
                                        "--profile",        "--workload",
                                        "--attention",      "--trace",
                                        "--tasks",          "--dump",
                                        "--record-routing"};
  add_serve(verb, l.serve, s.cluster, layerbench::kRunBatches, trains);
  add_against(verb, l.against);
  VerbCall call = running(options, &RunVerbs::layerbench, l.selection.cluster);
  call.run = [options] {
    return commands::run_beside_torch({options->selection, options->iterations, options->threads, options->out});
  };
  call.plans_only = [options] { return !options->against.empty(); };
  return call;
}

VerbCall add_modelbench(CLI::App& verb, Command& c) {
  const auto options = std::make_shared<modelbench::ModelbenchOptions>();
  modelbench::ModelbenchOptions& m = *options;
  commands::Selection& s = m.selection;
  set_example(verb, " --cluster host --model tiny-gpt --schedule tutel,fsmoe --steps 20");
  add_text(verb, "--cluster", "CLUSTER|host|FILE", s.cluster, "profile to emulate; host: this machine, measured");
  add_schedule(verb, s);
  add_model(verb, m.model);
  add_layer(verb, s);
  verb.remove_option(verb.get_option("--layer"));  // the model determines the layers
  verb.get_option("--model")->description("a whole model (configs/models/); default: gpt2-xl@fsmoe, on host tiny-gpt");
  verb.get_option("--layers")
      ->description("number of layers; default: the model's, or as many as fit into a rank's memory");
  begin_group(verb, kHowHeading);
  add_number(verb, "--zero", s.layer.zero,
             "ZeRO stage; 1: shards optimizer states over the ranks with the same weights; default: 0", {0, 1});
  add_recompute(verb, s);
  add_offload(verb, s);
  add_degrees(verb, s);
  add_plan(verb, m.plan, {"--cluster"});
  verb.add_flag(
      "--online-packing", m.online_packing,
      "let lina-packed begin without packing, and double the experts of a device when Lina's controller decides "
      "so, after step 10 and every fourth step from then on");
  verb.get_option("--online-packing")->excludes("--plan");
  verb.add_flag("--check-only", m.check_only, "only verify the first step's gradients, without training or timing");
  add_number(verb, "--steps", m.steps, "training steps of each schedule, all timed; default: 5", {1, 1e7});
  add_text(verb, "--text", "markov|bytes|FILE", m.text,
           "training text: a random language of known entropy, this project's sources, or a file's bytes");
  add_number(verb, "--markov-order", m.markov_order,
             "for markov: number of preceding tokens that determine the next token's distribution; default: 2", {1, 4});
  add_text(verb, "--optimizer", "adamw|sgd", m.optimizer, "optimizer of the weights");
  add_number(verb, "--learning-rate", m.learning_rate,
             "peak learning rate; it falls to a tenth along a cosine; default: 0.003", {0, 1e3});
  add_number(verb, "--warm-up", m.warm_up, "steps over which the learning rate grows; default: 0", {0, 1e7});
  add_number(verb, "--momentum", m.momentum, "momentum of sgd; default: 0.9", {0, 1});
  add_number(verb, "--weight-decay", m.weight_decay, "decay of weights except those of norms; default: 0", {0, 1e3});
  add_number(verb, "--clip-norm", m.clip_norm, "largest norm of all gradients; 0: no clipping; default: 1", {0, 1e12});
  add_number(verb, "--held-out", m.held_out, "batches of held-out text for a loss at the end; 0: none; default: 8",
             {0, 1e6});
  add_number(verb, "--seed", m.seed, "seed of weights, text and gate noise", {0, 9e18});
  add_text(verb, "--checkpoint", "FOLDER", m.checkpoint,
           "for one schedule: save weights and optimizer states here, and resume from them, on any number of ranks");
  add_number(verb, "--checkpoint-every", m.checkpoint_every,
             "steps between checkpoints; default: only at the end, and on SIGTERM or Ctrl-C", {1, 1e7});
  needs(verb, "--checkpoint-every", {"--checkpoint"});
  add_text(verb, "--weights", "FILE", m.weights,
           "start from these GPT-2 weights (safetensors with the names of the public checkpoints)");
  add_ranks(verb, m, c.ranks);
  add_attention(verb, m);
  add_number(verb, "--peak-flops", m.peak_flops,
             "peak FLOP/s of a rank, for model FLOPs utilisation; default: that of the profile's GEMMs", {1, 1e18});
  begin_group(verb, kOutput);
  add_trace(verb, m.trace, "write a Perfetto timeline of a step with measured lanes above simulated lanes");
  verb.add_flag("--tasks", m.tasks, "print the time of each kind of task and its prediction");
  add_text(verb, "--dump", "FOLDER", m.dump,
           "write the first step's tokens, loss, weights and gradients as safetensors into FOLDER/SCHEDULE");
  add_text(verb, "--record-routing", "FILE", m.record_routing,
           "write the experts that tokens chose in the first step, as a routing trace");
  add_text(verb, "--save-weights", "FILE", m.save_weights,
           "for one schedule: write the weights after its last step, in the format of --weights");
  add_save_plan(verb, m.save_plan);
  add_results(verb, m);
  verb.get_option("--tasks")->excludes("--json");  // JSON always has the tasks
  for (const char* trains : {"--steps", "--trace", "--tasks", "--optimizer", "--learning-rate", "--warm-up",
                             "--weight-decay", "--clip-norm", "--held-out", "--checkpoint", "--peak-flops"})
    verb.get_option(trains)->excludes("--check-only");
  verb.final_callback([&verb, options] { check_training(verb, *options); });
  return running(options, &RunVerbs::modelbench, m.selection.cluster);
}

std::string_view name_of(Backend backend) {
  static constexpr EnumArray<Backend, std::string_view, 3> kNames{"local", "gloo", "nccl"};
  return kNames[backend];
}

void check_backend(const CLI::App& verb, const RanksFlags& ranks) {
  if (verb.get_option_no_throw("--backend") == nullptr) return;
  const auto asked = [&](const std::string& flag) { return verb.count(flag) > 0; };
  for (const char* flag : {"--min-ctas", "--max-ctas", "--implicit-launch-order"})
    require<BadInput>(!asked(flag) || ranks.backend == Backend::nccl,
                      "{}: found it with --backend {}, expected --backend nccl", flag, name_of(ranks.backend));
  for (const char* flag : {"--rank", "--ranks", "--rendezvous", "--ranks-per-node"})
    require<BadInput>(!asked(flag) || ranks.backend != Backend::local,
                      "{}: found it with --backend local, whose ranks are threads, expected --backend gloo or nccl",
                      flag);
  require<BadInput>(
      ranks.backend != Backend::nccl || !asked("--device") || verb.get_option("--device")->as<std::string>() == "cuda",
      "--device: found cpu with --backend nccl, expected cuda");
}

namespace {

// Returns the command that launch starts, with --backend gloo unless it names a backend, and with launch's --quiet,
// --verbose, --wide and --max-input. Sets the ranks' time-out. Throws BadInput if the command cannot be launched.
std::vector<std::string> launched(std::vector<std::string> words, const Command& c, LaunchOptions& options) {
  std::vector<std::string_view> startable;
  for (const Verb& verb : all_verbs())
    if (verb.runs_layers()) startable.push_back(verb.name);
  require<BadInput>(!words.empty(), "launch: found no command, expected -- VERB and its flags");
  require<BadInput>(std::ranges::find(startable, words.front()) != startable.end(),
                    "launch: found '{}', expected one of: {}", words.front(), fmt::join(startable, ", "));
  const bool backend = std::ranges::any_of(words, [](const std::string& w) { return w.starts_with("--backend"); });
  if (!backend) words.insert(words.end(), {"--backend", "gloo"});
  if (c.log == LogLevel::errors) words.emplace_back("--quiet");
  if (c.log == LogLevel::decisions) words.emplace_back("--verbose");
  if (c.wide) words.emplace_back("--wide");
  if (c.max_input != kDefaultMaxInputBytes) words.push_back(fmt::format("--max-input={}", c.max_input));
  std::vector<const char*> argv{"moetune"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto started = parse_command_line(static_cast<int>(argv.size()), argv.data());
  if (!started) return {};  // --help was requested
  const RanksFlags& ranks = started->ranks;
  require<BadInput>(ranks.backend != Backend::local,
                    "--backend: found local with launch, expected gloo or nccl, whose ranks are processes");
  require<BadInput>(!ranks.rank && !ranks.ranks,
                    "launch: found --rank or --ranks after --, expected --ranks N before --");
  require<BadInput>(ranks.ranks_per_node == 0 || options.ranks % ranks.ranks_per_node == 0,
                    "--ranks-per-node: found {}, expected a divisor of launch's --ranks {}", ranks.ranks_per_node,
                    options.ranks);
  options.timeout_s = ranks.timeout_s;
  return words;
}

int launch(const LaunchOptions& options) {
  return options.command.empty() ? int{kOk} : run_launch(options, std::filesystem::read_symlink("/proc/self/exe"));
}

}  // namespace

VerbCall add_launch(CLI::App& verb, Command& c) {
  const auto options = std::make_shared<LaunchOptions>();
  set_example(verb, " --ranks 4 -- layerbench --ranks-per-node 2 --batch 1 --seq 128 --model-dim 128");
  add_number(verb, "--ranks", options->ranks, "number of processes", {1, 1024});
  VerbCall call = planning(options, launch);
  call.take_command = [options, &c](std::vector<std::string> words) {
    options->command = launched(std::move(words), c, *options);
  };
  return call;
}

}  // namespace moe::cli
