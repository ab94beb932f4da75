#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

#include "cli/flag_kinds.h"

namespace moe {
namespace {

int64_t bytes_from(const std::string& flag, const std::string& text) {
  const size_t unit = text.empty() ? std::string::npos : std::string("KMG").find(text.back());
  const bool plain = unit == std::string::npos;
  const auto value = number<int64_t>(flag, plain ? text : text.substr(0, text.size() - 1), 0, 1e12);
  return plain ? value : value << (10 * (unit + 1));
}

void add_model(CLI::App& verb, ModelFlags& m) {
  verb.add_option("--model", m.model, "model NAME or FILE (configs/models/)");
  add_number(verb, "--layers", m.layers, "layers; default: the model's, or 1", 1, 1e5);
  add_number(verb, "--micro-batches", m.micro_batches, "micro-batches of --batch samples each", 1, 1e6);
  verb.add_option("--pipeline", m.pipeline, "gpipe | 1f1b: order of several micro-batches; default: gpipe");
}

}  // namespace

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
  add_number(verb, "--experts", l.experts, "experts in all (E); default: one a node, on one node one a rank", 1);
  add_number(verb, "--top-k", l.top_k, "experts a token (k)", 1);
  verb.add_option("--capacity-factor", l.capacity_factor, "f, or none: dropless");
  verb.add_option("--capacity-rounding", l.rounding, "ragged | lcm | exact | tutel | deepspeed | megatron");
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
  add_number(verb, "--mp", l.mp, "model-parallel group size; default: ranks a node, on one node 1", 1, 1e6);
  add_number(verb, "--ep", l.ep,
             "expert-parallel group size; default: min(nodes, experts), on one node min(ranks, experts)", 1, 1e6);
  add_number(verb, "--esp", l.esp, "expert-sharding group size; default: ranks a node, on one node 1", 1, 1e6);
  add_number(verb, "--pp", l.pp, "pipeline stages", 1, 1e6);
  verb.add_option("--placement", l.placement, "esp-inside | ep-inside: which ranks of an expert group are neighbours");
}

void stands_alone(CLI::App& verb, const std::string& flag, const std::vector<std::string>& kept) {
  CLI::Option* alone = verb.get_option(flag);
  for (CLI::Option* other : verb.get_options()) {
    const bool stays = std::ranges::any_of(kept, [&](const std::string& name) { return other->check_name(name); });
    if (other != alone && other != verb.get_help_ptr() && !stays) alone->excludes(other);
  }
}

void needs(CLI::App& verb, const std::string& flag, const std::vector<std::string>& others) {
  for (const std::string& other : others) verb.get_option(flag)->needs(verb.get_option(other));
}

void add_records(CLI::App& verb, std::string& out, const std::string& help) {
  verb.add_option("--out", out, help);
  const std::string meaning = "the records file may hold other runs: what it holds makes room";
  verb.add_flag("--overwrite", meaning);
}

CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& what, const std::string& example) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->footer("example:\n  ./moetune " + name + example);
  return verb;
}

