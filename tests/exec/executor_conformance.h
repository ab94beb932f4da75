#pragma once
// What running a plan must do on every device: instantiate ExecutorConformance once more.
#include <gtest/gtest.h>

#include "tests/device/device_conformance.h"

namespace moe {

class ExecutorConformance : public testing::TestWithParam<DeviceFactory> {
 public:
  static std::string name(const testing::TestParamInfo<ParamType>& info) { return info.param.name; }
};

}  // namespace moe
