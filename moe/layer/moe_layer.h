#pragma once
// One rank of one transformer layer with MoE, forward and hand-written backward:
//
//   h = x + attention(norm(x))      sharded over MP
//   y = h + moe(norm(h))            gate, order, dispatch, experts (EP x ESP), combine, i-order (FSMoE, section 3)
//         + shared(norm(h))         where the layer has one: an expert of every token, sharded over MP, not weighed
//
// A dense layer (moe/shape/dense_layers.h) has y = h + ffn(norm(h)) instead, sharded over MP as attention is: the
// shared expert alone. Norms and residuals are as the layer's shape says. With post_layernorm it is
// h = norm(x + attention(x)) and y = norm(h + moe(h) + shared(h)). Parameters, inputs and every buffer are made here;
// what runs when is a plan's business (binding.h), and the plan's flow decides which tokens and rows this rank holds.
//
// Loss = sum over all distinct tokens of <y, dY>, and the gate's auxiliary losses; gradients are its derivatives, each
// summed (not averaged) over the ranks that `Parameter::summed_over` names.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/comm/communicator.h"
#include "moe/layer/attention.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/hooks/hook.h"
#include "moe/layer/layer_device.h"
#include "moe/layer/norm.h"
#include "moe/layer/orders/order.h"
#include "moe/layer/workload.h"
#include "moe/shape/groups.h"
#include "moe/sharding/layer_buffers.h"

namespace moe {

/// The communicators of one rank of a layer: one a kind of group, so collectives on different lanes never meet.
/// Copies share the communicators.
class LayerComms {
 public:
  /// Splits `world`, whose ranks are those of `parallel`. Blocking; all ranks call it.
  static LayerComms split(Communicator& world, const ParallelShape& parallel);

  /// Returns the communicator of a kind. `none` is the whole stage, every rank of this layer, and so is `stage`, for a
  /// lane of its own. `world` is not here.
  Communicator& of(GroupKind kind) const { return *by_kind_[kind]; }

 private:
  EnumArray<GroupKind, std::shared_ptr<Communicator>, kGroupKinds> by_kind_;
};

/// Keeps what a rank has split, for layers that run in turns: NCCL takes half a second a communicator.
class KnownComms {
 public:
  /// Returns what LayerComms::split() does, once a shape.
  LayerComms of(Communicator& world, const ParallelShape& parallel);

 private:
  std::vector<std::pair<ParallelShape, LayerComms>> known_;
};

// What one rank of a layer is made of and what flows through it. MoeLayer owns it and shows its results; the
// parts of a binding (binding/) read and write it.

/// The parts that the layer's shape names, made for this rank and its device. A dense layer has attention, norms
/// and its feed-forward alone.
struct LayerParts {
  std::unique_ptr<Attention> attention;
  // The norms before attention, before the gate (of what is behind attention's residual sum), and behind the MoE part's
  // sum; null: none.
  std::unique_ptr<RowNorm> attention_norm, gate_norm, output_norm;
  std::unique_ptr<Gate> gate;
  std::unique_ptr<Order> order;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Expert> expert;
  std::unique_ptr<Expert> shared;  // this MP rank's shard of the one that every token passes, or of a dense layer's
                                   // feed-forward; null: none
  std::unique_ptr<Hook> hook;      // null: none
};

/// The dense part's gradients of two passes: a backward makes `fresh` while its plan's tasks sum `pending` over
/// DP. Both are the same where a plan sums what its own pass made.
struct DenseGradients {
  Weight fresh, pending;  // made by this pass; by the one before
  bool swapped = false;   // they have changed places an odd number of times
  void begin_pass() {
    std::swap(fresh, pending);
    swapped = !swapped;
  }
};
/// Names of these gradients among the layer's weights.
inline constexpr std::string_view kDenseGradients = "dense gradients",
                                  kDenseGradientsBefore = "dense gradients of the pass before",
                                  kExpertGradients = "experts' gradients";

/// What a backward does to the parameters' gradients, part by part: among a layer's micro-batches the one whose
/// task comes first overwrites them. Other norms go with what reads them; `shared` is a dense layer's feed-forward too.
struct GradientsInto {
  Into attention = Into::overwrite, gate = Into::overwrite, experts = Into::overwrite, shared = Into::overwrite;
  Into output = Into::overwrite;          // of what is behind the MoE part
  Into attention_norm = Into::overwrite;  // the gradients of attention's input make these
  Into keys_values = Into::overwrite;     // where they are apart from attention's
};

/// What a layer shares: the weights with those of its other micro-batches; what it makes with passes that take
/// turns; its input with the output of the layer before it.
struct LayerLinks {
  std::shared_ptr<TensorStore> weights = std::make_shared<TensorStore>();
  LayerMemory memory = {};
  const LayerBuffers* before = nullptr;       // outlives the layer; null: it has an input of its own
  bool last = true;                           // no layer shares its output
  std::vector<Attention*> parts_before = {};  // of the passes over the parts of the samples before this one
};

struct LayerState {
  /// Takes and throws what MoeLayer's constructor does.
  LayerState(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device,
             const LayerLinks& links);

  void set_hook(std::unique_ptr<Hook> hook);
  Math& math() const { return device.math(); }
  MemorySpace& memory() const { return math().memory(); }
  /// Shows the shared expert's part of the dense gradients.
  TensorView shared_gradients(TensorView dense) const;

  RankShape shape;
  LayerSeed seed;
  LayerComms comms;
  LayerDevice& device;
  LayerMemory pass;  // what a pass makes
  LayerBuffers buffers;
  mutable Routing routing;      // its vectors are a copy of what a device has
  TensorView d_weight, d_fill;  // the routing's gradients, (gated tokens, choices)
  LayerParts parts;
  TensorView hooked;         // (gated tokens, M): the output's gradient as the hook gives it
  DenseGradients gradients;  // attention's, and behind them the shared expert's
  Weight expert_gradients;
  bool experts_summed = false;  // by the last pass's plan, over EDP
  GradientsInto into;
};

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
  /// Sets the step of passes from now on (Gate::begin_step), and begins a forward.
  void begin_step(uint64_t step, bool noisy) {
    if (state_.parts.gate) state_.parts.gate->begin_step(step, noisy);
    if (state_.parts.expert) state_.parts.expert->begin_forward();
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

// Counts how evenly a layer's tokens fall on its experts, and how full the rows are that are sent to them.

/// The counts of the last pass, over all ranks' own tokens.
struct RoutingLoad {
  int64_t pairs = 0, dropped = 0;       // that the gate chose; of them, without a row
  double drop_rate = 0;                 // dropped / pairs
  double most_load = 0, mean_load = 0;  // tokens that want an expert, dropped ones included
  double imbalance = 0;                 // most_load / mean_load
  double padding = 0;                   // empty rows / rows sent to the experts; none where the sizes are the loads
};

/// Returns one rank's part of a RoutingLoad, as numbers that another process can be sent.
std::vector<double> load_on(const MoeLayer& rank);
/// Joins every rank's part; `any` is one of the ranks.
RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks);
/// Counts the load of a layer; `ranks` are the layers of all ranks.
RoutingLoad load_of(std::span<MoeLayer* const> ranks);

}  // namespace moe
