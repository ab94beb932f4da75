#pragma once
// Gathers weights after a step under ZeRO 1: each rank has changed its share of them (weight_share.h) and gets the
// others'.
#include <span>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

/// Returns how many elements gather_weights() needs in `scratch`.
int64_t elements_of(std::span<const Parameter> weights);

/// Enqueues one AllGather of all the weights: each rank of `comm`, which holds them alike, has changed share rank() of
/// each. They are of one type, and travel by `scratch`, which has elements_of() of it; one weight without a first axis
/// needs none. `math` computes where they lie, and outlives the work.
void gather_weights(std::span<const Parameter> weights, TensorView scratch, Communicator& comm, Math& math,
                    CommCall call);

}  // namespace moe
