#include "commands/cli/commit.h"

#include "commands/cli/built_commit.h"
#include "moe/base/version.h"

namespace moe::cli {

Fields built_from() {
  const std::string commit = MOETUNE_COMMIT;
  if (commit == "unknown") return {{"commit", commit}};
  return {{"commit", commit}, {"dirty", MOETUNE_DIRTY != 0}};
}

std::string build_name() {
  const std::string commit = MOETUNE_COMMIT;
  return fmt::format("{}, commit {}{}", version(), commit.substr(0, 12), MOETUNE_DIRTY != 0 ? ", changed" : "");
}

}  // namespace moe::cli
