#pragma once
// The common part of experts, act(x W, ...) W2: an element-wise activation between GEMMs. The weights before it (E, M,
// H) are sharded over ESP by columns, W2 (E, H, M) by rows. Biases, if the layer has them, are added after each GEMM;
// W2's (E, M) is sharded by columns. A weight takes one GEMM forward and two backward. In FP8 a pass rounds the weights
// when its first rows come; gradients of weights are products of numbers that aren't rounded.
#include <memory>
#include <span>
#include <string_view>

#include "moe/layer/experts/expert.h"

namespace moe {

struct Activation {
  std::span<const std::string_view> inputs;  // names of the weights before it
  /// Computes after = act(before[0], ...), all (rows, H / N_ESP).
  void (*forward)(Math& math, std::span<const TensorView> before, TensorView after);
  /// Computes d_before; d_before[0] holds d_after at the beginning.
  void (*backward)(Math& math, std::span<const TensorView> before, std::span<const TensorView> d_before);
  bool fp8 = false;  // whether rows times weights are products of FP8 numbers
};

std::unique_ptr<Expert> make_feed_forward(const PartSetup& setup, const Activation& activation);

// GPT's feed-forward: gelu(x W1) W2, gelu exact (erf). W1 (M, H) is sharded by columns, W2 (H, M) by rows. Two GEMMs
// forward, four backward.

std::unique_ptr<Expert> make_gpt_expert(const PartSetup& setup);

// GPT's feed-forward with GELU as GPT-2 computes it: gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

std::unique_ptr<Expert> make_gpt_tanh_expert(const PartSetup& setup);

// Mixtral's feed-forward, SwiGLU (Shazeer 2020): (silu(x W1) * (x W3)) W2, without biases. W1, W3 (M, H) are sharded by
// columns, W2 (H, M) by rows. Three GEMMs forward, six backward. In FP8, rows and weights are rounded before they are
// multiplied, with the scales of DeepSeek-V3's training (2024): one per 128 numbers of a row, or 128 x 128 of a weight.

std::unique_ptr<Expert> make_mixtral_expert(const PartSetup& setup);
std::unique_ptr<Expert> make_mixtral_fp8_expert(const PartSetup& setup);

}  // namespace moe
