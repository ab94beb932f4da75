#pragma once
// Holds what one rank of a layer is made of and what flows through it. MoeLayer owns it and shows its results; the
// parts of a binding (binding/) read and write it.
#include <memory>

#include "moe/layer/attention.h"
#include "moe/layer/comms.h"
#include "moe/layer/dispatchers/dispatcher.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/hooks/hook.h"
#include "moe/layer/layer_device.h"
#include "moe/layer/norm.h"
#include "moe/layer/orders/order.h"
#include "moe/rows/layer_buffers.h"

namespace moe {

/// Holds the parts that the layer's shape names, made for this rank and its device. A dense layer has attention, norms
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

/// Holds the dense part's gradients of two passes: a backward makes `fresh` while its plan's tasks sum `pending` over
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

/// Says what a backward does to the parameters' gradients, part by part: among a layer's micro-batches the one whose
/// task comes first overwrites them. Other norms go with what reads them; `shared` is a dense layer's feed-forward too.
struct GradientsInto {
  Into attention = Into::overwrite, gate = Into::overwrite, experts = Into::overwrite, shared = Into::overwrite;
  Into output = Into::overwrite;          // of what is behind the MoE part
  Into attention_norm = Into::overwrite;  // the gradients of attention's input make these
};

/// Says what a layer shares: the weights with those of its other micro-batches; what it makes with passes that take
/// turns; its input with the output of the layer before it.
struct LayerLinks {
  std::shared_ptr<TensorStore> weights = std::make_shared<TensorStore>();
  LayerMemory memory = {};
  const LayerBuffers* before = nullptr;  // outlives the layer; null: it has an input of its own
  bool last = true;                      // no layer shares its output
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

}  // namespace moe
