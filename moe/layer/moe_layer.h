#pragma once
// One rank of one transformer layer with MoE: attention (MP), gate, order, dispatch, experts (EP x ESP), combine,
// i-order (FSMoE, section 3), forward and hand-written backward. Parameters, inputs and every buffer are made here;
// what runs when is a plan's business (binding.h).
//
// No norm and no residual: y = moe(attention(x)). Loss = sum over all ranks' tokens of <y, dY>; gradients are its
// derivatives, each summed (not averaged) over the ranks that `Parameter::summed_over` names.
#include <memory>
#include <vector>

#include "moe/layer/attention.h"
#include "moe/layer/buffers.h"
#include "moe/layer/comms.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"

namespace moe {

class MoeLayer {
 public:
  /// Throws BadInput naming the field if this layer can't be run (rank_shape.h) or names an unknown part.
  MoeLayer(const Case& shape, int rank, const LayerSeed& seed, LayerComms comms);

  const RankShape& shape() const { return shape_; }
  const LayerSeed& seed() const { return seed_; }

  TensorView input() const { return buffers_.forward.dense_in; }             // (B L / N_MP, M)
  TensorView output() const { return buffers_.output; }                      // likewise
  TensorView output_gradient() const { return buffers_.d_output; }           // dY: as the loss gives it
  TensorView input_gradient() const { return buffers_.backward.dense_out; }  // dX
  const Routing& routing() const { return routing_; }

  /// This rank's part of every weight and gradient. Steady state (see LayerBinding): the dense part's gradients are
  /// those of the pass before the last, which the last pass summed over DP; the others are the last pass's own.
  std::vector<Parameter> parameters();

  /// Enqueues the sums that no plan carries: the gate's gradients over the stage, the experts' over EDP. All ranks call
  /// it, once after a pass; the gradients are whole when `stream` has passed it.
  void finish_gradients(Stream& stream);

 private:
  friend class LayerBinding;

  RankShape shape_;
  LayerSeed seed_;
  LayerComms comms_;
  LayerBuffers buffers_;
  Routing routing_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Expert> expert_;
  Tensor fresh_, pending_;  // the dense part's gradients: being made by this backward; made by the one before
};

}  // namespace moe
