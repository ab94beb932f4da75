// The planning verbs, in an executable that starts in milliseconds; verbs that run layers are handed to moetune-run.
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include "cli/completion.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "moe/base/check.h"
#include "moe/base/registry.h"
#include "moe/base/terminal.h"
#include "planner/list.h"
#include "planner/memory.h"
#include "planner/model.h"
#include "planner/placement.h"
#include "planner/plannerbench.h"
#include "regress/ab.h"
#include "regress/compare.h"
#include "regress/history.h"
#include "regress/self_test.h"
#include "report/report.h"
#include "reproduce/reproduce.h"
#include "tuner/tune.h"

namespace moe::cli {
namespace {

struct Verb {
  std::string_view name;
  int (*run)(const Command& command);
};

int hand_over(const std::string& verb, char** argv) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string sibling = self.parent_path() / "moetune-run";
  execv(sibling.c_str(), argv);
  require<BadInput>(errno == ENOENT, "{}: {}", sibling, std::strerror(errno));
  bad_input(
      "{} runs layers, but this installation can only plan; run it from a checkout (./moetune {}) or install the "
      "Debian package moetune{}",
      verb, verb, verb == "tune" ? ", or add --no-verify to plan without running anything" : "");
}

int print_completions(const std::string& line) {
  for (const std::string& word : completions(line)) fmt::print("{}\n", word);
  return kOk;
}

int launch(const Command& c) {
  return c.launch.command.empty() ? int{kOk} : run_launch(c.launch, std::filesystem::read_symlink("/proc/self/exe"));
}

constexpr std::array kVerbs{
    Verb{"list", [](const Command& c) { return planner::run_list(c.list); }},
    Verb{"doctor", [](const Command& c) -> int { return doctor::run_doctor(c.doctor) ? kOk : kDoubtful; }},
    Verb{"tune", [](const Command& c) { return tuner::run_planned_tune(c.tune); }},
    Verb{"simulate", [](const Command& c) { return planner::run_simulate(c.simulate); }},
    Verb{"fit", [](const Command& c) { return tuner::run_fit(c.fit); }},
    Verb{"memory", [](const Command& c) { return planner::run_memory(c.memory); }},
    Verb{"model", [](const Command& c) { return planner::run_model(c.model); }},
    Verb{"placement", [](const Command& c) { return planner::run_placement(c.placement); }},
    Verb{"plannerbench", [](const Command& c) { return planner::run_plannerbench(c.plannerbench); }},
    Verb{"launch", launch},
    Verb{"reproduce", [](const Command& c) { return reproduce::run_reproduce(c.reproduce); }},
    Verb{"ab", [](const Command& c) { return regress::run_ab(c.ab); }},
    Verb{"self-test", [](const Command& c) { return regress::run_self_test(c.self_test); }},
    Verb{"compare", [](const Command& c) { return regress::run_compare(c.compare); }},
    Verb{"history", [](const Command& c) { return regress::run_history(c.history); }},
    Verb{"export", [](const Command& c) { return exchange::run_export(c.export_out); }},
    Verb{"import", [](const Command& c) { return exchange::run_import(c.import_in); }},
    Verb{"report", [](const Command& c) { return report::run_report(c.report); }},
};

int run(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--complete") return print_completions(argv[2]);
  const auto command = parse_command_line(argc, argv);
  if (!command) return kOk;
  set_log_level(command->log);
  if (command->wide) widen_output();
  set_most_input(command->most_input);
  if (runs_layers(*command)) return hand_over(command->verb, argv);
  require_targets(command->targets);
  return find_named(kVerbs, command->verb, "verb").run(*command);
}

}  // namespace
}  // namespace moe::cli

int main(int argc, char** argv) {
  return moe::cli::guarded([&] { return moe::cli::run(argc, argv); });
}
