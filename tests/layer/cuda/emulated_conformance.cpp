#include "tests/layer/conformance_device.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {

LayersOn conformance_device() { return {make_test_device, make_test_layer_device}; }

std::string conformance_device_missing() {
  try {
    make_test_device();
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

}  // namespace moe
