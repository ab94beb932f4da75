#include "commands/cli/flags.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <utility>

#include "commands/cli/commit.h"
#include "commands/cli/flag_kinds.h"
#include "commands/cli/verbs.h"
#include "commands/doctor/doctor.h"
#include "commands/exchange/exchange.h"
#include "commands/list.h"
#include "commands/memory.h"
#include "commands/model.h"
#include "commands/placement.h"
#include "commands/plannerbench.h"
#include "commands/regress/ab.h"
#include "commands/regress/compare.h"
#include "commands/regress/history.h"
#include "commands/regress/self_test.h"
#include "commands/report/report.h"
#include "commands/reproduce/reproduce.h"
#include "commands/shared/frameworks.h"
#include "commands/simulate.h"
#include "moe/base/config_files.h"
#include "moe/base/text.h"
#include "tuner/fit.h"

namespace moe::cli {
namespace {

constexpr const char* kClusterHelp =
    "profile: a name, a file, or a composition GPU-NODESxGPUS-NETWORK (h100-4x8-ib-400)";

void require_verb(int argc, const char* const* argv) {
  constexpr std::array<std::string_view, 3> kOfNoVerb{"-h", "--help", "--version"};
  const bool stands_later = std::any_of(argv + 1, argv + argc, [](const char* word) { return find_verb(word); });
  if (argc > 1 && argv[1][0] == '-' && stands_later) return;  // refuse_word names the word before the verb
  if (argc > 1 && std::ranges::find(kOfNoVerb, argv[1]) != kOfNoVerb.end()) return;
  if (argc > 1 && find_verb(argv[1]) != nullptr) return;
  std::vector<std::string_view> known;
  for (const Verb& verb : all_verbs()) known.push_back(verb.name);
  if (argc < 2) bad_input("verb: found none, expected one of: {}", fmt::join(known, ", "));
  bad_input("verb: found '{}', expected one of: {}{}", argv[1], fmt::join(known, ", "), suggestion(argv[1], known));
}

// Synonyms for groups and micro-batches beside those in Framework::settings, with the flags that they correspond to.
constexpr std::pair<std::string_view, std::string_view> kWords[]{
    {"--tp", "--mp"},
    {"--tensor-parallel", "--mp"},
    {"--tensor-parallel-size", "--mp"},
    {"--data-parallel-size", "--dp"},
    {"--expert-parallel-size", "--ep"},
    {"--etp", "--esp"},
    {"--pipeline-parallel-size", "--pp"},
    {"--num-experts", "--experts"},
    {"--moe-router-topk", "--top-k"},
    {"--num-micro-batches", "--micro-batches"},
    {"--num-microbatches", "--micro-batches"},
    {"--gradient-accumulation-steps", "--micro-batches"},
    {"--virtual-pipeline-model-parallel-size", "--virtual-stages"},
    {"--num-layers", "--layers"},
    {"--seq-length", "--seq"},
    {"--hidden-size", "--model-dim"},
    {"--ffn-hidden-size", "--hidden"},
    {"--moe-ffn-hidden-size", "--hidden"},
    {"--num-attention-heads", "--heads"},
    {"--num-query-groups", "--kv-heads"},
    {"--kv-channels", "--head-dim"},
    {"--output", "--out"},
    {"--gpu", "--cluster"},
    {"--network", "--cluster"},
    {"--nproc-per-node", "--ranks"},
    {"--nproc_per_node", "--ranks"},
};

// Refuses the first word that the verb does not have, because the words after it may be its values.
[[noreturn]] void refuse_word(const CLI::App& app) {
  const CLI::App& verb = *app.get_subcommands().front();
  const std::vector<std::string> left = verb.remaining(), outside = app.remaining();
  if (left.empty())
    bad_input("{}: found '{}' outside its flags, expected it after the verb and before --", verb.get_name(),
              fmt::join(outside, " "));
  const auto flag = std::ranges::find_if(left, [](const std::string& word) { return word.starts_with('-'); });
  const std::string& word = flag == left.end() ? left.front() : *flag;
  if (find_verb(verb.get_name())->starts_other_programs && flag == left.end())
    bad_input("{}: found '{}', expected -- before the command to start", verb.get_name(), word);
  bad_input("{}: found '{}', expected a flag of this verb{}; --help lists them", verb.get_name(), word,
            suggestion_for(word, verb));
}

// The flags on which records do not depend: where output goes, how it is shown, and how processes connect. Records
// depend on all other flags, including future ones.
constexpr std::array<std::string_view, 25> kFlagsOutsideRecords{"--wide",
                                                                "--json",
                                                                "--top",
                                                                "--gantt",
                                                                "--out",
                                                                "--overwrite",
                                                                "--trace",
                                                                "--dump",
                                                                "--write",
                                                                "--tasks",
                                                                "--rank",
                                                                "--rendezvous",
                                                                "--quiet",
                                                                "--verbose",
                                                                "--checkpoint",
                                                                "--checkpoint-every",
                                                                "--markdown",
                                                                "--strict",
                                                                "--save-weights",
                                                                "--max-input",
                                                                "--save-plan",
                                                                "--trace-layers",
                                                                "--trace-micro-batches",
                                                                "--write-profile",
                                                                "--record-routing"};

// Returns the option of a flag that was given; null if it was not, or if the verb does not have it.
const CLI::Option* given_option(const CLI::App& verb, const std::string& flag) {
  const CLI::Option* option = verb.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0 ? option : nullptr;
}

Invocation invocation_of(const CLI::App& verb, std::vector<std::string> argv) {
  Invocation invocation;
  invocation.argv = std::move(argv);
  invocation.flags = {verb.get_name()};
  for (const CLI::Option* option : verb.get_options())
    if (option->count() > 0 &&
        std::ranges::find(kFlagsOutsideRecords, option->get_name()) == kFlagsOutsideRecords.end())
      invocation.flags.push_back(fmt::format("{}={}", option->get_name(), fmt::join(option->results(), ",")));
  invocation.has_named_file = given_option(verb, "--out") != nullptr;
  invocation.overwrite = given_option(verb, "--overwrite") != nullptr;
  invocation.alternative = "another --out, or --overwrite";
  invocation.built_from = built_from();
  return invocation;
}

// Flags of one process among several; the command that starts the processes sets them.
constexpr std::array<std::string_view, 3> kProcessFlags{"--rank", "--ranks", "--rendezvous"};

// Returns the files and folders that the command writes at its end, without the records, which their writer opens
// earlier. Throws BadInput if two of these files, including the records, are the same.
std::vector<OutTarget> targets_of(const CLI::App& verb) {
  std::vector<OutTarget> targets;
  for (const auto& [flag, is_folder] : {std::pair("--trace", false),
                                        {"--save-weights", false},
                                        {"--save-plan", false},
                                        {"--write", false},
                                        {"--write-profile", false},
                                        {"--record-routing", false},
                                        {"--plot", false},
                                        {"--dump", true},
                                        {"--checkpoint", true}})
    if (const CLI::Option* option = given_option(verb, flag))
      targets.push_back({flag, option->as<std::string>(), is_folder});
  std::vector<OutTarget> all = targets;
  if (const CLI::Option* out = given_option(verb, "--out")) all.push_back({"--out", out->as<std::string>()});
  require_distinct(all);
  return targets;
}

// Checks the flags for ranks of a verb that runs layers, and sets the options that depend on the backend.
void set_ranks(const CLI::App& verb, Command& command) {
  const Backend backend = command.ranks.backend;
  command.ranks.timeout_s = command.call.layers->timeout_s;
  check_backend(verb, command.ranks);
  if (backend != Backend::local && verb.count("--cluster") == 0) *command.call.cluster = commands::kHostCluster;
  if (backend == Backend::nccl) command.call.layers->device = DeviceKind::cuda;
}

int exit_code_of_doctor(const doctor::DoctorOptions& options) {
  return doctor::run_doctor(options) ? int{kOk} : int{kDoubtful};
}

}  // namespace

std::vector<tuner::GivenFlag> shared_flags(const CLI::App& other, const CLI::App& verb) {
  std::vector<tuner::GivenFlag> given;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    const bool is_output = option->get_group() == kOutput && name != "--max-input";
    if (option->count() == 0 || is_output || other.get_option_no_throw(name) == nullptr ||
        std::ranges::find(kProcessFlags, name) != kProcessFlags.end())
      continue;
    const bool takes_value = option->get_items_expected_max() > 0;
    given.push_back({name, takes_value ? fmt::format("{}", fmt::join(option->results(), ",")) : ""});
  }
  return given;
}

