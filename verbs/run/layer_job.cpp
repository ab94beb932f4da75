#include "verbs/run/layer_job.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

#include "moe/base/no_hardware.h"
#include "moe/device/memory.h"

namespace moe::verbs {

LayerJob jobs_on(const Target& target, const Selection& selection, measure::LayerBenchSettings settings) {
  LayerJob job;
  if (target.emulated) job.paced_by = target.cluster;
  job.schedules = chosen_schedules(selection);
  job.degrees = selection.degrees;
  job.pricing = pricing_of(selection);
  job.settings = std::move(settings);
  job.settings.emulated = target.emulated;
  job.settings.ranks = target.ranks;
  return job;
}

std::optional<RunRefusal> refusal_of(const std::function<void()>& job, const World* processes) {
  try {
    job();
  } catch (const NoHardware&) {
    throw;
  } catch (const OutOfMemory& error) {
    if (processes != nullptr) throw;
    return RunRefusal{CaseStatus::oom, error.what()};
  } catch (const BadInput& error) {
    if (processes != nullptr && !dynamic_cast<const Unsupported*>(&error)) throw;  // it has ended their world
    return RunRefusal{CaseStatus::unsupported, error.what()};
  } catch (const RankFailure& error) {
    if (processes != nullptr) throw;
    return RunRefusal{CaseStatus::error, error.what()};
  }
  return std::nullopt;
}

std::vector<int> runnable_degrees(const LayerJob& job) {
  std::vector<int> degrees;
  const int most = job.tried ? largest_degree(LayerPricer(job.predicted_by, job.shape, job.pricing)) : 0;
  std::ranges::copy_if(job.tried_degrees, std::back_inserter(degrees), [&](int r) { return r <= most; });
  return degrees;
}

std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree) {
  return fmt::format("run/{}/{}{}", layer, schedule, tried_degree > 0 ? fmt::format("/r{}", tried_degree) : "");
}

}  // namespace moe::verbs
