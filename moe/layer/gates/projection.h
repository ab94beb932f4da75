#pragma once
// The GEMMs of a gate: products = hidden W^T with W of (width, M), and the way back.
#include "moe/layer/math.h"
#include "moe/layer/parameter.h"
#include "moe/layer/tensor.h"

namespace moe {

class GateProjection {
 public:
  GateProjection(const RankShape& rank, int64_t width, Math& math = cpu_math());
  /// Overwrites products.
  void forward(TensorView hidden) const;
  /// From d_products: overwrites W's gradient and adds to d_hidden.
  void backward(TensorView hidden, TensorView d_hidden) const;
  TensorView products() const { return products_; }      // (tokens, width)
  TensorView d_products() const { return d_products_; }  // likewise
  /// Rows [first, first + count) of W.
  Parameter weight(std::string_view name, int64_t first, int64_t count) const;
  Parameter weight(std::string_view name) const { return weight(name, 0, weights_.view().size(0)); }

 private:
  Math& math_;
  Tensor weights_, d_weights_, products_, d_products_;
};

}  // namespace moe
