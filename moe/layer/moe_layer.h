#pragma once
// One rank of one transformer layer with MoE, forward and hand-written backward:
//
//   h = x + attention(norm(x))      sharded over MP
//   y = h + moe(norm(h))            gate, order, dispatch, experts (EP x ESP), combine, i-order (FSMoE, section 3)
//         + shared(norm(h))         shared expert, if any: computes every token, sharded over MP, unweighted
//
// A dense layer (moe/shape/dense_layers.h) has only the shared expert, as its feed-forward: y = h + ffn(norm(h)),
// sharded over MP as attention is. The layer's shape sets norms and residuals. With post_layernorm, h = norm(x +
// attention(x)) and y = norm(h + moe(h) + shared(h)). The layer creates parameters, inputs and buffers; the plan sets
// the order of tasks (binding.h), and the plan's flow decides which tokens and rows this rank holds.
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

/// The communicators of one rank of a layer: one per kind of group, so that no two lanes share a communicator.
/// Copies share the communicators.
class LayerComms {
 public:
  /// Splits `world`, whose ranks are those of `parallel`. Blocking; all ranks call it.
  static LayerComms split(Communicator& world, const ParallelShape& parallel);

  /// Returns the communicator of a kind of group. `none` and `stage` both join every rank of this layer's stage; they
  /// are separate because `stage` is used on a separate lane. `world` has no communicator here.
  Communicator& communicator(GroupKind kind) const { return *by_kind_[kind]; }

 private:
  EnumArray<GroupKind, std::shared_ptr<Communicator>, kGroupKinds> by_kind_;
};

/// The communicators that a rank has split, reused by layers that run one after another, because NCCL takes half a
/// second to create each.
class CommsCache {
 public:
  /// Returns the result of LayerComms::split(), which it calls only once per shape.
  LayerComms find_or_split(Communicator& world, const ParallelShape& parallel);

 private:
  std::vector<std::pair<ParallelShape, LayerComms>> entries_;
};

// The parts of one rank's layer and the data that flows through it. MoeLayer owns them and returns its results; the
// parts of a binding (binding/) read and write them.

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
  std::unique_ptr<Expert> shared;  // this MP rank's shard of the shared expert, or of a dense layer's feed-forward;
                                   // null if the layer has neither
  std::unique_ptr<Hook> hook;      // null if the layer has no hook
};

/// The dense part's gradients of two passes: a backward writes `fresh` while its plan's tasks sum `pending` over DP.
/// Both are the same tensor if a plan sums the gradients of its own pass.
struct DenseGradients {
  Weight fresh, pending;  // gradients of this pass; of the previous pass
  bool swapped = false;   // true if `fresh` and `pending` have been swapped an odd number of times
  void begin_pass() {
    std::swap(fresh, pending);
    swapped = !swapped;
  }
};
/// Names of these gradients among the layer's weights.
inline constexpr std::string_view kDenseGradients = "dense gradients",
                                  kDenseGradientsBefore = "dense gradients of the pass before",
                                  kExpertGradients = "experts' gradients";

/// Whether a backward overwrites the gradients of each part's parameters or adds to them. The task that is first among
/// the micro-batches overwrites. A norm without a field belongs to the part that reads it; `shared` also covers a dense
/// layer's feed-forward.
struct GradientsInto {
  Into attention = Into::overwrite, gate = Into::overwrite, experts = Into::overwrite, shared = Into::overwrite;
  Into output = Into::overwrite;          // gradients of the norm after the MoE part
  Into attention_norm = Into::overwrite;  // gradients of the norm before attention
  Into keys_values = Into::overwrite;     // gradients of W_k and W_v, if a separate task computes them
};

/// The tensors that a pass of a layer shares: weights with the layer's other micro-batches, temporary memory with
/// passes that run at other times, and its input with the output of the previous layer.
struct SharedLayerTensors {
  std::shared_ptr<TensorStore> weights = std::make_shared<TensorStore>();
  LayerMemory memory = {};
  const LayerBuffers* before = nullptr;       // previous layer's buffers, which outlive the layer; null: not shared
  bool last = true;                           // true if no next layer shares this layer's output
  std::vector<Attention*> parts_before = {};  // attention of the passes over the earlier parts of the samples
};

struct LayerState {
  /// Has the arguments and exceptions of MoeLayer's constructor.
  LayerState(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device,
             const SharedLayerTensors& shared);

  void set_hook(std::unique_ptr<Hook> hook);
  Math& math() const { return device.math(); }
  MemorySpace& memory() const { return math().memory(); }
  /// Returns the shared expert's part of the dense gradients.
  TensorView shared_gradients(TensorView dense) const;

  RankShape shape;
  LayerSeed seed;
  LayerComms comms;
  LayerDevice& device;
  LayerMemory pass;  // memory of a pass's activations and gradients
  LayerBuffers buffers;
  mutable Routing routing;      // the host's vectors are copies of the device's arrays
  TensorView d_weight, d_fill;  // gradients of the routing's weight and fill, (gated tokens, choices)
  LayerParts parts;
  TensorView hooked;         // (gated tokens, M): the output's gradient after the hook changed it
  DenseGradients gradients;  // attention's, followed by the shared expert's
  Weight expert_gradients;
  bool experts_summed = false;  // whether the last pass's plan summed the experts' gradients over EDP
  GradientsInto into;
};

