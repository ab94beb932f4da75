#pragma once
// What the conformance suite's layers run on: the CPU (cpu_conformance.cpp), or the kernels of a GPU (cuda/).
#include <string>

#include "tests/layer/local_layers.h"

namespace moe {

LayersOn conformance_device();
/// Returns why the device is not there; empty: it is.
std::string conformance_device_missing();

}  // namespace moe
