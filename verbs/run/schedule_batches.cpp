#include "verbs/run/schedule_batches.h"

#include <algorithm>
#include <limits>

#include "moe/base/control_groups.h"
#include "moe/base/log.h"
#include "moe/device/cpu/memory.h"
#include "moe/device/gpu_settings.h"
#include "verbs/run/layer_records.h"

namespace moe::verbs {
namespace {

constexpr double kShareOfFree = 0.8;  // the rest is for workspaces of libraries, and what is in pieces

bool on_gpu(const measure::BenchRanks& ranks) { return ranks.device == DeviceKind::cuda; }

// Returns how many of the plan's ranks share the memory of this process's: threads one GPU or machine, processes a
// machine, where they have one address.
int64_t sharers(const Plan& plan, const measure::BenchRanks& ranks) {
  if (ranks.processes == nullptr) return plan.shape.parallel.ranks();
  if (on_gpu(ranks)) return 1;
  const std::vector<std::string>& addresses = ranks.processes->topology().addresses;
  const auto own = static_cast<size_t>(ranks.processes->here().front());
  return own < addresses.size() ? std::ranges::count(addresses, addresses[own]) : ranks.processes->ranks();
}

// Returns the bytes that are left where there are fewest; infinity where nobody knows.
double least_left(const measure::BenchRanks& ranks) {
  World* processes = ranks.processes;
  constexpr double unknown = std::numeric_limits<double>::infinity();
  double left = on_gpu(ranks) ? static_cast<double>(free_gpu_bytes(processes ? processes->topology().local_rank : 0))
                              : memory_bytes(SystemFiles(), "MemAvailable").value_or(unknown);
  if (processes)
    for (const auto& rank : gather(*processes, std::vector<std::vector<double>>{{left}}))
      left = std::min(left, rank.front());
  return kShareOfFree * left;
}

}  // namespace

std::vector<size_t> batches_that_fit(std::span<const double> bytes, double left_bytes) {
  std::vector<size_t> ends;
  double taken = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && taken + bytes[i] > left_bytes) {
      ends.push_back(i);
      taken = 0;
    }
    taken += bytes[i];
  }
  if (!bytes.empty()) ends.push_back(bytes.size());
  return ends;
}

std::vector<BatchedRun> runs_of(const std::vector<measure::LayerMeasurement>& batches) {
  std::vector<BatchedRun> all;
  for (const measure::LayerMeasurement& batch : batches)
    for (const measure::MeasuredRun& run : batch.runs) all.push_back({batch, run});
  return all;
}

std::vector<measure::LayerMeasurement> measure_in_batches(std::span<const measure::PlannedRun> planned,
                                                          const measure::LayerBenchSettings& settings) {
  std::vector<size_t> ends{planned.size()};
  if (!settings.emulated) {
    std::vector<double> bytes;
    for (const measure::PlannedRun& run : planned) {
      const auto ranks = static_cast<double>(sharers(run.plan, settings.ranks));
      bytes.push_back(estimated_bytes(run.plan, settings.ranks) * ranks);
    }
    ends = batches_that_fit(bytes, least_left(settings.ranks));
    if (ends.size() > 1 && settings.ranks.leads())
      log_warning(fmt::format(
          "the {} has no memory for {} schedules at once: found room for {}, so they are timed in {} batches",
          on_gpu(settings.ranks) ? "GPU" : "machine", planned.size(), ends.front(), ends.size()));
  }
  std::vector<measure::LayerMeasurement> measured;
  for (size_t begin = 0; const size_t end : ends) {
    measured.push_back(measure::measure_layer(
        {planned.begin() + static_cast<std::ptrdiff_t>(begin), planned.begin() + static_cast<std::ptrdiff_t>(end)},
        settings));
    cpu::return_free_memory();
    begin = end;
  }
  return measured;
}

}  // namespace moe::verbs
