#include "moe/device/cpu/quota.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "moe/base/check.h"

namespace moe::cpu {
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
