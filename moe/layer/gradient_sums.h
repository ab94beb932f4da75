#pragma once
// Sums a gradient over the ranks that computed parts of it, and gathers updated weights.
#include <span>
#include <vector>

#include "moe/comm/communicator.h"
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

/// If `sums` is set and `comm` has several ranks, enqueues the AllReduce of p's gradient over `comm`. Then enqueues the
/// division of the gradient by p.copies. `math` belongs to the gradient's device and must outlive the enqueued work.
void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call);

// Under ZeRO 1, each rank updates its share of the weights in a step (layer_buffers.h) and then gathers the other
// ranks' shares.

/// Returns the number of elements of `scratch` that gather_weights() needs.
int64_t elements_of(std::span<const Parameter> weights);

/// Enqueues one AllGather of all the weights, each of which rank r of `comm` has updated in share r. All weights have
/// the same type. They are packed into `scratch`, which has elements_of() elements of that type; a single weight whose
/// first axis has extent 1 is gathered in place. `math` belongs to the weights' device and must outlive the work.
void gather_weights(std::span<const Parameter> weights, TensorView scratch, Communicator& comm, Math& math,
                    CommCall call);

}  // namespace moe
