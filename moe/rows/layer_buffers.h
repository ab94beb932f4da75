#pragma once
// Holds what flows through a layer. Where a group has one rank its collective is no task and moves nothing: what it
// would write is the same memory as what it would read.
#include "moe/rows/phase_layouts.h"
#include "moe/tensor/tensor.h"

namespace moe {

/// Views one phase's data, in the order in which a forward makes it. In the backward names stand for their gradients,
/// made from the last to the first.
struct PhaseBuffers {
  TensorView input;       // (held tokens, M): x
  TensorView mp_input;    // (B L, M)
  TensorView mp_partial;  // (B L, M): attention's part of the sum over MP, residual included; backward: of the input
  TensorView hidden;      // (held tokens, M)
  TensorView gate_input;  // (gated tokens, M)
  TensorView moe_output;  // (gated tokens, M)
  TensorView output;      // (held tokens, M): y
  // These are the shared expert's: what it reads, where MP ranks gather that (B L, M), and its part of their sum (B L,
  // M); in the backward the output's gradient and the input's. The sum is of the rank's own tokens, or of its MP
  // group's. In a dense layer they are its feed-forward's: shared_in what it reads, gathered, and shared_out its part
  // of the output; in the backward shared_out is the output's gradient, gathered, and shared_in its part of the
  // input's.
  TensorView shared_in, shared_out, shared_sum;
  // These are the MoE part's (phase_layouts.h): rows go out through these and come back through the same, chunk by
  // chunk. A chunk's way back begins after its way out ended on every rank that reads it, so each is free by then.
  TensorView home, fanned, peer, gathered, wide, laid_out;  // fanned: a copy of home for (from) each ESP rank
};

class LayerBuffers {
 public:
  /// Makes the buffers. `before`: of the layer whose output is this one's input; the two share that memory in both
  /// phases.
  explicit LayerBuffers(const RankShape& shape, MemorySpace& memory = cpu_memory(),
                        const LayerBuffers* before = nullptr);
  /// Makes room for what these layouts hold, and points the phase's views at it. Allocates only if it must grow.
  void fit(const RankShape& shape, Phase phase, const PhaseLayouts& layouts);

  PhaseBuffers& of(Phase phase) { return phase == Phase::forward ? forward : backward; }

  PhaseBuffers forward, backward;
  TensorView normed_input;       // (B L, M): what attention reads, kept for the backward
  TensorView normed;             // (gated tokens, M): what the gate and the order read, likewise; a dense layer's
                                 // feed-forward: (B L, M)
  TensorView summed, d_summed;   // (gated tokens, M): the MoE part's residual sum where a norm is behind it; gradient
  TensorView expert_input;       // (rows, M): where the experts compute (ExpertRows), kept for the backward
  TensorView rows_in, rows_out;  // as large: what an expert task reads and writes; a chunk, or all
  TensorView wire_out, wire_in;  // (elements) of the wire's type, where it isn't the layer's: one exchange's both sides

 private:
  struct PhaseOwners {
    Tensor home, fanned, peer, gathered, wide, laid_out;
  };
  TensorView own(std::initializer_list<int64_t> shape);
  void make_dense(const RankShape& shape, PhaseBuffers& b, const PhaseBuffers* before);
  void make_feed_forward(const RankShape& shape, PhaseBuffers& b);
  TensorView grow(Tensor& tensor, int64_t elements) const { return grow(tensor, elements, dtype_); }
  TensorView grow(Tensor& tensor, int64_t elements, DType dtype) const;

  MemorySpace& memory_;
  DType dtype_, wire_;
  std::vector<Tensor> owned_;
  std::array<PhaseOwners, 2> phases_;
  Tensor expert_input_, rows_in_, rows_out_, wire_out_, wire_in_;
};

}  // namespace moe
