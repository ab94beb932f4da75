#include "moe/device/cpu/cpu_stream.h"
#include "moe/device/cpu/memory.h"

namespace moe {
namespace {

class CpuDevice final : public Device {
 public:
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure, Urgency) override {
    return std::make_unique<cpu::CpuStream>(name, std::move(failure));
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cpu::CpuEvent>(); }
  Memory make_memory(int64_t bytes) override { return cpu::allocate(bytes); }
  Memory make_host_memory(int64_t bytes) override { return cpu::allocate(bytes); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace moe
