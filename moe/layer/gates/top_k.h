#pragma once
// The gates of the top-k kind share how they choose.
#include "moe/rows/routing.h"

namespace moe {

/// Chooses, unless the routing is preset, the largest of each token's logits, `stride` apart: the best first, of equal
/// ones the lower expert. Then gives every pair its row.
template <class T>
void choose_top_k(const T* logits, int64_t stride, Routing& routing);

}  // namespace moe
