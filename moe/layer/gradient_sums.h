#pragma once
// Sums a gradient over the ranks that made parts of it.
#include <span>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

/// Enqueues the sum of p's gradient over `comm`, where that has several ranks and `sums`; then its division by how
/// often it counts each token. `math` computes where the gradient lies, and outlives the work.
void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call);

// Gathers weights after a step under ZeRO 1: each rank has changed its share of them (layer_buffers.h) and gets the
// others'.

/// Returns how many elements gather_weights() needs in `scratch`.
int64_t elements_of(std::span<const Parameter> weights);

/// Enqueues one AllGather of all the weights: each rank of `comm`, which holds them alike, has changed share rank() of
/// each. They are of one type, and travel by `scratch`, which has elements_of() of it; one weight without a first axis
/// needs none. `math` computes where they lie, and outlives the work.
void gather_weights(std::span<const Parameter> weights, TensorView scratch, Communicator& comm, Math& math,
                    CommCall call);

}  // namespace moe
