#pragma once
// What the conformance suite's layers run on: the CPU (cpu_conformance.cpp), or the kernels of a GPU (cuda/).
#include "tests/layer/local_layers.h"

namespace moe {

LayersOn conformance_device();

}  // namespace moe