std::string suggestion_for(const std::string& word, const CLI::App& verb) {
  if (!word.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string name = word.substr(0, word.find('='));
  const auto ours_of = [&](std::string_view theirs, std::string_view ours) {
    return name == theirs && std::ranges::find(known, ours) != known.end();
  };
  for (const auto& [theirs, ours] : kWords)
    if (ours_of(theirs, ours)) return fmt::format("; '{}' is '{}' here", theirs, ours);
  for (const commands::Framework& framework : commands::frameworks())
    for (const commands::SettingsFormat& format : framework.formats)
      for (const commands::SettingName& name_of : format.names)
        if (ours_of(name_of.theirs, name_of.flag))
          return fmt::format("; '{}' is '{}' here", name_of.theirs, name_of.flag);
  return suggestion(name, known);
}

namespace {

// Refuses `--flag=`, which CLI11 would give the next word as its value.
void refuse_empty_values(const CLI::App& verb, std::span<const char* const> words) {
  for (const std::string_view word : words) {
    if (word == "--") return;
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    const std::string name(word.substr(0, word.size() - 1));
    require<BadInput>(verb.get_option_no_throw(name) == nullptr, "{}: found an empty value after =, expected a value",
                      name);
  }
}

// Refuses the flag that a parser's error names if it has too many values, or none.
void refuse_number_of_values(const CLI::App& verb, std::string_view error) {
  const CLI::Option* const option = verb.get_option_no_throw(std::string(error.substr(0, error.find(':'))));
  if (option == nullptr) return;
  const std::vector<std::string>& values = option->results();
  require<BadInput>(static_cast<int>(values.size()) <= option->get_items_expected_max(),
                    "{}: found {} values ({}), expected one", option->get_name(), values.size(),
                    fmt::join(values, ", "));
  require<BadInput>(!values.empty(), "{}: found no value, expected {}", option->get_name(), option->get_type_name());
}

// Refuses a flag as the value of another flag, because that flag's value was probably forgotten.
void refuse_flags_as_values(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_items_expected_max() == 0 || option->get_positional()) continue;
    for (const std::string& value : option->results())
      require<BadInput>(
          !value.starts_with("--") || verb.get_option_no_throw(value.substr(0, value.find('='))) == nullptr,
          "{}: found the flag {} instead of a value, expected a value", option->get_name(), value);
  }
}

}  // namespace

