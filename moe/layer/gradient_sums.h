#pragma once
// Sums a gradient over the ranks that made parts of it.
#include "moe/comm/communicator.h"
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"

namespace moe {

/// Enqueues the sum of p's gradient over `comm`, where that has several ranks and `sums`; then its division by how
/// often it counts each token. `math` computes where the gradient lies, and outlives the work.
void sum_gradient(const Parameter& p, Communicator& comm, bool sums, Math& math, CommCall call);

}  // namespace moe
