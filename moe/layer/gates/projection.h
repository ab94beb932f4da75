#pragma once
// The GEMMs of a gate: products = hidden W^T with W of (width, M), and the way back. 16-bit hidden states are
// multiplied in float32, weights included: what a gate decides by isn't rounded to 8 or 11 bits.
#include "moe/layer/gates/gate.h"

namespace moe {

class GateProjection {
 public:
  GateProjection(const PartSetup& setup, int64_t width);
  /// Computes products, overwriting them.
  void forward(TensorView hidden) const;
  /// Makes W's gradient and adds to d_hidden, from d_products.
  void backward(const GateBackward& pass) const;
  TensorView products() const { return products_; }      // (tokens, width)
  TensorView d_products() const { return d_products_; }  // likewise
  /// Shows rows [first, first + count) of W.
  Parameter weight(std::string_view name, int64_t first, int64_t count) const;
  Parameter weight(std::string_view name) const { return weight(name, 0, weights_.view().size(0)); }

 private:
  /// Returns `t` (tokens, M), or what the phase's wide_ then has of it.
  TensorView widened(TensorView t, Phase phase) const;
  Math& math_;
  LayerMemory memory_;
  Weight weights_, d_weights_;
  TensorView products_, d_products_;
  std::array<TensorView, 2> wide_;  // by phase: (tokens, M) of a 16-bit layer
};

}  // namespace moe
