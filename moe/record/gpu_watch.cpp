#include "moe/record/gpu_watch.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "moe/base/threads.h"

namespace moe {

GpuWatch::GpuWatch(std::shared_ptr<const Nvml> nvml, Interval every) : nvml_(std::move(nvml)) {
  if (!init_nvml(nvml_.get())) return;
  thread_ = start_thread("gpu watch", [this, every](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any bell;
    std::unique_lock lock(mutex);
    do read();
    while (!bell.wait_for(lock, stop, every, [&] { return stop.stop_requested(); }));
    shutdown_nvml(*nvml_);
  });
}

void GpuWatch::read() {
  for_each_gpu(*nvml_, [&](NvmlDevice gpu) {
    const auto mhz = query_nvml(nvml_->clock, gpu, kNvmlSmClock);
    const auto reasons = query_nvml(nvml_->reasons, gpu);
    if (!mhz || !reasons || (*reasons & kNvmlIdle) != 0) return;
    const std::lock_guard lock(mutex_);
    sm_mhz_.push_back(*mhz);
    held_ += *reasons != 0;
  });
}

Fields GpuWatch::readings_summary() const {
  const std::lock_guard lock(mutex_);
  if (sm_mhz_.empty()) return {};
  std::vector<unsigned> sorted = sm_mhz_;
  std::ranges::sort(sorted);
  return {{"gpu_readings", static_cast<int64_t>(sorted.size())},
          {"gpu_sm_mhz_least", int64_t{sorted.front()}},
          {"gpu_sm_mhz_median", int64_t{sorted[sorted.size() / 2]}},
          {"gpu_held_share", static_cast<double>(held_) / static_cast<double>(sorted.size())}};
}

namespace {

struct NvmlLibrary {
  explicit NvmlLibrary(void* opened) : handle(opened) {}
  ~NvmlLibrary() { ::dlclose(handle); }
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
  }

  void* handle;
  Nvml table;
};

}  // namespace

std::shared_ptr<const Nvml> open_nvml() {
  void* handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return nullptr;
  const auto library = std::make_shared<NvmlLibrary>(handle);
  Nvml& t = library->table;
  library->find("nvmlInit_v2", t.init);
  library->find("nvmlShutdown", t.shutdown);
  library->find("nvmlDeviceGetCount_v2", t.count);
  library->find("nvmlDeviceGetHandleByIndex_v2", t.handle);
  library->find("nvmlSystemGetDriverVersion", t.driver);
  library->find("nvmlDeviceGetName", t.name);
  library->find("nvmlDeviceGetClockInfo", t.clock);
  library->find("nvmlDeviceGetMaxClockInfo", t.max_clock);
  library->find("nvmlDeviceGetCurrentClocksThrottleReasons", t.reasons);
  library->find("nvmlDeviceGetPersistenceMode", t.persistence);
  library->find("nvmlDeviceGetMigMode", t.mig);
  library->find("nvmlDeviceGetEccMode", t.ecc);
  library->find("nvmlDeviceGetEnforcedPowerLimit", t.power_limit);
  library->find("nvmlDeviceGetPowerManagementDefaultLimit", t.default_power_limit);
  library->find("nvmlDeviceGetComputeRunningProcesses", t.processes);
  library->find("nvmlDeviceGetCurrPcieLinkGeneration", t.pcie_generation);
  library->find("nvmlDeviceGetMaxPcieLinkGeneration", t.max_pcie_generation);
  library->find("nvmlDeviceGetCurrPcieLinkWidth", t.pcie_width);
  library->find("nvmlDeviceGetMaxPcieLinkWidth", t.max_pcie_width);
  library->find("nvmlDeviceGetNvLinkState", t.link);
  library->find("nvmlDeviceGetTemperature", t.temperature);
  return {library, &library->table};
}

namespace {

std::string throttle_reasons(unsigned long long bits) {
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

/// Sets field `name` to the text if all GPUs have the same, else to a list with one text per GPU.
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
    add(query_nvml(nvml.clock, gpu, kNvmlSmClock), sm_mhz);
    add(query_nvml(nvml.clock, gpu, kNvmlMemoryClock), memory_mhz);
    add(query_nvml(nvml.temperature, gpu, kNvmlGpuTemperature), celsius);
    if (const auto reasons = query_nvml(nvml.reasons, gpu)) held.push_back(throttle_reasons(*reasons));
  });
  set_each("gpu_sm_mhz", sm_mhz, state);
  set_each("gpu_memory_mhz", memory_mhz, state);
  set_each("gpu_celsius", celsius, state);
  set_each("gpu_held", held, state);
  return state;
}

}  // namespace

Fields gpu_state(const Nvml* nvml) {
  if (!init_nvml(nvml)) return {};
  Fields state = state_of_all(*nvml);
  shutdown_nvml(*nvml);
  return state;
}

bool uses_cuda() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver != nullptr) ::dlclose(driver);
  return driver != nullptr;
}

}  // namespace moe