std::optional<Command> parse_command_line(int argc, const char* const* argv) {
  if (argc > 1 && argv[1] == std::string_view("help")) {  // help VERB: VERB --help
    std::vector<const char*> words{argv[0]};
    words.insert(words.end(), argv + 2, argv + argc);
    words.push_back("--help");
    return parse_command_line(static_cast<int>(words.size()), words.data());
  }
  Command command;
  CLI::App app("moetune: benchmark and autotuning suite for the training of Mixture-of-Experts layers", "moetune");
  std::vector<VerbCall> calls = add_verbs(app, command);
  require_verb(argc, argv);
  const Verb* const row = argc > 1 ? find_verb(argv[1]) : nullptr;
  // The command after the -- is parsed separately.
  const bool starts = row != nullptr && row->starts_other_programs;
  const int own = starts ? static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv) : argc;
  if (row != nullptr) refuse_empty_values(*app.get_subcommand(argv[1]), {argv + 2, argv + own});
  try {
    app.parse(own, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    refuse_word(app);
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_number_of_values(*app.get_subcommands().front(), error.what());
    bad_input("{}; --help lists the expected flags and values", error.what());
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    bad_input("{}; --help lists the expected flags and values", text);
  }
  const CLI::App& verb = *app.get_subcommands().front();
  refuse_flags_as_values(verb);
  command.verb = verb.get_name();
  command.call = std::move(calls[find_verb(command.verb) - all_verbs().data()]);
  VerbCall& call = command.call;
  if (starts) call.take_command({argv + std::min(own + 1, argc), argv + argc});
  command.targets = targets_of(verb);
  if (call.layers != nullptr) set_ranks(verb, command);
  if (call.invocation != nullptr) *call.invocation = invocation_of(verb, {argv, argv + argc});
  return command;
}

