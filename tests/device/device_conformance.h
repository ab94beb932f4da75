#pragma once
// What every device must do: an implementation instantiates DeviceConformance once more.
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "moe/device/stream.h"
#include "tests/device/on_device.h"

namespace moe {

struct DeviceFactory {
  std::string name;
  std::function<std::unique_ptr<Device>()> make;
  /// How far a moment of its events may be off the host's clock.
  double clock_error_s = 0;
};

class DeviceConformance : public testing::TestWithParam<DeviceFactory> {
 public:
  static std::string name(const testing::TestParamInfo<ParamType>& info) { return info.param.name; }

 protected:
  std::unique_ptr<Stream> stream(std::string_view name = "lane") { return device_->make_stream(name); }
  std::unique_ptr<Event> event() { return device_->make_event(); }

  /// Keeps `on` busy for so long.
  void work_for(Stream& on, double seconds) {
    on.mark(*began_);
    on.hold(*began_, {.at_least_s = seconds});
  }

  /// Queues the counter's growth by one.
  void increment(Stream& on, const OnDevice<double>& counter_and_one) {
    double* counter = counter_and_one.data();
    on.move({.copies = {}, .sum = {{counter, counter + 1}, {counter}, 1, DType::float64}});
  }
  OnDevice<double> counter(Stream& on) { return {*device_, on, {0.0, 1.0}}; }

  const std::unique_ptr<Device> device_ = GetParam().make();

 private:
  const std::unique_ptr<Event> began_ = device_->make_event();
};

}  // namespace moe
