#include "moe/record/nvml.h"

#include <dlfcn.h>

namespace moe {
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
  library->find("nvmlDeviceGetMaxClockInfo", t.most_clock);
  library->find("nvmlDeviceGetCurrentClocksThrottleReasons", t.reasons);
  library->find("nvmlDeviceGetPersistenceMode", t.persistence);
  library->find("nvmlDeviceGetMigMode", t.mig);
  library->find("nvmlDeviceGetEccMode", t.ecc);
  library->find("nvmlDeviceGetEnforcedPowerLimit", t.power_limit);
  library->find("nvmlDeviceGetPowerManagementDefaultLimit", t.default_power_limit);
  library->find("nvmlDeviceGetComputeRunningProcesses", t.processes);
  library->find("nvmlDeviceGetCurrPcieLinkGeneration", t.pcie_generation);
  library->find("nvmlDeviceGetMaxPcieLinkGeneration", t.most_pcie_generation);
  library->find("nvmlDeviceGetCurrPcieLinkWidth", t.pcie_width);
  library->find("nvmlDeviceGetMaxPcieLinkWidth", t.most_pcie_width);
  library->find("nvmlDeviceGetNvLinkState", t.link);
  library->find("nvmlDeviceGetTemperature", t.temperature);
  return {library, &library->table};
}

}  // namespace moe