VerbCall add_list(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::ListOptions>();
  commands::ListOptions& o = *options;
  set_example(verb, "");
  begin_group(verb, kOutput);
  add_json(verb, o.json);
  return planning(options, commands::run_list);
}

VerbCall add_doctor(CLI::App& verb, Command&) {
  const auto options = std::make_shared<doctor::DoctorOptions>();
  doctor::DoctorOptions& o = *options;
  set_example(verb, " --strict && " + program_command() + " tune --cluster host");
  begin_group(verb, kHowHeading);
  verb.add_flag("--strict", o.strict, "exit code 5 if there is a warning");
  begin_group(verb, kOutput);
  verb.add_flag("--all", o.all, "also list findings that are ok");
  add_json(verb, o.json);
  return planning(options, exit_code_of_doctor);
}

namespace {

void add_noise(CLI::App& verb, commands::NoiseFlags& noise) {
  add_number(verb, "--jitter", noise.jitter,
             "also replay all ranks, with random times of tasks: coefficient of variation (0.1: 10 %)", {0, 10});
  verb.add_option("--straggler", noise.stragglers,
                  "also replay all ranks: slow down these ranks' tasks and their collectives by a factor")
      ->type_name("RANK:FACTOR[,..]")
      ->delimiter(',');
  add_number(verb, "--zipf", noise.zipf,
             "also replay all ranks, with uneven routing of a dropless layer: Zipf's exponent", {0, 10});
  add_number(verb, "--samples", noise.samples, "number of replays with random jitter; default: 100", {1, 1e6});
  add_number(verb, "--seed", noise.seed, "seed of jitter and of the experts' popularity; default: 1", {0, 9e18});
}

}  // namespace

VerbCall add_simulate(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::SimulateOptions>();
  commands::SimulateOptions& s = *options;
  set_example(verb, " --cluster testbed-b --schedule fsmoe --batch 4 --seq 1024 --model-dim 2048 --hidden 8192");
  add_text(verb, "--cluster", "CLUSTER|FILE", s.selection.cluster, kClusterHelp);
  add_nodes(verb, s.selection);
  add_schedule(verb, s.selection);
  add_model(verb, s.model);
  add_layer(verb, s.selection);
  begin_group(verb, kHowHeading);
  add_framework(verb, s.model);
  add_states(verb, s.selection);
  add_planned_fields(verb, s.selection);
  add_degrees(verb, s.selection);
  add_text(verb, "--partition", "exact|paper|step1|none", s.partition,
           "rule that distributes a model's gradients over its layers; default: exact");
  add_noise(verb, s.noise);
  begin_group(verb, kOutput);
  add_trace(verb, s.trace, "write a Perfetto timeline");
  add_save_plan(verb, s.save_plan);
  add_records(verb, s.out, "write records, timelines included (JSON Lines)");
  add_number_or_all(verb, "--gantt", s.drawn,
                    "draw the lanes of the N fastest different schedules as text, on a common scale; default: 3", 0);
  verb.add_flag("--sweep-degrees", s.sweep_degrees, "with --out: also write a record of each degree from 1 to 64");
  add_json(verb, s.json);
  verb.get_option("--gantt")->excludes("--json");
  add_plan(verb, s.plan, {"--cluster", "--nodes", "--nearest", "--trace", "--json"});
  needs(verb, "--sweep-degrees", {"--out"});
  needs(verb, "--overwrite", {"--out"});
  begin_group(verb, kHowHeading);
  add_serve(verb, s.serve, s.selection.cluster, commands::kServeBatches,
            {"--schedule",       "--micro-batches",   "--pipeline",   "--virtual-stages", "--plan",
             "--zero",           "--recompute",       "--node-limit", "--degree-forward", "--degree-backward",
             "--micro-op-bytes", "--min-chunk-bytes", "--partition",  "--jitter",         "--straggler",
             "--zipf",           "--samples",         "--trace",      "--gantt",          "--sweep-degrees",
             "--save-plan",      "--framework",       "--offload"});
  return planning(options, commands::run_simulate);
}

