#pragma once
// GShard's order: einsum with one-hot masks (Lepikhin et al. 2020; FSMoE, section 3.2). A mask of (tokens of a group,
// rows of an expert) holds the pairs' values, and every map is GEMMs: O(tokens rows M), which pays where the masks are
// dense (SoftMoE).
#include <memory>

#include "moe/layer/orders/order.h"

namespace moe {

std::unique_ptr<Order> make_gshard_order(DType dtype);

}  // namespace moe