namespace {

void add_planning_verbs(CLI::App& app, Command& c) {
  CLI::App* list =
      add_verb(app, "list", "schedules, clusters, grids, layers, gates, orders, dispatchers, hooks, ffns", "");
  list->add_flag("--json", c.list.json, "one JSON document");

  CLI::App* simulate =
      add_verb(app, "simulate", "one layer or model, one schedule -> timeline, lane loads, bounds, memory",
               " --cluster testbed-b --schedule fsmoe --batch 4 --seq 1024 --model-dim 2048 --hidden 8192");
  add_selection(*simulate, c.simulate.selection, false);
  add_layer(*simulate, c.simulate.selection);
  add_model(*simulate, c.simulate.model);
  simulate->add_option("--partition", c.simulate.partition,
                       "exact | paper | step1 | none: how a model's gradients are spread over its layers; default: "
                       "exact");
  planner::NoiseFlags& noise = c.simulate.noise;
  add_number(*simulate, "--jitter", noise.jitter, "replay all ranks too: variation of every task (0.1: 10 %)", 0, 10);
  simulate->add_option("--straggler", noise.stragglers, "RANK:FACTOR[,...]: slow ranks")->delimiter(',');
  add_number(*simulate, "--zipf", noise.zipf, "uneven routing of a dropless layer: Zipf's exponent", 0, 10);
  add_number(*simulate, "--samples", noise.samples, "replays with other jitter; default: 100", 1, 1e6);
  add_number(*simulate, "--seed", noise.seed, "seed of jitter and of the experts' popularity; default: 1", 0, 9e18);
  simulate->add_option("--trace", c.simulate.trace, "write a Perfetto timeline to FILE");
  add_records(*simulate, c.simulate.out, "write records, timelines included, to FILE (JSON Lines)");
  simulate->add_flag("--sweep-degrees", c.simulate.sweep_degrees,
                     "with --out: a record of each degree from 1 to 64 too");
  simulate->add_flag("--json", c.simulate.json, "one JSON document on stdout");
  needs(*simulate, "--sweep-degrees", {"--out"});
  needs(*simulate, "--overwrite", {"--out"});

  CLI::App* fit = add_verb(app, "fit", "microbench records -> cluster profile (alpha, beta, r^2, held-out error)",
                           " --records results/microbench-testbed-b.jsonl --out results/mine.toml");
  fit->add_option("--records", c.fit.records, "records FILE of microbench or tune")->capture_default_str();
  fit->add_option("--name", c.fit.name, "name of the profile; default: CLUSTER-fitted");
  fit->add_option("--out", c.fit.out, "profile FILE; default: results/NAME.toml");
  fit->add_flag("--json", c.fit.json, "one JSON document on stdout");

  CLI::App* bench = add_verb(app, "plannerbench", "how fast and how lean tuning and replays are, beside their limits",
                             " --json > planner.json");
  bench->add_flag("--json", c.plannerbench.json, "Google Benchmark's JSON on stdout");
}

void add_shape_verbs(CLI::App& app, Command& c) {
  planner::MemoryOptions& m = c.memory;
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
  stands_alone(*memory, "--parm", {"--top-k", "--experts", "--json"});

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
  add_records(*verb, c.reproduce.out, "records FILE; default: results/reproduce-TABLE.jsonl");
  verb->add_flag("--json", c.reproduce.json, "one JSON document on stdout");
}

}  // namespace

void add_verbs(CLI::App& app, Command& command) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "moetune " MOETUNE_VERSION);
  app.get_formatter()->column_width(28);
  add_planning_verbs(app, command);
  add_running_verbs(app, command);
  add_shape_verbs(app, command);
  add_reproduce(app, command);
  add_launch(app, command);
}

namespace {

void require_verb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc > 1 && argv[1][0] == '-') return;  // --help, --version, or CLI11's business
  std::string known;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (argc > 1 && verb->get_name() == argv[1]) return;
    known += (known.empty() ? "" : ", ") + verb->get_name();
  }
  bad_input("verb: found {}, expected one of: {}", argc > 1 ? fmt::format("'{}'", argv[1]) : "none", known);
}

// What records do not depend on: where things are written, how it is shown, how processes meet. A new flag is in.
constexpr std::array<std::string_view, 9> kOfNoRecord{"--json",  "--out",   "--overwrite", "--trace",     "--dump",
                                                      "--write", "--tasks", "--rank",      "--rendezvous"};

Asked asked_by(const CLI::App& verb, std::vector<std::string> argv) {
  Asked asked;
  asked.argv = std::move(argv);
  asked.flags = {verb.get_name()};
  for (const CLI::Option* option : verb.get_options())
    if (option->count() > 0 && std::ranges::find(kOfNoRecord, option->get_name()) == kOfNoRecord.end())
      asked.flags.push_back(fmt::format("{}={}", option->get_name(), fmt::join(option->results(), ",")));
  const auto given = [&](const char* flag) {
    const CLI::Option* option = verb.get_option_no_throw(flag);
    return option != nullptr && option->count() > 0;
  };
  asked.named_file = given("--out");
  asked.overwrite = given("--overwrite");
  asked.otherwise = "another --out, or --overwrite";
  return asked;
}

}  // namespace

std::optional<Command> parse_command_line(int argc, const char* const* argv) {
  Command command;
  CLI::App app("moetune: benchmark and autotuning suite for the training of Mixture-of-Experts layers", "moetune");
  add_verbs(app, command);
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
  check_backend(*app.get_subcommands().front(), command.ranks);
  const bool processes = command.ranks.backend != "local";
  if (processes && app.get_subcommands().front()->count("--cluster") == 0)
    command.tune.selection.cluster = command.layerbench.selection.cluster = command.microbench.cluster =
        std::string(kHostCluster);
  if (command.ranks.backend == "nccl")
    command.tune.device = command.layerbench.device = command.microbench.device = DeviceKind::cuda;
  command.simulate.asked = command.tune.asked = command.microbench.asked = command.layerbench.asked =
      command.reproduce.asked = asked_by(*app.get_subcommands().front(), {argv, argv + argc});
  return command;
}

bool runs_layers(const Command& c) {
  return c.verb == "microbench" || c.verb == "layerbench" || (c.verb == "tune" && c.tune.verify);
}

}  // namespace moe