VerbCall add_fit(CLI::App& verb, Command&) {
  const auto options = std::make_shared<tuner::FitOptions>();
  tuner::FitOptions& o = *options;
  set_example(verb, " --records results/microbench-testbed-b.jsonl --out results/mine.toml");
  add_text(verb, "--records", "FILE...", o.records, "records of one cluster from microbench, tune or import")
      ->capture_default_str();
  add_text(verb, "--compute-from", "CLUSTER|FILE", o.compute_from,
           "profile, such as h100-8, for prices of computations that the records lack");
  add_text(verb, "--network-from", "CLUSTER|FILE", o.network_from,
           "for records of one GPU: profile for ranks, collectives, and prices of computations that the records lack");
  verb.get_option("--network-from")->excludes("--compute-from");
  begin_group(verb, kHowHeading);
  verb.add_flag("--strict", o.strict, "exit code 5 if the fit of an operation is WEAK or UNUSABLE");
  begin_group(verb, kOutput);
  add_text(verb, "--name", "NAME", o.name, "name of the profile; default: CLUSTER-fitted");
  add_text(verb, "-o,--out", "FILE", o.out, "file of the profile; default: results/NAME.toml");
  add_json(verb, o.json);
  return planning(options, tuner::run_fit);
}

VerbCall add_plannerbench(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::PlannerbenchOptions>();
  commands::PlannerbenchOptions& o = *options;
  set_example(verb, " --json > planner.json");
  begin_group(verb, kOutput);
  verb.add_flag("--json", o.json, "Google Benchmark's JSON on stdout");
  return planning(options, commands::run_plannerbench);
}

VerbCall add_memory(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::MemoryOptions>();
  commands::MemoryOptions& m = *options;
  set_example(verb, " --model mixtral-7b --cluster testbed-b --zero 1");
  add_text(verb, "--cluster", "CLUSTER|FILE", m.selection.cluster, kClusterHelp);
  add_nodes(verb, m.selection);
  add_model(verb, m.model);
  add_layer(verb, m.selection);
  verb.add_flag("--parm", m.parm, "instead count the layers of Parm's grid that fit its GPUs");
  begin_group(verb, kHowHeading);
  add_framework(verb, m.model);
  add_states(verb, m.selection);
  add_number(verb, "--memory-gib", m.memory_gib, "memory of a rank in GiB; default: the profile's", {1e-6, 1e6});
  begin_group(verb, kOutput);
  add_json(verb, m.json);
  forbid_other_flags(verb, "--parm", {"--top-k", "--experts", "--json"});
  return planning(options, commands::run_memory);
}

VerbCall add_model_verb(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::ModelOptions>();
  commands::ModelOptions& o = *options;
  set_example(verb, " qwen3-30b-a3b");
  verb.add_option("MODEL", o.model,
                  "a name (see the verb list), a model file, or a Hugging Face config.json or its folder")
      ->type_name("MODEL|FILE")
      ->required();
  begin_group(verb, kOutput);
  add_json(verb, o.json);
  return planning(options, commands::run_model);
}

VerbCall add_placement(CLI::App& verb, Command&) {
  const auto options = std::make_shared<commands::PlacementOptions>();
  commands::PlacementOptions& o = *options;
  PlacementRequest& r = o.request;
  set_example(verb, " --ep 8 --cp 4 --switch-ports 32");
  add_number(verb, "--dp", r.dp, with_default("data-parallel group size", r.dp), {1, 1e6});
  add_number(verb, "--tp", r.tp, with_default("tensor- and sequence-parallel group size, inside a node", r.tp),
             {1, 1024});
  add_number(verb, "--cp", r.cp, with_default("context-parallel group size", r.cp), {1, 1e6});
  add_number(verb, "--ep", r.ep, with_default("expert-parallel group size", r.ep), {1, 1e6});
  add_number(verb, "--pp", r.pp, with_default("number of pipeline stages", r.pp), {1, 1e6});
  add_number(verb, "--ranks-per-node", r.ranks_per_node, with_default("GPUs per node", r.ranks_per_node), {1, 1024});
  add_number(verb, "--switch-ports", r.switch_ports,
             with_default("ports of the switch that joins GPUs of one TP position", r.switch_ports), {1, 1e6});
  begin_group(verb, kOutput);
  add_json(verb, o.json);
  return planning(options, commands::run_placement);
}

