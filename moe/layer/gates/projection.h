#pragma once
// The GEMMs of a gate: products = hidden W^T with W of (width, M), and the way back. Of 16-bit hidden states in
// float32, weights included: what a gate decides by isn't rounded to 8 or 11 bits.
#include "moe/layer/parameter.h"
#include "moe/tensor/math.h"
#include "moe/tensor/tensor.h"

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
  /// `t` (tokens, M), or what wide_ then has of it.
  TensorView widened(TensorView t) const;
  Math& math_;
  Tensor weights_, d_weights_, products_, d_products_;
  Tensor wide_;  // (tokens, M) of a 16-bit layer
};

}  // namespace moe
