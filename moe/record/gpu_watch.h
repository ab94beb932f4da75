#pragma once
// Reads the clocks of GPUs again and again while a run lasts: before and after it they say little of what held them
// meanwhile.
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "moe/record/nvml.h"
#include "moe/record/record.h"

namespace moe {

class GpuWatch {
 public:
  using Interval = std::chrono::milliseconds;
  /// Begins to read, on a thread of its own; nothing where `nvml` is null or can't be used.
  explicit GpuWatch(std::shared_ptr<const Nvml> nvml, Interval every = Interval(200));

  /// Returns of all readings so far in which a GPU was not idle gpu_readings (how many), gpu_sm_mhz_least,
  /// gpu_sm_mhz_median and gpu_held_share (of them those in which something held its clock down). Nothing of none.
  Fields seen() const;

 private:
  void read();

  std::shared_ptr<const Nvml> nvml_;
  mutable std::mutex mutex_;
  std::vector<unsigned> sm_mhz_;
  int64_t held_ = 0;
  std::jthread thread_;  // the last: it ends before the rest
};

}  // namespace moe
