// The planning verbs, in an executable that starts in milliseconds; verbs that run layers are handed to moetune-run.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include "cli/completion.h"
#include "cli/errors.h"
#include "cli/flags.h"
#include "moe/base/check.h"
#include "planner/list.h"
#include "planner/memory.h"
#include "planner/placement.h"
#include "planner/plannerbench.h"
#include "regress/ab.h"
#include "regress/compare.h"
#include "regress/history.h"
#include "regress/self_test.h"
#include "report/report.h"
#include "reproduce/reproduce.h"
#include "tuner/tune.h"

namespace {

int hand_over(char** argv) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string sibling = self.parent_path() / "moetune-run";
  execv(sibling.c_str(), argv);
  moe::bad_input("{}: {}; here are the planning verbs alone, the package moetune and ./moetune have the others",
                 sibling, std::strerror(errno));
}

int print_completions(const std::string& line) {
  for (const std::string& word : moe::completions(line)) fmt::print("{}\n", word);
  return moe::kOk;
}

}  // namespace

int main(int argc, char** argv) {
  return moe::guarded([&] {
    if (argc == 3 && std::string_view(argv[1]) == "--complete") return print_completions(argv[2]);
    const auto command = moe::parse_command_line(argc, argv);
    if (!command) return int{moe::kOk};
    moe::set_log_level(command->log);
    if (moe::runs_layers(*command)) return hand_over(argv);
    if (command->verb == "launch") {
      if (command->launch.command.empty()) return int{moe::kOk};
      return moe::run_launch(command->launch, std::filesystem::read_symlink("/proc/self/exe"));
    }
    if (command->verb == "ab") return moe::regress::run_ab(command->ab);
    if (command->verb == "self-test") return moe::regress::run_self_test(command->self_test);
    if (command->verb == "list") return moe::planner::run_list(command->list);
    if (command->verb == "doctor") return moe::doctor::run_doctor(command->doctor) ? int{moe::kOk} : moe::kDoubtful;
    if (command->verb == "simulate") return moe::planner::run_simulate(command->simulate);
    if (command->verb == "fit") return moe::tuner::run_fit(command->fit);
    if (command->verb == "memory") return moe::planner::run_memory(command->memory);
    if (command->verb == "placement") return moe::planner::run_placement(command->placement);
    if (command->verb == "reproduce") return moe::reproduce::run_reproduce(command->reproduce);
    if (command->verb == "compare") return moe::regress::run_compare(command->compare);
    if (command->verb == "history") return moe::regress::run_history(command->history);
    if (command->verb == "export") return moe::exchange::run_export(command->export_out);
    if (command->verb == "import") return moe::exchange::run_import(command->import_in);
    if (command->verb == "report") return moe::report::run_report(command->report);
    if (command->verb == "plannerbench") return moe::planner::run_plannerbench(command->plannerbench);
    return moe::tuner::run_planned_tune(command->tune);
  });
}
