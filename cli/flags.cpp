#include "cli/flags.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <utility>

#include "cli/commit.h"
#include "cli/flag_kinds.h"
#include "moe/base/suggestion.h"

namespace moe::cli {
namespace {

void require_verb(const CLI::App& app, int argc, const char* const* argv) {
  if (argc > 1 && argv[1][0] == '-') return;  // --help, --version, or CLI11's business
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (argc > 1 && verb->get_name() == argv[1]) return;
    names.push_back(verb->get_name());
  }
  if (argc < 2) bad_input("verb: found none, expected one of: {}", fmt::join(names, ", "));
  const std::vector<std::string_view> known(names.begin(), names.end());
  bad_input("verb: found '{}', expected one of: {}{}", argv[1], fmt::join(names, ", "), suggestion(argv[1], known));
}

// Other programs' words for groups and micro-batches (Megatron-Core, DeepSpeed), and the flags that mean them here.
constexpr std::pair<std::string_view, std::string_view> kWords[]{
    {"--tp", "--mp"},
    {"--tensor-parallel", "--mp"},
    {"--tensor-parallel-size", "--mp"},
    {"--tensor-model-parallel-size", "--mp"},
    {"--data-parallel-size", "--dp"},
    {"--expert-parallel-size", "--ep"},
    {"--expert-model-parallel-size", "--ep"},
    {"--expert-tensor-parallel-size", "--esp"},
    {"--etp", "--esp"},
    {"--pipeline-parallel-size", "--pp"},
    {"--pipeline-model-parallel-size", "--pp"},
    {"--num-experts", "--experts"},
    {"--moe-router-topk", "--top-k"},
    {"--micro-batch-size", "--batch"},
    {"--num-micro-batches", "--micro-batches"},
    {"--num-microbatches", "--micro-batches"},
    {"--gradient-accumulation-steps", "--micro-batches"},
    {"--num-virtual-stages-per-pipeline-rank", "--virtual-stages"},
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
    {"--nproc-per-node", "--ranks"},
    {"--nproc_per_node", "--ranks"},
};

// Says what a flag that the verb lacks may have been meant to be.
std::string meant_by(const std::string& word, const CLI::App& verb) {
  if (!word.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string name = word.substr(0, word.find('='));
  for (const auto& [theirs, ours] : kWords)
    if (name == theirs && std::ranges::find(known, ours) != known.end())
      return fmt::format("; '{}' is '{}' here", theirs, ours);
  return suggestion(name, known);
}

// Refuses the first word that the verb does not know: those after it may be its values.
[[noreturn]] void refuse_word(const CLI::App& app) {
  const CLI::App& verb = *app.get_subcommands().front();
  const std::vector<std::string> left = verb.remaining(), outside = app.remaining();
  if (left.empty()) bad_input("{}: found '{}' before it or behind --", verb.get_name(), fmt::join(outside, " "));
  const auto flag = std::ranges::find_if(left, [](const std::string& word) { return word.starts_with('-'); });
  const std::string& word = flag == left.end() ? left.front() : *flag;
  if (has_command_behind(verb.get_name()) && flag == left.end())
    bad_input("{}: found '{}', expected -- before the command that it starts", verb.get_name(), word);
  bad_input("{}: found '{}', which it does not know{}; --help lists the flags", verb.get_name(), word,
            meant_by(word, verb));
}

// Lists the flags that records do not depend on: where things are written, how they are shown, how processes meet.
// Records depend on every other flag, also on new ones.
constexpr std::array<std::string_view, 21> kOfNoRecord{"--json",      "--top",          "--gantt",
                                                       "--out",       "--overwrite",    "--trace",
                                                       "--dump",      "--write",        "--tasks",
                                                       "--rank",      "--rendezvous",   "--quiet",
                                                       "--verbose",   "--checkpoint",   "--checkpoint-every",
                                                       "--markdown",  "--strict",       "--save-weights",
                                                       "--max-input", "--trace-layers", "--trace-micro-batches"};

// Returns the flag's option if the verb has it and it was given, else nullptr.
const CLI::Option* given_option(const CLI::App& verb, const std::string& flag) {
  const CLI::Option* option = verb.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0 ? option : nullptr;
}

Asked asked_by(const CLI::App& verb, std::vector<std::string> argv) {
  Asked asked;
  asked.argv = std::move(argv);
  asked.flags = {verb.get_name()};
  for (const CLI::Option* option : verb.get_options())
    if (option->count() > 0 && std::ranges::find(kOfNoRecord, option->get_name()) == kOfNoRecord.end())
      asked.flags.push_back(fmt::format("{}={}", option->get_name(), fmt::join(option->results(), ",")));
  asked.named_file = given_option(verb, "--out") != nullptr;
  asked.overwrite = given_option(verb, "--overwrite") != nullptr;
  asked.otherwise = "another --out, or --overwrite";
  asked.built_from = built_from();
  return asked;
}

// Flags of one process of several: the command that starts the others says them.
constexpr std::array<std::string_view, 3> kOfOneProcess{"--rank", "--ranks", "--rendezvous"};

// Returns the flags given to `verb` that `other` has too, without those that say where and how results are shown.
std::vector<tuner::GivenFlag> given_for(const CLI::App& other, const CLI::App& verb) {
  std::vector<tuner::GivenFlag> given;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    const bool is_output = option->get_group() == kOutput && name != "--max-input";
    if (option->count() == 0 || is_output || other.get_option_no_throw(name) == nullptr ||
        std::ranges::find(kOfOneProcess, name) != kOfOneProcess.end())
      continue;
    const bool takes_value = option->get_items_expected_max() > 0;
    given.push_back({name, takes_value ? fmt::format("{}", fmt::join(option->results(), ",")) : ""});
  }
  return given;
}

// Returns the files and folders that the command writes at the end. Records are opened before, by their writer. Throws
// BadInput where two of all these are one.
std::vector<OutTarget> targets_of(const CLI::App& verb) {
  std::vector<OutTarget> targets;
  for (const auto& [flag, is_folder] : {std::pair("--trace", false),
                                        {"--save-weights", false},
                                        {"--write", false},
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

}  // namespace

std::optional<Command> parse_command_line(int argc, const char* const* argv) {
  Command command;
  CLI::App app("moetune: benchmark and autotuning suite for the training of Mixture-of-Experts layers", "moetune");
  add_verbs(app, command);
  require_verb(app, argc, argv);
  // The command behind the -- is parsed by itself.
  const bool starts = argc > 1 && has_command_behind(argv[1]);
  const int own = starts ? static_cast<int>(std::find(argv, argv + argc, std::string_view("--")) - argv) : argc;
  try {
    app.parse(own, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::nullopt;
  } catch (const CLI::ExtrasError&) {
    refuse_word(app);
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    bad_input("{}; --help lists what is expected", text);
  }
  command.verb = app.get_subcommands().front()->get_name();
  if (starts) {
    const std::vector<std::string> words{argv + std::min(own + 1, argc), argv + argc};
    command.verb == "launch" ? complete_launch(command, words) : complete_gate(command, words);
  }
  command.targets = targets_of(*app.get_subcommands().front());
  verbs::RunOptions* const run = run_options(command);
  if (run != nullptr) command.ranks.timeout_s = run->timeout_s;
  check_backend(*app.get_subcommands().front(), command.ranks);
  const bool processes = command.ranks.backend != "local";
  if (processes && app.get_subcommands().front()->count("--cluster") == 0)
    command.tune.selection.cluster = command.layerbench.selection.cluster = command.modelbench.selection.cluster =
        command.microbench.cluster = std::string(verbs::kHostCluster);
  if (command.ranks.backend == "nccl") run->device = DeviceKind::cuda;  // a backend is a flag of verbs that run layers
  command.simulate.asked = command.tune.asked = command.microbench.asked = command.layerbench.asked =
      command.modelbench.asked = command.reproduce.asked = command.ab.asked = command.self_test.asked =
          command.import_in.asked = asked_by(*app.get_subcommands().front(), {argv, argv + argc});
  if (command.verb == "tune")
    for (const char* other : {"simulate", "layerbench", "modelbench"})
      command.tune.given_for[other] = given_for(*app.get_subcommand(other), *app.get_subcommands().front());
  return command;
}

verbs::RunOptions* run_options(Command& c) {
  if (c.verb == "tune") return &c.tune;
  if (c.verb == "microbench") return &c.microbench;
  if (c.verb == "layerbench") return &c.layerbench;
  return c.verb == "modelbench" ? &c.modelbench : nullptr;
}

bool runs_layers(const Command& c) {
  return c.verb == "microbench" || c.verb == "layerbench" || c.verb == "modelbench" ||
         (c.verb == "tune" && c.tune.verify);
}

}  // namespace moe::cli