VerbCall add_reproduce(CLI::App& verb, Command&) {
  const auto options = std::make_shared<reproduce::ReproduceOptions>();
  reproduce::ReproduceOptions& r = *options;
  set_example(verb, " fsmoe-table5");
  verb.add_option("TABLE", r.table, "key of a table (see the verb list)")->type_name("");
  add_text(verb, "--assume", "ASSUMPTIONS|FILE", r.assume,
           "assumed values for numbers that no paper prints (configs/papers/assume/)");
  verb.add_flag("--measure", r.measure,
                "for fsmoe-table5, fsmoe-degrees, fsmoe-fig6: add a column of measured runs, from results/");
  add_text(verb, "--records", "FILE", r.records,
           "like --measure, with the runs of these records or documents of modelbench --json");
  add_text(verb, "--runs", "FILE", r.runs,
           "for training: other measured steps, in a CSV file with the columns of training-runs.csv");
  verb.add_flag("--audit", r.audit, "compute every combination of FSMoE's open conventions");
  verb.add_flag("--all", r.all, "compute every table, with and without the example assumptions, and the audit");
  begin_group(verb, kOutput);
  add_text(verb, "--write", "FILE", r.write,
           "with --all: write a summary in Markdown to FILE, and a page per paper to a folder with the name of FILE "
           "without its extension");
  add_records(verb, r.out, "records; default: results/reproduce-TABLE.jsonl");
  add_json(verb, r.json);
  return planning(options, reproduce::run_reproduce);
}

// The verbs that read or write other programs' formats.

VerbCall add_export(CLI::App& verb, Command&) {
  const auto options = std::make_shared<exchange::ExportOptions>();
  exchange::ExportOptions& o = *options;
  set_example(verb, " csv testbed-b --per-element");
  verb.add_option("FORMAT", o.format, "format to write")->type_name(exchange::export_formats())->required();
  verb.add_option("FILE", o.file, "a profile, records or a plan; for otava also a folder of records")
      ->type_name("")
      ->required();
  add_text(verb, "--cluster", "CLUSTER|FILE", o.cluster, "profile that prices a plan; default: the records' cluster");
  add_text(verb, "--only", "NAME", o.only, "for records: name of the layer to export");
  add_text(verb, "--schedule", "SCHEDULE", o.schedule,
           "for records: schedule whose plan is exported; default: the fastest");
  begin_group(verb, kHowHeading);
  verb.add_flag("--per-element", o.per_element, "for csv of a profile: betas per float32 element, as in papers");
  verb.add_flag("--samples", o.samples,
                "for google-benchmark: write every sample as a repetition; default: write medians");
  begin_group(verb, kOutput);
  add_text(verb, "-o,--out", "FILE", o.out, "file to write; default: standard output");
  return planning(options, exchange::run_export);
}

VerbCall add_import(CLI::App& verb, Command&) {
  const auto options = std::make_shared<exchange::ImportOptions>();
  exchange::ImportOptions& o = *options;
  set_example(verb, " nccl-tests all_reduce.txt alltoall.txt --out results/imported.jsonl");
  verb.add_option("FORMAT", o.format, "format to read")->type_name(exchange::import_formats())->required();
  verb.add_option("FILE", o.files, "one or several files")->type_name("")->required();
  add_text(verb, "--cluster", "NAME", o.cluster, "name of the cluster in the records");
  begin_group(verb, kHowHeading);
  add_text(verb, "--op", "alltoall|allgather|reducescatter|allreduce|sendrecv", o.op,
           "for nccl-tests: operation, if the file does not name it");
  add_text(verb, "--network", "inter|intra", o.network, "network of the groups, if the files do not name it");
  add_number(verb, "--nodes", o.nodes, "nodes of the cluster; default: as in the files", {1, kMaxNodes});
  add_number(verb, "--experts", o.experts, "for deepep: number of experts, if a test prints rates without times",
             {1, 1e6});
  add_text(verb, "--dtype", "float32|float16|bfloat16|float64", o.dtype,
           "for nsys: type of GEMMs whose kernels' names do not contain it");
  add_number(verb, "--ranks", o.ranks, "ranks of a group, if the files do not name them", {2, 1e6});
  add_number(verb, "--ranks-per-node", o.ranks_per_node, "ranks per node of the cluster; default: as in the files",
             {1, kMaxRanksPerNode});
  verb.add_flag("--in-place", o.in_place, "for nccl-tests: read the in-place columns; default: out of place");
  add_text(verb, "--map", "FILE", o.map,
           "for traces: CSV file with columns kernel and kind, for kernels with unknown names");
  begin_group(verb, kOutput);
  add_text(verb, "-o,--out", "FILE", o.out, "file of the records; for csv-profile, of the profile");
  add_overwrite(verb);
  return planning(options, exchange::run_import);
}

