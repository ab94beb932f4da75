#include "moe/device/cpu/cores.h"

#include <algorithm>
#include <sched.h>

#include "moe/base/check.h"

namespace moe::cpu {
namespace {

thread_local int threads_of_caller = 1;

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

int usable_core_count() { return std::max(1, static_cast<int>(usable_cores().size())); }

void keep_to_share(int part, int parts) {
  const std::vector<int> cores = usable_cores();
  const auto count = static_cast<int>(cores.size());
  if (count < 2 || parts < 2) return;
  const int first = part * count / parts;
  const int last = std::max(first + 1, (part + 1) * count / parts);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = first; i < last; ++i) CPU_SET(cores[static_cast<size_t>(i)], &set);
  sched_setaffinity(0, sizeof set, &set);
}

int own_threads() { return threads_of_caller; }

void set_own_threads(int threads) {
  require<BadInput>(threads >= 1, "threads of a rank: found {}, expected >= 1", threads);
  threads_of_caller = threads;
}

}  // namespace moe::cpu
