#include "verbs/run/schedule_batches.h"

#include "moe/base/log.h"
#include "verbs/run/free_memory.h"
#include "verbs/run/layer_records.h"

namespace moe::verbs {
namespace {

constexpr double kShareOfFree = 0.8;  // the rest is for workspaces of libraries, and what is in pieces

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
      const int64_t ranks = sharers(settings.ranks, run.plan.shape.parallel.ranks());
      bytes.push_back(estimated_bytes(run.plan, settings.ranks) * static_cast<double>(ranks));
    }
    ends = batches_that_fit(bytes, kShareOfFree * free_bytes(settings.ranks));
    if (ends.size() > 1 && settings.ranks.leads())
      log_warning(fmt::format(
          "the {} has no memory for {} schedules at once: found room for {}, so they are timed in {} batches",
          settings.ranks.device == DeviceKind::cuda ? "GPU" : "machine", planned.size(), ends.front(), ends.size()));
  }
  std::vector<measure::LayerMeasurement> measured;
  for (size_t begin = 0; const size_t end : ends) {
    measured.push_back(measure::measure_layer(
        {planned.begin() + static_cast<std::ptrdiff_t>(begin), planned.begin() + static_cast<std::ptrdiff_t>(end)},
        settings));
    begin = end;
  }
  return measured;
}

}  // namespace moe::verbs
