// Replaces CUDA in a build without it.
#include "moe/base/check.h"
#include "moe/layer/layer_device.h"

namespace moe {

std::unique_ptr<LayerDevice> make_cuda_layer_device(const GpuChoices&) { throw NoHardware("this build has no CUDA"); }

}  // namespace moe