// The verbs that catch performance regressions.

namespace {

void add_base(CLI::App& verb, std::string& base) {
  add_text(
      verb, "--base", "FOLDER", base,
      "a checkout, build folder or program of moetune, or with --metric any folder; default: this program and folder");
}

// Adds the command that a gate launches, and its options.
template <class Options>
void add_launches(CLI::App& verb, Options& o) {
  add_text(verb, "--cases", "CASES|FILE", o.cases, "list of command lines to run (configs/ci/), instead of -- VERB");
  add_text(verb, "--metric", "number|gbench|megatron|nemo|megatron-bridge|deepspeed|nsys:RANGE|REGEX", o.metric,
           "run any command after --, in the folders, and read times in its output: lines that are numbers, "
           "google/benchmark's JSON, a training's log, a range in the SQLite export of Nsight Systems that the output "
           "names, or the group of a regular expression");
  add_text(verb, "--unit", "s|ms|us|ns|1/s", o.unit,
           "unit of number and REGEX; 1/s: a rate, more is better; default: s");
  begin_group(verb, kHowHeading);
  add_text(verb, "--launcher", "WORDS", o.launcher, "command that starts the program: 'mpirun -np 2'");
  add_number(verb, "--delta", o.delta_percent, "least slowdown, in percent, that counts; default: 3", {0.01, 100});
  add_number(verb, "--seed", o.seed, "seed of the random order of launches, and of resampling", {0, 9e18});
  add_number(verb, "--timeout", o.timeout_s,
             "longest time of a launch in seconds; default: 20 times the first launch, at least 60", {0.1, 86400});
}

void add_filter(CLI::App& verb, std::vector<std::string>& filter) {
  verb.add_option("--filter", filter, "only cases that have one of the values for each KEY, a parameter or schedule")
      ->type_name("KEY=VALUE[,..]")
      ->delimiter(',');
}

void add_floor(CLI::App& verb, std::string& floor) {
  add_text(verb, "--floor", "FILE", floor, "records of self-test on this machine; default: results/self-test.jsonl");
}

}  // namespace

VerbCall add_ab(CLI::App& verb, Command&) {
  const auto options = std::make_shared<regress::AbOptions>();
  regress::AbOptions& o = *options;
  set_example(verb,
              " --base ../before --head . -- layerbench --cluster host --no-predict --schedule fsmoe "
              "--degree-forward 2 --degree-backward 2");
  add_base(verb, o.base);
  add_text(verb, "--head", "FOLDER", o.head, "the same for the program to judge; default: the base");
  add_text(verb, "--base-flags", "FLAGS", o.base_flags, "flags to append to the base's command line");
  add_text(verb, "--head-flags", "FLAGS", o.head_flags, "flags to append to the head's command line");
  add_launches(verb, o);
  add_floor(verb, o.floor);
  verb.add_flag("--strict", o.strict, "exit code 5 if a case is ambiguous and none is slower");
  begin_group(verb, kOutput);
  add_records(verb, o.out, "records of all launches; default: results/ab.jsonl");
  verb.add_flag("--markdown", o.markdown, "Markdown for a pull request, instead of text");
  add_json(verb, o.json);
  verb.get_option("--markdown")->excludes("--json");
  VerbCall call = planning(options, regress::run_ab);
  call.take_command = [options](std::vector<std::string> words) { options->command = std::move(words); };
  return call;
}

