// The executable of the planning verbs, which starts in milliseconds; it runs moetune-run for verbs that run layers.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include "commands/cli/completion.h"
#include "commands/cli/errors.h"
#include "commands/cli/flags.h"
#include "moe/base/check.h"
#include "moe/base/terminal.h"

namespace moe::cli {
namespace {

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

int run(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--complete") return print_completions(argv[2]);
  const auto command = parse_command_line(argc, argv);
  if (!command) return kOk;
  set_log_level(command->log);
  if (command->wide) widen_output();
  set_max_input_bytes(command->max_input);
  if (command->runs_layers()) return hand_over(command->verb, argv);
  require_targets(command->targets);
  return command->call.run();
}

}  // namespace
}  // namespace moe::cli

int main(int argc, char** argv) {
  return moe::cli::run_and_report_errors([&] { return moe::cli::run(argc, argv); });
}
