#pragma once
// Tutel's order: sparse scatter and gather, O(pairs M) instead of an einsum with one-hot masks (FSMoE, section 3.1).
#include <memory>

#include "moe/layer/orders/order.h"

namespace moe {

std::unique_ptr<Order> make_tutel_order(DType dtype);

}  // namespace moe
