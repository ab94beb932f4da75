// The emulation as a GPU of the whole program: what is asked for a device of kind cuda gets the CPU's streams, and
// layers, models and optimizers whose kernels are emulated. A source of its own in a test's executable: its symbols
// take the place of moe/device/cuda and of moe/layer/cuda/present.cpp.
#include "moe/base/check.h"
#include "moe/device/cuda/cuda_device.h"
#include "moe/device/device.h"
#include "moe/device/gpu_settings.h"
#include "moe/device/profiled.h"
#include "moe/device/recorded_work.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {

int gpu_count() { return 1; }
std::vector<std::pair<std::string, std::string>> gpu_settings(int) { return {{"gpu", "emulated"}}; }
std::string gpu_setting(int, const std::string& name) { return name == "gpu" ? "emulated" : ""; }
int64_t free_gpu_bytes(int) { return int64_t{1} << 32; }

std::unique_ptr<Device> cuda::make_device(int) { return make_test_device(); }

std::unique_ptr<LayerDevice> make_cuda_layer_device(const GpuChoices& choices) {
  require<Unsupported>(choices.attention == AttentionBy::own, "attention by LibTorch: the emulation has its own alone");
  return make_test_layer_device();
}

std::unique_ptr<RecordedWork> record_work(std::span<Stream* const>, std::span<Event* const>,
                                          const std::function<void()>&) {
  throw Unsupported("recorded passes: a GPU is emulated");
}

NamedRange::NamedRange(const std::string&) {}
NamedRange::~NamedRange() = default;
ProfiledTime::ProfiledTime() = default;
ProfiledTime::~ProfiledTime() = default;

void launch_nothing(Stream&) { throw Unsupported("an empty kernel: a GPU is emulated"); }

}  // namespace moe
