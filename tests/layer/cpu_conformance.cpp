#include "tests/layer/conformance_device.h"

namespace moe {

LayersOn conformance_device() { return {}; }
std::string conformance_device_missing() { return ""; }

}  // namespace moe
