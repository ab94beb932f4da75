#include "moe/device/cpu/cores.h"

#include <algorithm>
#include <charconv>
#include <sched.h>
#include <string_view>

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

void restrict_to_share(int part, int parts) {
  const std::vector<int> cores = usable_cores();
  const auto count = static_cast<int>(cores.size());
  if (count < 2 || parts < 2) return;
  const int first = part * count / parts;
  const int last = std::max(first + 1, (part + 1) * count / parts);
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = first; i < last; ++i) CPU_SET(cores[i], &set);
  sched_setaffinity(0, sizeof set, &set);
}

int thread_count() { return threads_of_caller; }

void set_thread_count(int threads) {
  require<BadInput>(threads >= 1, "threads of a rank: found {}, expected >= 1", threads);
  threads_of_caller = threads;
}

namespace {

constexpr int kCoresToSpare = 4;

}  // namespace

int default_threads(const CoreShare& share, const char* omp_num_threads) {
  if (omp_num_threads != nullptr && *omp_num_threads != '\0') {
    const std::string_view text(omp_num_threads);  // "4", or "4,2" by level
    const std::string_view outermost = text.substr(0, text.find(','));
    int threads = 0;
    const auto [end, error] = std::from_chars(outermost.data(), outermost.data() + outermost.size(), threads);
    require<BadInput>(error == std::errc{} && end == outermost.data() + outermost.size() && threads >= 1,
                      "OMP_NUM_THREADS: found '{}', expected a whole number of 1 or more", text);
    return threads;
  }
  const int cores = share.quota ? std::min(share.cores, static_cast<int>(*share.quota)) : share.cores;
  const int own = cores / share.sharers;
  return std::max(1, share.communicates && own >= kCoresToSpare ? own - 1 : own);
}

}  // namespace moe::cpu
