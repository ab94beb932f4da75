#pragma once
// One rank of one transformer layer with MoE, forward and hand-written backward:
//
//   h = x + attention(norm(x))      sharded over MP
//   y = h + moe(norm(h))            gate, order, dispatch, experts (EP x ESP), combine, i-order (FSMoE, section 3)
//
// Norms and residuals are as the layer's shape says. Parameters, inputs and every buffer are made here; what runs when
// is a plan's business (binding.h), and the plan's flow decides which tokens and rows this rank holds.
//
// Loss = sum over all distinct tokens of <y, dY>, and the gate's auxiliary losses; gradients are its derivatives, each
// summed (not averaged) over the ranks that `Parameter::summed_over` names.
#include <memory>
#include <vector>

#include "moe/layer/attention.h"
#include "moe/layer/comms.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/hooks/hook.h"
#include "moe/layer/layer_device.h"
#include "moe/layer/norm.h"
#include "moe/layer/orders/order.h"
#include "moe/layer/workload.h"
#include "moe/rows/layer_buffers.h"

namespace moe {

class MoeLayer {
 public:
  /// Throws BadInput naming the field if this layer can't be run (rank_shape.h) or names an unknown part. Blocking: all
  /// ranks make theirs. `device` is this rank's and outlives the layer; Unsupported naming what it has not.
  MoeLayer(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device = cpu_layer_device());

  const RankShape& shape() const { return shape_; }
  const LayerSeed& seed() const { return seed_; }

  TensorView input() const { return buffers_.forward.input; }              // (held tokens, M)
  TensorView output() const { return buffers_.forward.output; }            // likewise
  TensorView output_gradient() const { return buffers_.backward.output; }  // dY: as the loss gives it
  TensorView input_gradient() const { return buffers_.backward.input; }    // dX
  /// Of the last pass; where a device has it, copied here by this call.
  const Routing& routing() const {
    routing_.fetch();
    return routing_;
  }
  MemorySpace& memory() const { return device_.math().memory(); }
  /// From now on the gate only weighs the workload's choices.
  void preset(const Workload& workload) {
    workload.fill(shape_, seed_, routing_);
    routing_.send();
  }
  /// Of this rank's own tokens, (tokens, choices).
  std::span<const int32_t> own_choices() const;
  double auxiliary_loss() const { return gate_->auxiliary_loss(); }

  /// This rank's part of every weight and gradient. Steady state (see LayerBinding): the dense part's gradients are
  /// those of the pass before the last, which the last pass summed over DP; the others are the last pass's own.
  std::vector<Parameter> parameters();

  /// Calls `hook` from now on instead of the shape's own; it sends the same element type. Null: none.
  void set_hook(std::unique_ptr<Hook> hook);
  /// By how much one exchange may change an element, of its size.
  double exchange_error() const { return hook_ ? hook_->relative_error(shape_.dtype()) : 0; }

  /// Enqueues the sums that no plan carries: the gate's and the norms' gradients over the stage, the experts' over EDP
  /// unless the plan did that. All ranks call it, once after a pass; the gradients are whole when `stream` has passed
  /// it.
  void finish_gradients(Stream& stream);
  /// Instead, for a pass that stands for itself: the dense gradients that it made are summed over DP too, and are what
  /// parameters() shows.
  void finish_step(Stream& stream);

 private:
  friend class LayerBinding;

  RankShape shape_;
  LayerSeed seed_;
  LayerComms comms_;
  LayerDevice& device_;
  LayerBuffers buffers_;
  mutable Routing routing_;   // its vectors are a copy of what a device has
  Tensor d_weight_, d_fill_;  // (gated tokens, choices)
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<RowNorm> norm1_, norm2_;  // before attention, before the gate; null: none
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Hook> hook_;  // null: none
  Tensor hooked_;               // (gated tokens, M): the output's gradient as the hook gives it
  std::unique_ptr<Expert> expert_;
  Tensor fresh_, pending_;       // the dense part's gradients: being made by this backward; made by the one before
  bool experts_summed_ = false;  // by the last pass's plan
};

}  // namespace moe
