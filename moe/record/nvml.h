#pragma once
// NVIDIA's management library (NVML), found at run time: its functions as a table, which a test can fill itself.
//
// This is declared from its reference ("NVML API Reference Guide", docs.nvidia.com/deploy/nvml-api), as far as it is
// used: every function returns 0 for success; a device is an opaque pointer.
#include <cstdint>
#include <memory>
#include <optional>

namespace moe {

using NvmlDevice = void*;

constexpr int kNvmlOk = 0, kNvmlInsufficientSize = 7;
constexpr int kNvmlSmClock = 1;          // NVML_CLOCK_SM
constexpr int kNvmlMemoryClock = 2;      // NVML_CLOCK_MEM
constexpr int kNvmlGpuTemperature = 0;   // NVML_TEMPERATURE_GPU
constexpr unsigned kNvmlMostLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr unsigned kNvmlNameBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE; of the driver's version fewer

/// Bits of what holds a clock down (nvmlClocksThrottleReasons, now called event reasons).
constexpr unsigned long long kNvmlIdle = 0x1, kNvmlSetClocks = 0x2, kNvmlPowerCap = 0x4, kNvmlSlowdown = 0x8,
                             kNvmlSyncBoost = 0x10, kNvmlHeat = 0x20, kNvmlHardwareHeat = 0x40, kNvmlPowerBrake = 0x80;

/// Holds the library's functions. One may be null: an older library lacks it.
struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned* devices) = nullptr;
  int (*handle)(unsigned index, NvmlDevice*) = nullptr;
  int (*driver)(char*, unsigned size) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned size) = nullptr;
  int (*clock)(NvmlDevice, int kind, unsigned* mhz) = nullptr;
  int (*most_clock)(NvmlDevice, int kind, unsigned* mhz) = nullptr;
  int (*reasons)(NvmlDevice, unsigned long long* bits) = nullptr;
  int (*persistence)(NvmlDevice, int* on) = nullptr;
  int (*mig)(NvmlDevice, unsigned* now, unsigned* after_reset) = nullptr;
  int (*ecc)(NvmlDevice, int* now, int* after_reset) = nullptr;
  int (*power_limit)(NvmlDevice, unsigned* milliwatt) = nullptr;
  int (*default_power_limit)(NvmlDevice, unsigned* milliwatt) = nullptr;
  int (*processes)(NvmlDevice, unsigned* count, void* infos) = nullptr;  // without room for infos: their number
  int (*pcie_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*most_pcie_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*pcie_width)(NvmlDevice, unsigned*) = nullptr;
  int (*most_pcie_width)(NvmlDevice, unsigned*) = nullptr;
  int (*link)(NvmlDevice, unsigned link, int* up) = nullptr;
  int (*temperature)(NvmlDevice, int sensor, unsigned* celsius) = nullptr;
};

/// Returns what a function of the library says; none where it is missing or fails.
template <class Value>
std::optional<Value> nvml_says(int (*function)(NvmlDevice, Value*), NvmlDevice gpu) {
  Value value{};
  return function != nullptr && function(gpu, &value) == kNvmlOk ? std::optional(value) : std::nullopt;
}
template <class Value, class Kind>
std::optional<Value> nvml_says(int (*function)(NvmlDevice, Kind, Value*), NvmlDevice gpu, Kind kind) {
  Value value{};
  return function != nullptr && function(gpu, kind, &value) == kNvmlOk ? std::optional(value) : std::nullopt;
}

/// Begins to use a library; returns false where there is none or it can't be used.
inline bool nvml_begins(const Nvml* nvml) {
  return nvml != nullptr && nvml->init != nullptr && nvml->count != nullptr && nvml->handle != nullptr &&
         nvml->init() == kNvmlOk;
}
/// Ends what nvml_begins() began.
inline void nvml_ends(const Nvml& nvml) {
  if (nvml.shutdown != nullptr) nvml.shutdown();
}
/// Calls body(device) for each GPU that the library can name.
template <class Body>
void for_each_gpu(const Nvml& nvml, Body body) {
  unsigned count = 0;
  if (nvml.count(&count) != kNvmlOk) return;
  for (unsigned i = 0; i < count; ++i)
    if (NvmlDevice gpu = nullptr; nvml.handle(i, &gpu) == kNvmlOk) body(gpu);
}

/// Opens libnvidia-ml.so.1 and finds its functions; null where it is not there. It is closed with the table.
std::shared_ptr<const Nvml> open_nvml();

}  // namespace moe
