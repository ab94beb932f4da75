#pragma once
// The tensors that flow through a layer. If a group has one rank, its collective is no task and moves nothing: its
// output is the same memory as its input.
#include <array>
#include <cstdint>
#include <memory>

#include "moe/base/enum_array.h"
#include "moe/plan/memory.h"
#include "moe/sharding/phase_layouts.h"
#include "moe/sharding/rank_shape.h"
#include "moe/tensor/tensor_store.h"

namespace moe {

// ZeRO 1 (Rajbhandari et al. 2020): of the ranks that hold the same weight, each keeps the optimizer's states of a
// share of it, and takes the steps of that share.

struct WeightShare {
  std::array<ShardRange, 3> axes;  // this rank's share, by axis of the whole weight
  ElementSelection elements;       // own elements of this rank's part of the weight, row-major
};

/// Returns share `rank` of `ranks` of a part of a weight: share_of() of axis 1, or of axis 2 if axis 1 has one element.
/// It may be empty. Throws BadInput if `rank` is not one of `ranks`.
WeightShare weight_share(const std::array<ShardRange, 3>& part, int rank, int ranks);

/// The tensor stores of a layer's pass over one micro-batch, one per lifetime. Passes that use memory one after the
/// other share stores, as the plan's memory slots assign them (moe/plan/memory.h).
class LayerMemory {
 public:
  /// Makes stores for a single pass, whose forward and backward share memory.
  LayerMemory() {
    for (auto& store : stores_) store = std::make_shared<TensorStore>();
    share(Lifetime::dense_backward, stores_[Lifetime::dense_forward]);
    share(Lifetime::moe_backward, stores_[Lifetime::moe_forward]);
  }
  void share(Lifetime lifetime, std::shared_ptr<TensorStore> store) { stores_[lifetime] = std::move(store); }
  TensorStore& store(Lifetime lifetime) const { return *stores_[lifetime]; }

 private:
  EnumArray<Lifetime, std::shared_ptr<TensorStore>, kLifetimes> stores_;
};

/// Views of one phase's tensors, in the order in which a forward fills them. In the backward each view is the gradient
/// of the forward's tensor of that name unless its comment says otherwise, and views are filled in reverse order.
struct PhaseBuffers {
  TensorView input;       // (held tokens, M): x
  TensorView mp_input;    // (B L, M)
  TensorView mp_partial;  // (B L, M): this rank's part of a sum over MP, residual included: forward, of attention's
                          // output; backward, of the input's gradient
  TensorView hidden;      // (held tokens, M)
  TensorView gate_input;  // (gated tokens, M)
  TensorView moe_output;  // (gated tokens, M)
  TensorView output;      // (held tokens, M): y
  // Tensors of the shared expert. shared_in is its input, gathered over MP if the flow gathers there; shared_out is
  // this rank's part of the sum over MP; both are (B L, M). shared_sum is that sum, for the rank's own tokens or its
  // MP group's. In a dense layer, shared_in and shared_out are the gathered input of the feed-forward and this rank's
  // part of its output; in the backward shared_out is the gathered gradient of the output, and shared_in this rank's
  // part of the input's gradient.
  TensorView shared_in, shared_out, shared_sum;
  // Buffers of the MoE part (phase_layouts.h). Rows go to the experts through them and come back through the same ones,
  // chunk by chunk. A chunk comes back only after every rank that reads it has received it, so the buffers are free.
  TensorView home, fanned, peer, gathered, wide, laid_out;  // fanned: a copy of home for (from) each ESP rank
  TensorView rows_in, rows_out;  // (rows, M): input and output of an expert task, for one chunk or for all rows
  TensorView wire_out, wire_in;  // elements sent and received in one exchange, if they are sent in another type
};

class LayerBuffers {
 public:
  /// Makes the buffers. `before`: the buffers of the layer whose output is this one's input; both share that memory in
  /// both phases. `last`: no layer shares the output, so it and its gradient belong to these buffers alone, as the
  /// first layer's input and its gradient do.
  LayerBuffers(const RankShape& shape, const LayerMemory& pass, MemorySpace& memory, const LayerBuffers* before,
               bool last);
  const bool begins, ends;  // whether no other layer shares the input; whether none shares the output
  /// Makes room for the rows of these layouts, and points the phase's views at it. Allocates only if it must grow.
  void fit(const RankShape& shape, Phase phase, const PhaseLayouts& layouts);

  PhaseBuffers& phase_buffers(Phase phase) { return phase == Phase::forward ? forward : backward; }
  const PhaseBuffers& phase_buffers(Phase phase) const { return phase == Phase::forward ? forward : backward; }

  PhaseBuffers forward, backward;
  TensorView normed_input;      // (B L, M): input of attention, kept for the backward
  TensorView normed;            // (gated tokens, M): input of gate and order, kept for the backward; in a dense
                                // layer (B L, M): input of the feed-forward
  TensorView summed, d_summed;  // (gated tokens, M): the MoE part's residual sum if a norm follows; its gradient
  TensorView expert_input;      // (rows, M): input of the experts' products (ExpertRows), kept for the backward

 private:
  class Maker;  // makes one phase's buffers
  TensorView make(Lifetime lifetime, std::string_view name, std::initializer_list<int64_t> shape);

  MemorySpace& memory_;
  LayerMemory pass_;
  TensorStore own_;  // tensors that no other layer's pass uses
  DType dtype_, wire_;
  EnumArray<Phase, std::vector<std::shared_ptr<const Tensor>>, 2> grown_;  // memory of the phase's views
};

}  // namespace moe
