#pragma once
// What experts share, act(x W, ...) W2: an element-wise activation between GEMMs. The weights before it (E, M, H) are
// sharded over ESP by columns, W2 (E, H, M) by rows. Biases, where the layer has them, are added behind each GEMM; W2's
// (E, M) is sharded by columns. A weight takes one GEMM forward and two backward. In FP8 a pass rounds the weights when
// its first rows come; gradients of weights are products of numbers that aren't rounded.
#include <span>
#include <string_view>

#include "moe/layer/experts/expert.h"

namespace moe {

struct Activation {
  std::span<const std::string_view> inputs;  // names of the weights before it
  /// Computes after = act(before[0], ...), all (rows, H / N_ESP).
  void (*forward)(Math& math, std::span<const TensorView> before, TensorView after);
  /// Computes d_before; d_before[0] holds d_after at first.
  void (*backward)(Math& math, std::span<const TensorView> before, std::span<const TensorView> d_before);
  bool fp8 = false;  // rows times weights are products of FP8 numbers
};

std::unique_ptr<Expert> make_feed_forward(const PartSetup& setup, const Activation& activation);

}  // namespace moe
