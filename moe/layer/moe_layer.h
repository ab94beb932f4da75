#pragma once
// One rank of one transformer layer with MoE, forward and hand-written backward:
//
//   h = x + attention(norm(x))      sharded over MP
//   y = h + moe(norm(h))            gate, order, dispatch, experts (EP x ESP), combine, i-order (FSMoE, section 3)
//         + shared(norm(h))         if the layer has one: an expert of every token, sharded over MP, not weighed
//
// A dense layer (moe/shape/dense_layers.h) has only the shared expert, as its feed-forward: y = h + ffn(norm(h)),
// sharded over MP as attention is. The layer's shape sets norms and residuals. With post_layernorm, h = norm(x +
// attention(x)) and y = norm(h + moe(h) + shared(h)). Parameters, inputs and every buffer are made here; the plan sets
// the order of tasks (binding.h), and its flow decides which tokens and rows this rank holds.
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

/// The communicators of one rank of a layer: one per kind of group, so that collectives on different lanes never meet.
/// Copies share the communicators.
class LayerComms {
 public:
  /// Splits `world`, whose ranks are those of `parallel`. Blocking; all ranks call it.
  static LayerComms split(Communicator& world, const ParallelShape& parallel);

  /// Returns the communicator of a kind. `none` and `stage` both have the whole stage, every rank of this layer;
  /// `stage` is for a lane of its own. `world` has none here.
  Communicator& communicator(GroupKind kind) const { return *by_kind_[kind]; }

 private:
  EnumArray<GroupKind, std::shared_ptr<Communicator>, kGroupKinds> by_kind_;
};

/// The communicators that a rank has split, for layers that run in turns: NCCL takes half a second for each.
class CommsCache {
 public:
  /// Returns what LayerComms::split() returns, and splits only once per shape.
  LayerComms find_or_split(Communicator& world, const ParallelShape& parallel);

 private:
  std::vector<std::pair<ParallelShape, LayerComms>> entries_;
};

// The parts of one rank's layer and the data that flows through it. MoeLayer owns them and shows its results; the parts
// of a binding (binding/) read and write them.

/// The parts that the layer's shape names, made for this rank and its device. A dense layer has only attention, norms
/// and its feed-forward.
struct LayerParts {
  std::unique_ptr<Attention> attention;
  // The norms before attention, before the gate (of attention's residual sum), and after the MoE part's sum; null if
  // the layer has no such norm.
  std::unique_ptr<RowNorm> attention_norm, gate_norm, output_norm;
  std::unique_ptr<Gate> gate;
  std::unique_ptr<Order> order;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<Expert> expert;
  std::unique_ptr<Expert> shared;  // this MP rank's shard of the one that every token passes, or of a dense layer's
                                   // feed-forward; null: none
  std::unique_ptr<Hook> hook;      // null: none
};

/// The dense part's gradients of two passes: a backward makes `fresh` while its plan's tasks sum `pending` over DP.
/// Both are the same if a plan sums the gradients of its own pass.
struct DenseGradients {
  Weight fresh, pending;  // made by this pass; by the one before
  bool swapped = false;   // whether they have changed places an odd number of times
  void begin_pass() {
    std::swap(fresh, pending);
    swapped = !swapped;
  }
};
/// Names of these gradients among the layer's weights.
inline constexpr std::string_view kDenseGradients = "dense gradients",
                                  kDenseGradientsBefore = "dense gradients of the pass before",
                                  kExpertGradients = "experts' gradients";

/// How a backward writes the parameters' gradients, part by part: among a layer's micro-batches, the first task
/// overwrites them. The other norms go with the part that reads them; `shared` is also a dense layer's feed-forward.
struct GradientsInto {
  Into attention = Into::overwrite, gate = Into::overwrite, experts = Into::overwrite, shared = Into::overwrite;
  Into output = Into::overwrite;          // gradients of the norm after the MoE part
  Into attention_norm = Into::overwrite;  // its gradients follow from those of attention's input
  Into keys_values = Into::overwrite;     // if they are computed apart from attention's
};

/// The tensors that a layer shares: its weights with its other micro-batches; temporary memory with passes that take
/// turns; its input with the output of the layer before it.
struct LayerLinks {
  std::shared_ptr<TensorStore> weights = std::make_shared<TensorStore>();
  LayerMemory memory = {};
  const LayerBuffers* before = nullptr;       // outlives the layer; null: the layer has an input of its own
  bool last = true;                           // whether no layer shares its output
  std::vector<Attention*> parts_before = {};  // attention of the passes over the earlier parts of the samples
};

struct LayerState {
  /// Takes and throws what MoeLayer's constructor does.
  LayerState(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device,
             const LayerLinks& links);

  void set_hook(std::unique_ptr<Hook> hook);
  Math& math() const { return device.math(); }
  MemorySpace& memory() const { return math().memory(); }
  /// Returns the shared expert's part of the dense gradients.
  TensorView shared_gradients(TensorView dense) const;

