#include "cli/commit.h"

#include "cli/built_commit.h"

namespace moe::cli {

Fields built_from() {
  const std::string commit = MOETUNE_COMMIT;
  if (commit == "unknown") return {{"commit", commit}};
  return {{"commit", commit}, {"dirty", MOETUNE_DIRTY != 0}};
}

}  // namespace moe::cli
