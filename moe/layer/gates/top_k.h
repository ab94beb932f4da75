#pragma once
// What the gates of the top-k kind share.
#include "moe/rows/routing.h"

namespace moe {

/// Unless the routing is preset: of each token's logits, `stride` apart, the largest, the best first; of equal ones the
/// lower expert. Then gives every pair its row.
template <class T>
void choose_top_k(const T* logits, int64_t stride, Routing& routing);

}  // namespace moe
