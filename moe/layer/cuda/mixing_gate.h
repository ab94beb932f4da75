#pragma once
// SoftMoE's gate by kernels (moe/layer/gates/softmoe.h), and the kernels' view of a routing.
#include <memory>

#include "moe/layer/cuda/gate_kernels.h"
#include "moe/layer/gates/gate.h"
#include "moe/tensor/cuda/cuda_math.h"

namespace moe::cuda {

/// Makes SoftMoE's gate; `math` outlives it.
std::unique_ptr<Gate> make_mixing_gate(CudaMath& math, const PartSetup& setup);

/// Returns a view of the routing's arrays on the device.
inline RowAssignment assignment_of(const Routing& r) {
  const Routing::OnDevice& d = r.device;
  return {r.groups(),   r.group_tokens,   r.choices,        r.experts,       r.rows,   d.expert.data(),
          d.row.data(), d.slot_of.data(), d.pair_of.data(), d.filled.data(), r.padding};
}

}  // namespace moe::cuda
