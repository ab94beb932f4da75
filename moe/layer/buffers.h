#pragma once
// What flows through a layer, allocated once. Where a group has one rank its collective is no task and moves nothing:
// what it would write is the same memory as what it would read.
#include <deque>

#include "moe/layer/rank_shape.h"
#include "moe/layer/tensor.h"

namespace moe {

/// One phase's data in the order in which it is made. Forward: the dense part first; backward: the MoE part first.
struct PhaseBuffers {
  TensorView dense_in;        // (tokens, M): x, or the gradient of the hidden state
  TensorView dense_gathered;  // (B L, M)
  TensorView dense_partial;   // (B L, M)
  TensorView dense_out;       // (tokens, M): the hidden state, or the gradient of x
  // The MoE part: rows go out through these and come back through the same, chunk by chunk. A chunk's way back begins
  // after its way out ended on every rank that reads it, so each is free by then.
  TensorView at_home;   // T_rank E M, wire layout (wire.h): ordered; then combined, which the backward reads
  TensorView at_peer;   // likewise: dispatched; then scattered
  TensorView gathered;  // N_ESP times that, gathered layout; then the experts' output
};

class LayerBuffers {
 public:
  explicit LayerBuffers(const RankShape& shape);

  PhaseBuffers forward, backward;
  TensorView output, d_output;   // (tokens, M): y and dY
  TensorView d_weight;           // (tokens, top_k)
  TensorView expert_input;       // (El, T_rank N_EP N_ESP, M), expert layout: kept for the backward
  TensorView rows_in, rows_out;  // as large: what one chunk's expert task reads and writes

 private:
  TensorView own(std::initializer_list<int64_t> shape);
  PhaseBuffers make_phase(const RankShape& shape);

  DType dtype_;
  std::deque<Tensor> owned_;
};

}  // namespace moe
