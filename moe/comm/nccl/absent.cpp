// Replaces this folder in a build without NCCL.
#include "moe/base/check.h"
#include "moe/comm/nccl/nccl_world.h"

namespace moe {

std::unique_ptr<World> make_nccl_world(NcclOptions) {
  throw NoHardware("this build has no NCCL: build it where nvcc and nccl.h are installed (cmake --preset cuda)");
}

}  // namespace moe
