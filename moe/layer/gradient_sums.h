#pragma once
// Sums a gradient over the ranks that made parts of it.
#include <span>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

/// Enqueues the sum of p's gradient over `comm`, if that has several ranks and `sums`, and then its division by
/// p.copies. `math` computes where the gradient lies, and outlives the work.
void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call);

// Gathers weights after a step under ZeRO 1: each rank has changed its share of them (layer_buffers.h) and gets the
// others'.

/// Returns the number of elements that gather_weights() needs in `scratch`.
int64_t elements_of(std::span<const Parameter> weights);

/// Enqueues one AllGather of all the weights: every rank of `comm` holds all of them, and has changed share rank() of
/// each. They have one type, and pass through `scratch`, which has elements_of() elements of it; a single weight
/// without a first axis needs none. `math` computes where they lie, and outlives the work.
void gather_weights(std::span<const Parameter> weights, TensorView scratch, Communicator& comm, Math& math,
                    CommCall call);

}  // namespace moe
