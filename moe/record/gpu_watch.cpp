#include "moe/record/gpu_watch.h"

#include <algorithm>
#include <condition_variable>

#include "moe/base/threads.h"

namespace moe {

GpuWatch::GpuWatch(std::shared_ptr<const Nvml> nvml, Interval every) : nvml_(std::move(nvml)) {
  if (!nvml_begins(nvml_.get())) return;
  thread_ = start_thread("gpu watch", [this, every](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any bell;
    std::unique_lock lock(mutex);
    do read();
    while (!bell.wait_for(lock, stop, every, [&] { return stop.stop_requested(); }));
    nvml_ends(*nvml_);
  });
}

void GpuWatch::read() {
  for_each_gpu(*nvml_, [&](NvmlDevice gpu) {
    const auto mhz = nvml_says(nvml_->clock, gpu, kNvmlSmClock);
    const auto reasons = nvml_says(nvml_->reasons, gpu);
    if (!mhz || !reasons || (*reasons & kNvmlIdle) != 0) return;
    const std::lock_guard lock(mutex_);
    sm_mhz_.push_back(*mhz);
    held_ += *reasons != 0;
  });
}

Fields GpuWatch::seen() const {
  const std::lock_guard lock(mutex_);
  if (sm_mhz_.empty()) return {};
  std::vector<unsigned> sorted = sm_mhz_;
  std::ranges::sort(sorted);
  return {{"gpu_readings", static_cast<int64_t>(sorted.size())},
          {"gpu_sm_mhz_least", int64_t{sorted.front()}},
          {"gpu_sm_mhz_median", int64_t{sorted[sorted.size() / 2]}},
          {"gpu_held_share", static_cast<double>(held_) / static_cast<double>(sorted.size())}};
}

}  // namespace moe
