#include "moe/device/cpu/cpu_stream.h"

namespace moe {
namespace {

class CpuDevice final : public Device {
 public:
  std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure) override {
    return std::make_unique<CpuStream>(name, std::move(failure));
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace moe
