#pragma once
// A monitor that reads the clocks of GPUs repeatedly during a run, because readings before and after the run say little
// about the clocks in between.
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "moe/record/record.h"

namespace moe {

// NVIDIA's management library (NVML), loaded at run time, as a table of functions, which tests can replace.
//
// The declarations follow the "NVML API Reference Guide" (docs.nvidia.com/deploy/nvml-api) and cover only the functions
// that are used. Every function returns 0 on success; a device is an opaque pointer.

using NvmlDevice = void*;

constexpr int kNvmlOk = 0, kNvmlInsufficientSize = 7;
constexpr int kNvmlSmClock = 1;          // NVML_CLOCK_SM
constexpr int kNvmlMemoryClock = 2;      // NVML_CLOCK_MEM
constexpr int kNvmlGpuTemperature = 0;   // NVML_TEMPERATURE_GPU
constexpr unsigned kNvmlMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kNvmlNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE; also enough for the driver's version

/// Bits of the reasons for a reduced clock (nvmlClocksThrottleReasons, later renamed to event reasons).
constexpr unsigned long long kNvmlIdle = 0x1, kNvmlSetClocks = 0x2, kNvmlPowerCap = 0x4, kNvmlSlowdown = 0x8,
                             kNvmlSyncBoost = 0x10, kNvmlHeat = 0x20, kNvmlHardwareHeat = 0x40, kNvmlPowerBrake = 0x80;

/// The functions of the library; null for functions that an older library does not have.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned* devices) = nullptr;
  int (*handle)(unsigned index, NvmlDevice*) = nullptr;
  int (*driver)(char*, unsigned size) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned size) = nullptr;
  int (*clock)(NvmlDevice, int kind, unsigned* mhz) = nullptr;
  int (*max_clock)(NvmlDevice, int kind, unsigned* mhz) = nullptr;
  int (*reasons)(NvmlDevice, unsigned long long* bits) = nullptr;
  int (*persistence)(NvmlDevice, int* on) = nullptr;
  int (*mig)(NvmlDevice, unsigned* now, unsigned* after_reset) = nullptr;
  int (*ecc)(NvmlDevice, int* now, int* after_reset) = nullptr;
  int (*power_limit)(NvmlDevice, unsigned* milliwatt) = nullptr;
  int (*default_power_limit)(NvmlDevice, unsigned* milliwatt) = nullptr;
  int (*processes)(NvmlDevice, unsigned* count, void* infos) = nullptr;  // sets `count` if `infos` is too small
  int (*pcie_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*max_pcie_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*pcie_width)(NvmlDevice, unsigned*) = nullptr;
  int (*max_pcie_width)(NvmlDevice, unsigned*) = nullptr;
  int (*link)(NvmlDevice, unsigned link, int* up) = nullptr;
  int (*temperature)(NvmlDevice, int sensor, unsigned* celsius) = nullptr;
};

/// Returns the value that a function of the library provides; empty if the function is missing or fails.
template <class Value>
std::optional<Value> query_nvml(int (*function)(NvmlDevice, Value*), NvmlDevice gpu) {
  Value value{};
  return function != nullptr && function(gpu, &value) == kNvmlOk ? std::optional(value) : std::nullopt;
}
template <class Value, class Kind>
std::optional<Value> query_nvml(int (*function)(NvmlDevice, Kind, Value*), NvmlDevice gpu, Kind kind) {
  Value value{};
  return function != nullptr && function(gpu, kind, &value) == kNvmlOk ? std::optional(value) : std::nullopt;
}

/// Initialises the library; returns false if `nvml` is null or the library can't be used.
inline bool init_nvml(const Nvml* nvml) {
  return nvml != nullptr && nvml->init != nullptr && nvml->count != nullptr && nvml->handle != nullptr &&
         nvml->init() == kNvmlOk;
}
/// Shuts down the library after init_nvml().
inline void shutdown_nvml(const Nvml& nvml) {
  if (nvml.shutdown != nullptr) nvml.shutdown();
}
/// Calls body(device) for each GPU that the library reports.
template <class Body>
void for_each_gpu(const Nvml& nvml, Body body) {
  unsigned count = 0;
  if (nvml.count(&count) != kNvmlOk) return;
  for (unsigned i = 0; i < count; ++i)
    if (NvmlDevice gpu = nullptr; nvml.handle(i, &gpu) == kNvmlOk) body(gpu);
}

/// Opens libnvidia-ml.so.1 and finds its functions; null if it is missing. It is closed when the table is destroyed.
std::shared_ptr<const Nvml> open_nvml();

class GpuWatch {
 public:
  using Interval = std::chrono::milliseconds;
  /// Starts a thread that reads the clocks at this interval; does nothing if `nvml` is null or can't be used.
  explicit GpuWatch(std::shared_ptr<const Nvml> nvml, Interval every = Interval(200));

  /// Returns statistics of all readings so far in which a GPU was not idle: gpu_readings (their number),
  /// gpu_sm_mhz_least, gpu_sm_mhz_median and gpu_held_share (the share with a reduced clock); empty if there are none.
  Fields readings_summary() const;

 private:
  void read();

  std::shared_ptr<const Nvml> nvml_;
  mutable std::mutex mutex_;
  std::vector<unsigned> sm_mhz_;
  int64_t held_ = 0;
  std::jthread thread_;  // declared last, so that it ends before the other members
};

// The properties of GPUs that change during a run.

/// Returns gpu_driver, gpu_sm_mhz, gpu_memory_mhz, gpu_celsius and gpu_held, the reasons for reduced clocks ("none", or
/// some of idle, set, power, slowdown, sync, heat, hardware heat, power brake). If GPUs differ, a value lists all GPUs
/// in NVML's order ("1980, 345"). Values that NVML does not report are omitted; the result is empty if `nvml` is null
/// or can't be used.
Fields gpu_state(const Nvml* nvml);

/// Returns whether this process has loaded CUDA's driver, that is, whether it uses GPUs.
bool uses_cuda();

}  // namespace moe
