#include <algorithm>
#include <cstdlib>

#include "moe/device/cpu/cpu_stream.h"

namespace moe {
namespace {

class CpuDevice final : public Device {
 public:
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure, Urgency) override {
    return std::make_unique<cpu::CpuStream>(name, std::move(failure));
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cpu::CpuEvent>(); }
  Memory make_memory(int64_t bytes) override {
    const auto rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, std::max(rounded, size_t{64}));
    require<OutOfMemory>(data != nullptr, "no memory for {}", human_bytes(static_cast<double>(bytes)));
    return {data, bytes, [](void* owned) { std::free(owned); }};
  }
  Memory make_host_memory(int64_t bytes) override { return make_memory(bytes); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace moe
