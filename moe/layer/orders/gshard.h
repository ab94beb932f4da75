#pragma once
// GShard's order: einsum with one-hot masks (Lepikhin et al. 2020; FSMoE, section 3.1). A mask of (tokens of a group,
// rows of an expert) holds the pairs' values, and every map is GEMMs: O(tokens rows M), which is fast only if the masks
// are dense (SoftMoE).
#include <memory>

#include "moe/layer/orders/order.h"
#include "moe/tensor/math.h"

namespace moe {

std::unique_ptr<Order> make_gshard_order(DType dtype);

/// The range of a mask: a group of tokens, an expert, and the rows that the expert has there in a layout.
struct Cell {
  int group = 0;
  int64_t expert = 0;
  int64_t rows = 0;
};

/// The operations of the order other than GEMMs, on one device. Masks and products are dense, (group_tokens, rows).
class Masks {
 public:
  virtual ~Masks() = default;
  /// Overwrites the mask: each pair's value (1 if `values` has no data) at its token and row; 0 elsewhere.
  virtual void spread(const Routing& routing, const Cell& cell, TensorView values, TensorView mask) = 0;
  /// Sets values[pair] to the product at its token and row, for the pairs of this cell.
  virtual void pick(const Routing& routing, const Cell& cell, TensorView products, TensorView values) = 0;
  virtual void clear(TensorView t) = 0;
};

/// Makes GShard's order for rows of `dtype`. `math` outlives it.
std::unique_ptr<Order> make_masked_order(Math& math, std::unique_ptr<Masks> masks, DType dtype);

}  // namespace moe
