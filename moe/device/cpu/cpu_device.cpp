#include "moe/device/cpu/cpu_device.h"

#include "moe/device/cpu/cpu_stream.h"
#include "moe/device/cpu/memory.h"

namespace moe {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : threads_(threads) {}
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure,
                                      StreamPriority) override {
    return std::make_unique<cpu::CpuStream>(name, std::move(failure), threads_);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cpu::CpuEvent>(); }
  Memory make_memory(int64_t bytes) override { return cpu::allocate(bytes); }
  Memory make_host_memory(int64_t bytes) override { return cpu::allocate(bytes); }

 private:
  const int threads_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return cpu::make_device(1); }
std::unique_ptr<Device> cpu::make_device(int threads) { return std::make_unique<CpuDevice>(threads); }

}  // namespace moe
