#include "moe/device/profiled.h"

#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

#include "moe/device/cuda/check.h"

namespace moe {

NamedRange::NamedRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
NamedRange::~NamedRange() { nvtxRangePop(); }

ProfiledTime::ProfiledTime() { MOE_CHECK_CUDA(cudaProfilerStart()); }
ProfiledTime::~ProfiledTime() { cudaProfilerStop(); }

}  // namespace moe
