#pragma once
// One rank of one transformer layer with MoE, forward and hand-written backward:
//
//   h = x + attention(norm(x))      sharded over MP
//   y = h + moe(norm(h))            gate, order, dispatch, experts (EP x ESP), combine, i-order (FSMoE, section 3)
//         + shared(norm(h))         where the layer has one: an expert of every token, sharded over MP, not weighed
//
// A dense layer (moe/plan/dense_layers.h) has y = h + ffn(norm(h)) instead, sharded over MP as attention is: the shared
// expert alone. Norms and residuals are as the layer's shape says; with post_layernorm h = norm(x + attention(x)) and
// y = norm(h + moe(h) + shared(h)). Parameters, inputs and every buffer are made here; what runs when is a plan's
// business (binding.h), and the plan's flow decides which tokens and rows this rank holds.
//
// Loss = sum over all distinct tokens of <y, dY>, and the gate's auxiliary losses; gradients are its derivatives, each
// summed (not averaged) over the ranks that `Parameter::summed_over` names.
#include <memory>
#include <vector>

#include "moe/layer/layer_state.h"
#include "moe/layer/workload.h"

namespace moe {

class MoeLayer {
 public:
  /// Makes one rank of the layer, blocking: all ranks make theirs. `device` is this rank's and outlives the layer.
  /// Throws BadInput naming the field if this layer can't be run (rank_shape.h) or names an unknown part; Unsupported
  /// naming what `device` has not, and for post_layernorm with a shared expert where ranks gate the tokens of several
  /// MP groups.
  MoeLayer(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device = cpu_layer_device(),
           const LayerLinks& links = {})
      : state_(rank, seed, std::move(comms), device, links) {}

  const RankShape& shape() const { return state_.shape; }
  const LayerSeed& seed() const { return state_.seed; }

  /// These say whether the layer's input, or its output, belongs to it alone. Else the layer before, or behind, shares
  /// it, and another pass may overwrite it once both are through.
  bool begins() const { return state_.buffers.begins; }
  bool ends() const { return state_.buffers.ends; }
  TensorView input() const { return state_.buffers.forward.input; }              // (held tokens, M)
  TensorView output() const { return state_.buffers.forward.output; }            // likewise
  TensorView output_gradient() const { return state_.buffers.backward.output; }  // dY: as the loss gives it
  TensorView input_gradient() const { return state_.buffers.backward.input; }    // dX
  /// Shows the last pass's routing. Where a device has it, this call copies it here.
  const Routing& routing() const {
    state_.routing.fetch();
    return state_.routing;
  }
  MemorySpace& memory() const { return state_.memory(); }
  /// Says that passes from now on are of this step (Gate::begin_step).
  void begin_step(uint64_t step, bool noisy) {
    if (state_.parts.gate) state_.parts.gate->begin_step(step, noisy);
  }
  /// Makes the gate weigh the workload's choices from now on, instead of choosing.
  void preset(const Workload& workload) {
    workload.fill(state_.shape, state_.seed, state_.routing);
    state_.routing.send();
  }
  /// Shows the experts chosen for this rank's own tokens, (tokens, choices); none in a dense layer.
  std::span<const int32_t> own_choices() const;
  double auxiliary_loss() const { return state_.parts.gate ? state_.parts.gate->auxiliary_loss() : 0; }

  /// Shows this rank's part of every weight and gradient. In the steady state (LayerBinding) the dense part's gradients
  /// are those of the pass before the last, which the last pass summed over DP; the others are the last pass's own.
  std::vector<Parameter> parameters();

  /// Calls `hook` from now on instead of the shape's own; it sends the same element type. Null: none.
  void set_hook(std::unique_ptr<Hook> hook) { state_.set_hook(std::move(hook)); }
  /// Bounds by how much of its size one exchange may change an element.
  double exchange_error() const {
    return state_.parts.hook ? state_.parts.hook->relative_error(state_.shape.dtype()) : 0;
  }

  /// Enqueues the sums that no plan carries: the gate's and the norms' gradients over the stage, the experts' over EDP
  /// unless the plan did that. All ranks call it, once after a pass; the gradients are whole when `stream` has passed
  /// it.
  void finish_gradients(Stream& stream);
  /// Replaces finish_gradients() for a pass that stands for itself: sums over DP too the dense gradients that it made,
  /// which parameters() then shows.
  void finish_step(Stream& stream);

  /// Shows the state to a binding, which runs the layer.
  LayerState& state() { return state_; }

 private:
  LayerState state_;
};

}  // namespace moe
