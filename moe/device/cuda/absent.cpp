// Replaces this folder in a build without CUDA.
#include "moe/base/check.h"
#include "moe/device/cuda/cuda_device.h"
#include "moe/device/device.h"
#include "moe/device/gpu_settings.h"
#include "moe/device/profiled.h"
#include "moe/device/recorded_work.h"

namespace moe {

int gpu_count() { return 0; }
std::vector<std::pair<std::string, std::string>> gpu_settings(int) { return {}; }
std::string gpu_setting(int, const std::string&) { return {}; }
int64_t free_gpu_bytes(int) { return 0; }

std::unique_ptr<Device> cuda::make_device(int) {
  throw NoHardware("this build has no CUDA: build it where nvcc is installed (cmake --preset cuda)");
}

std::unique_ptr<RecordedWork> record_work(std::span<Stream* const>, std::span<Event* const>,
                                          const std::function<void()>&) {
  throw Unsupported("recorded passes: this build has no CUDA");
}

NamedRange::NamedRange(const std::string&) {}
NamedRange::~NamedRange() = default;
ProfiledTime::ProfiledTime() = default;
ProfiledTime::~ProfiledTime() = default;

void launch_nothing(Stream&) { throw Unsupported("an empty kernel: this build has no CUDA"); }

}  // namespace moe