  RankShape shape;
  LayerSeed seed;
  LayerComms comms;
  LayerDevice& device;
  LayerMemory pass;  // memory of what a pass makes
  LayerBuffers buffers;
  mutable Routing routing;      // its vectors are a copy of those on the device
  TensorView d_weight, d_fill;  // the routing's gradients, (gated tokens, choices)
  LayerParts parts;
  TensorView hooked;         // (gated tokens, M): the output's gradient as the hook gives it
  DenseGradients gradients;  // attention's, followed by the shared expert's
  Weight expert_gradients;
  bool experts_summed = false;  // whether the last pass's plan summed the experts' gradients over EDP
  GradientsInto into;
};

class MoeLayer {
 public:
  /// Makes one rank of the layer, blocking: all ranks make theirs. `device` is this rank's and outlives the layer.
  /// Throws BadInput naming the field if this layer can't be run (rank_shape.h) or names an unknown part; Unsupported
  /// naming the part that `device` lacks, and for post_layernorm with a shared expert if ranks gate the tokens of
  /// several MP groups.
  MoeLayer(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device = cpu_layer_device(),
           const LayerLinks& links = {})
      : state_(rank, seed, std::move(comms), device, links) {}

  const RankShape& shape() const { return state_.shape; }
  const LayerSeed& seed() const { return state_.seed; }

  /// Return whether the layer's input, or its output, belongs to it alone. If not, the layer before, or after, shares
  /// it, and another pass may overwrite it once both layers are done.
  bool begins() const { return state_.buffers.begins; }
  bool ends() const { return state_.buffers.ends; }
  TensorView input() const { return state_.buffers.forward.input; }              // (held tokens, M)
  TensorView output() const { return state_.buffers.forward.output; }            // (held tokens, M)
  TensorView output_gradient() const { return state_.buffers.backward.output; }  // dY, (held tokens, M)
  TensorView input_gradient() const { return state_.buffers.backward.input; }    // dX, (held tokens, M)
  /// Returns the last pass's routing. If a device has it, this call copies it to the host.
  const Routing& routing() const {
    state_.routing.fetch();
    return state_.routing;
  }
  MemorySpace& memory() const { return state_.memory(); }
  /// Sets the step of all later passes (Gate::begin_step), and begins a forward.
  void begin_step(uint64_t step, bool noisy) {
    if (state_.parts.gate) state_.parts.gate->begin_step(step, noisy);
    if (state_.parts.expert) state_.parts.expert->begin_forward();
  }
  /// Makes the gate weigh the workload's choices in all later passes, instead of choosing.
  void preset(const Workload& workload) {
    workload.fill(state_.shape, state_.seed, state_.routing);
    state_.routing.send();
  }
  /// Returns the experts chosen for this rank's own tokens, (tokens, choices); none in a dense layer.
  std::span<const int32_t> own_choices() const;
  double auxiliary_loss() const { return state_.parts.gate ? state_.parts.gate->auxiliary_loss() : 0; }

  /// Returns this rank's part of every weight and gradient. In the steady state (LayerBinding) the dense part's
  /// gradients are those of the pass before the last, summed over DP by the last; the others are the last pass's own.
  std::vector<Parameter> parameters();

  /// Calls `hook` in all later passes instead of the shape's own; it must send the same element type. Null: no hook.
  void set_hook(std::unique_ptr<Hook> hook) { state_.set_hook(std::move(hook)); }
  /// Returns a bound on the relative change of an element in one exchange.
  double exchange_error() const {
    return state_.parts.hook ? state_.parts.hook->relative_error(state_.shape.dtype()) : 0;
  }

  /// Enqueues the sums that no plan has: the gate's and the norms' gradients over the stage, and the experts' over EDP
  /// unless the plan summed them. All ranks call it, once after a pass; the gradients are complete when `stream` has
  /// passed it.
  void finish_gradients(Stream& stream);
  /// Replaces finish_gradients() for a single pass: also sums over DP the dense gradients that the pass made, which
  /// parameters() then shows.
  void finish_step(Stream& stream);

  /// Returns the state for a binding, which runs the layer.
  LayerState& state() { return state_; }

 private:
  LayerState state_;
};

// Counts how evenly a layer's tokens are distributed over its experts, and how full the rows are that are sent to them.

/// The counts of the last pass, over all ranks' own tokens.
struct RoutingLoad {
  int64_t pairs = 0, dropped = 0;      // pairs that the gate chose; those of them that got no row
  double drop_rate = 0;                // dropped / pairs
  double max_load = 0, mean_load = 0;  // tokens that want an expert, dropped ones included
  double imbalance = 0;                // most_load / mean_load
  double padding = 0;                  // empty rows / rows sent to the experts; none if the sizes are the loads
};

/// Returns one rank's part of a RoutingLoad, as numbers that can be sent to another process.
std::vector<double> load_on(const MoeLayer& rank);
/// Joins every rank's part; `any` is one of the ranks.
RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks);
/// Returns the load of a layer; `ranks` are the layers of all ranks.
RoutingLoad load_of(std::span<MoeLayer* const> ranks);

}  // namespace moe
