#pragma once
// What attention does between its projections: out = softmax(q k^T / sqrt(d)) v of every head, where a token sees those
// of its sequence up to itself. Heads lie side by side in the columns; heads / kv_heads consecutive ones read the same
// key-value head.
#include <memory>

#include "moe/tensor/math.h"

namespace moe {

struct HeadsShape {
  int64_t tokens = 0, seq = 0;  // sequences are `seq` consecutive tokens
  int64_t heads = 0, kv_heads = 0, dim = 0;
  DType dtype = DType::float32;
};

/// q (tokens, heads d); k, v (tokens, kv_heads d); or their gradients.
struct HeadInputs {
  TensorView q, k, v;
};

class CausalHeads {
 public:
  virtual ~CausalHeads() = default;
  /// out (tokens, heads d), overwritten.
  virtual void forward(const HeadInputs& in, TensorView out) = 0;
  /// Overwrites d. `in` and `out` are the last forward's; may change what that kept.
  virtual void backward(const HeadInputs& in, TensorView out, TensorView d_out, const HeadInputs& d) = 0;
};

/// Keeps a matrix (L, L) a head.
std::unique_ptr<CausalHeads> make_composed_heads(Math& math, const HeadsShape& shape);
/// Keeps a number a token and head, by LibTorch's kernels for float32 and float64 on the CPU.
std::unique_ptr<CausalHeads> make_flash_heads(const HeadsShape& shape);

}  // namespace moe