class MoeLayer {
 public:
  /// Makes one rank's part of the layer. Blocks until all ranks have called it. `device` belongs to this rank and must
  /// outlive the layer. Throws BadInput naming the field if the layer can't be run (rank_shape.h) or names an unknown
  /// part. Throws Unsupported naming a part that `device` lacks, and for post_layernorm with a shared expert if ranks
  /// gate the tokens of several MP groups.
  MoeLayer(const RankShape& rank, const LayerSeed& seed, LayerComms comms, LayerDevice& device = cpu_layer_device(),
           const SharedLayerTensors& shared = {})
      : state_(rank, seed, std::move(comms), device, shared) {}

  const RankShape& shape() const { return state_.shape; }
  const LayerSeed& seed() const { return state_.seed; }

  /// begins() is true if no previous layer shares this layer's input; ends() is true if no next layer shares its
  /// output. Another pass may overwrite a shared tensor once both layers are done.
  bool begins() const { return state_.buffers.begins; }
  bool ends() const { return state_.buffers.ends; }
  TensorView input() const { return state_.buffers.forward.input; }              // (held tokens, M)
  TensorView output() const { return state_.buffers.forward.output; }            // (held tokens, M)
  TensorView output_gradient() const { return state_.buffers.backward.output; }  // dY, (held tokens, M)
  TensorView input_gradient() const { return state_.buffers.backward.input; }    // dX, (held tokens, M)
  /// Returns the last pass's routing, which this call copies to the host if it is on a device.
  const Routing& routing() const {
    state_.routing.fetch();
    return state_.routing;
  }
  MemorySpace& memory() const { return state_.memory(); }
  /// Sets the step of all later passes (Gate::begin_step), and prepares the experts for a forward.
  void begin_step(uint64_t step, bool noisy) {
    if (state_.parts.gate) state_.parts.gate->begin_step(step, noisy);
    if (state_.parts.expert) state_.parts.expert->begin_forward();
  }
  /// Presets the experts of each token to the workload's; in all later passes the gate only computes their weights.
  void preset(const Workload& workload) {
    workload.fill(state_.shape, state_.seed, state_.routing);
    state_.routing.send();
  }
  /// Returns the experts chosen for this rank's own tokens, (tokens, choices); none in a dense layer.
  std::span<const int32_t> own_choices() const;
  double auxiliary_loss() const { return state_.parts.gate ? state_.parts.gate->auxiliary_loss() : 0; }

  /// Returns this rank's part of every weight and gradient. In the steady state (binding.h), the dense part's gradients
  /// are of the pass before the last, and the last pass summed them over DP; all other gradients are of the last pass.
  std::vector<Parameter> parameters();

  /// Replaces the hook in all later passes; null removes it. `hook` must send the same element type as the shape's
  /// hook.
  void set_hook(std::unique_ptr<Hook> hook) { state_.set_hook(std::move(hook)); }
  /// Returns a bound on the relative change that the hook makes to an element in one exchange; 0 without a hook.
  double exchange_error() const {
    return state_.parts.hook ? state_.parts.hook->relative_error(state_.shape.dtype()) : 0;
  }

  /// Enqueues on `stream` the gradient sums that are in no plan: the gate's and the norms' over the stage, and the
  /// experts' over EDP unless the plan summed them. All ranks call it once after a pass.
  void finish_gradients(Stream& stream);
  /// Replaces finish_gradients() after a single pass: also sums over DP the dense gradients of that pass, and makes
  /// parameters() return them.
  void finish_step(Stream& stream);

  /// Returns the layer's state, which a binding reads and writes.
  LayerState& state() { return state_; }

 private:
  LayerState state_;
};

/// How evenly the last pass distributed all ranks' own tokens over the experts, and the share of empty rows.
struct RoutingLoad {
  int64_t pairs = 0, dropped = 0;      // (token, expert) pairs that the gate chose; pairs without a row
  double drop_rate = 0;                // dropped / pairs
  double max_load = 0, mean_load = 0;  // tokens per expert, dropped ones included
  double imbalance = 0;                // max_load / mean_load
  double padding = 0;                  // empty rows / rows sent to the experts; 0 if only filled rows are sent
};

/// Returns one rank's part of a RoutingLoad, as numbers that can be sent to another process.
std::vector<double> load_on(const MoeLayer& rank);
/// Combines the results of load_on() of all ranks; `any` is the shape of any rank.
RoutingLoad load_of(const RankShape& any, std::span<const std::vector<double>> ranks);
/// Returns the load of a layer; `ranks` has every rank's part of the layer.
RoutingLoad load_of(std::span<MoeLayer* const> ranks);

}  // namespace moe
