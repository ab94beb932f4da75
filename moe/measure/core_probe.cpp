#include "moe/measure/core_probe.h"

#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <ctime>
#include <string>

#include "moe/base/statistics.h"

namespace moe::measure {
namespace {

constexpr size_t kNumbers = 64 << 10;  // 256 KiB
constexpr int kRounds = 50;

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

CoreProbe::CoreProbe() : numbers_(kNumbers, 1) {}

double CoreProbe::rounds_s(int rounds) {
  const double begin_s = processor_s();
  for (int round = 0; round < rounds; ++round)
    for (float& number : numbers_) number = number * 0.5f + 1;
  return processor_s() - begin_s;
}

double CoreProbe::seconds() {
  rounds_s(1);  // brings the array back into the cache
  return rounds_s(kRounds);
}

double CoreTimes::ratio_to(const CoreTimes& later) const {
  double most = 1;
  for (size_t rank = 0; rank < std::min(best_s_.size(), later.best_s_.size()); ++rank)
    most = std::max(most, best_s_[rank] / later.best_s_[rank]);
  return most;
}

double CoreTimes::add(const std::vector<std::vector<double>>& probe_s) {
  double most = 1;
  for (size_t rank = 0; rank < probe_s.size(); ++rank) {
    const double seconds = median(probe_s[rank]);
    if (seconds <= 0) return 0;
    if (rank == best_s_.size()) best_s_.push_back(seconds);
    best_s_[rank] = std::min(best_s_[rank], seconds);
    most = std::max(most, seconds / best_s_[rank]);
  }
  return most;
}

void interleave_repetitions() {
  std::string program = "moetune", flag = "--benchmark_enable_random_interleaving=true";
  std::array argv{program.data(), flag.data()};
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
}

}  // namespace moe::measure