VerbCall add_self_test(CLI::App& verb, Command&) {
  const auto options = std::make_shared<regress::SelfTestOptions>();
  regress::SelfTestOptions& o = *options;
  set_example(verb, " --cases tiny");
  add_base(verb, o.base);
  add_launches(verb, o);
  add_number(verb, "--gates", o.gates, "live gates that compare the program with itself; default: 10", {1, 1000});
  add_number(verb, "--resamples", o.resamples, "resampled gates for each row of the table; default: 2000", {1, 1e7});
  verb.add_flag("--simulate", o.simulate, "launch nothing; compare the rule with three others on simulated machines");
  begin_group(verb, kOutput);
  add_records(verb, o.out, "records of all launches and of the noise floor; default: results/self-test.jsonl");
  add_json(verb, o.json);
  forbid_other_flags(verb, "--simulate", {"--delta", "--seed", "--resamples", "--json"});
  VerbCall call = planning(options, regress::run_self_test);
  call.take_command = [options](std::vector<std::string> words) { options->command = std::move(words); };
  return call;
}

VerbCall add_compare(CLI::App& verb, Command&) {
  const auto options = std::make_shared<regress::CompareOptions>();
  regress::CompareOptions& o = *options;
  set_example(verb, " before.jsonl after.jsonl");
  verb.add_option("BASE", o.base, "records before the change: a file, or a folder of files")->type_name("")->required();
  verb.add_option("HEAD", o.head, "records after the change: a file, or a folder of files")->type_name("")->required();
  add_text(verb, "--metric", "nsys:RANGE", o.metric,
           "BASE and HEAD are SQLite exports of Nsight Systems instead of records; compare an NVTX range");
  add_filter(verb, o.filter);
  begin_group(verb, kHowHeading);
  add_text(verb, "--by", "NAME", o.by, "parameter, or schedule, by which cases are grouped for geometric means");
  add_floor(verb, o.floor);
  verb.add_flag("--strict", o.strict, "exit code 5 if a case is ambiguous and none is slower");
  begin_group(verb, kOutput);
  verb.add_flag("--all", o.all, "also list unchanged cases, and all names");
  verb.add_flag("--markdown", o.markdown, "Markdown for a comment on a pull request");
  add_json(verb, o.json);
  for (const char* flag : {"--all", "--markdown"}) verb.get_option("--json")->excludes(verb.get_option(flag));
  return planning(options, regress::run_compare);
}

VerbCall add_history(CLI::App& verb, Command&) {
  const auto options = std::make_shared<regress::HistoryOptions>();
  regress::HistoryOptions& o = *options;
  set_example(verb, " results");
  verb.add_option("DIR", o.folder, "folder with records (*.jsonl), also in subfolders")->type_name("")->required();
  add_filter(verb, o.filter);
  begin_group(verb, kHowHeading);
  add_text(verb, "--by", "NAME", o.by, "parameter, schedule or key by which cases are grouped into series");
  begin_group(verb, kOutput);
  add_text(verb, "--plot", "FILE", o.plot, "write a picture of the series (.svg, .png)");
  add_json(verb, o.json);
  return planning(options, regress::run_history);
}

// The verb that makes a page from records.

VerbCall add_report(CLI::App& verb, Command&) {
  const auto options = std::make_shared<report::ReportOptions>();
  report::ReportOptions& o = *options;
  set_example(verb, " results/tune-testbed-b.jsonl --out report.html");
  verb.add_option("RECORDS", o.records, "files of records, plain or gzipped")->type_name("")->required();
  add_text(verb, "--cluster", "CLUSTER|FILE", o.cluster,
           "profile that prices the replays; default: fitted from the records' operations, else their cluster");
  begin_group(verb, kHowHeading);
  add_number(verb, "--timelines", o.timelines, "number of layers that the page replays; default: 8", {0, 100});
  begin_group(verb, kOutput);
  add_text(verb, "-o,--out", "FILE", o.out, "file of the page");
  return planning(options, report::run_report);
}

}  // namespace moe::cli
