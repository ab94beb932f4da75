#include "moe/measure/core_probe.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "moe/base/check.h"
#include "moe/base/statistics.h"

namespace moe {
namespace {

constexpr int kRounds = 20;

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double probe_core() {
  thread_local std::array<float, 64 << 10> numbers{};  // 256 KiB
  const double begin_s = processor_s();
  for (int round = 0; round < kRounds; ++round)
    for (float& number : numbers) number = number * 0.5f + 1;
  return processor_s() - begin_s;
}

double CoreSpeeds::slowdown(const std::vector<std::vector<double>>& probe_s) {
  double most = 1;
  for (size_t rank = 0; !probe_s.empty() && rank < probe_s.front().size(); ++rank) {
    std::vector<double> passes;
    for (const auto& pass : probe_s) passes.push_back(pass.at(rank));
    const double seconds = median(std::move(passes));
    if (rank == best_s_.size()) best_s_.push_back(seconds);
    best_s_.at(rank) = std::min(best_s_.at(rank), seconds);
    most = std::max(most, seconds / best_s_.at(rank));
  }
  return most;
}

}  // namespace moe
