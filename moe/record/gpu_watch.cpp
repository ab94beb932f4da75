#include "moe/record/gpu_watch.h"

#include <algorithm>
#include <condition_variable>

namespace moe {

GpuWatch::GpuWatch(std::shared_ptr<const Nvml> nvml, Interval every) : nvml_(std::move(nvml)) {
  if (nvml_ == nullptr || nvml_->init == nullptr || nvml_->count == nullptr || nvml_->handle == nullptr) return;
  if (nvml_->init() != kNvmlOk) return;
  thread_ = std::jthread([this, every](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any bell;
    std::unique_lock lock(mutex);
    do read();
    while (!bell.wait_for(lock, stop, every, [&] { return stop.stop_requested(); }));
    if (nvml_->shutdown != nullptr) nvml_->shutdown();
  });
}

void GpuWatch::read() {
  unsigned count = 0;
  if (nvml_->count(&count) != kNvmlOk) return;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice gpu = nullptr;
    if (nvml_->handle(i, &gpu) != kNvmlOk) continue;
    const auto mhz = nvml_says(nvml_->clock, gpu, kNvmlSmClock);
    const auto reasons = nvml_says(nvml_->reasons, gpu);
    if (!mhz || !reasons || (*reasons & kNvmlIdle) != 0) continue;
    const std::lock_guard lock(mutex_);
    sm_mhz_.push_back(*mhz);
    held_ += *reasons != 0;
  }
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
