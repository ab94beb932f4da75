#include "moe/record/gpu_state.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace moe {
namespace {

std::string what_holds(unsigned long long bits) {
  constexpr std::array<std::pair<unsigned long long, const char*>, 8> kNames{{{kNvmlIdle, "idle"},
                                                                              {kNvmlSetClocks, "set"},
                                                                              {kNvmlPowerCap, "power"},
                                                                              {kNvmlSlowdown, "slowdown"},
                                                                              {kNvmlSyncBoost, "sync"},
                                                                              {kNvmlHeat, "heat"},
                                                                              {kNvmlHardwareHeat, "hardware heat"},
                                                                              {kNvmlPowerBrake, "power brake"}}};
  std::vector<const char*> held;
  for (const auto& [bit, name] : kNames)
    if ((bits & bit) != 0) held.push_back(name);
  return held.empty() ? "none" : fmt::format("{}", fmt::join(held, " + "));
}

/// Sets one text for all GPUs, or one for each where they differ.
void set_each(const char* name, const std::vector<std::string>& texts, Fields& state) {
  if (texts.empty()) return;
  const bool alike = std::ranges::adjacent_find(texts, std::not_equal_to{}) == texts.end();
  state.set(name, alike ? texts.front() : fmt::format("{}", fmt::join(texts, ", ")));
}

template <class Value>
void add(const std::optional<Value>& value, std::vector<std::string>& texts) {
  if (value) texts.push_back(fmt::format("{}", *value));
}

Fields state_of_all(const Nvml& nvml) {
  Fields state;
  std::array<char, kNvmlNameBytes> driver{};
  if (nvml.driver != nullptr && nvml.driver(driver.data(), kNvmlNameBytes - 1) == kNvmlOk)
    state.set("gpu_driver", std::string(driver.data()));
  std::vector<std::string> sm_mhz, memory_mhz, celsius, held;
  for_each_gpu(nvml, [&](NvmlDevice gpu) {
    add(nvml_says(nvml.clock, gpu, kNvmlSmClock), sm_mhz);
    add(nvml_says(nvml.clock, gpu, kNvmlMemoryClock), memory_mhz);
    add(nvml_says(nvml.temperature, gpu, kNvmlGpuTemperature), celsius);
    if (const auto reasons = nvml_says(nvml.reasons, gpu)) held.push_back(what_holds(*reasons));
  });
  set_each("gpu_sm_mhz", sm_mhz, state);
  set_each("gpu_memory_mhz", memory_mhz, state);
  set_each("gpu_celsius", celsius, state);
  set_each("gpu_held", held, state);
  return state;
}

}  // namespace

Fields gpu_state(const Nvml* nvml) {
  if (!nvml_begins(nvml)) return {};
  Fields state = state_of_all(*nvml);
  nvml_ends(*nvml);
  return state;
}

bool uses_cuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver != nullptr) ::dlclose(driver);
  return driver != nullptr;
}

}  // namespace moe
