#pragma once
// Gates as their papers give them, by PyTorch's own operators on whole tensors, for one group of tokens; the backward
// is autograd's. What ours are compared with, in results (plain_gates_test.cpp) and in time (gate_times.cpp).
#include <ATen/core/Tensor.h>
#include <memory>
#include <string_view>

#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/measure/modules/module_run.h"
#include "moe/shape/shape.h"

namespace moe {

/// A pair is a token and one of its choices: of expert-choice any expert, of softmoe any slot.
struct PlainGate {
  at::Tensor weight;       // (tokens, choices)
  at::Tensor kept;         // likewise, 1 where the pair has a row
  at::Tensor fill;         // of softmoe, likewise: what the token adds to the slot
  at::Tensor expert, row;  // of top-k gates, (tokens, choices); of expert-choice the tokens of (experts, rows)
};

/// Computes the gate `shape.layer.gate` of hidden states (tokens, M), with weights and noise of their type.
PlainGate plain_gate(const LayerCase& shape, const at::Tensor& hidden, const GraphWeights& weights,
                     const at::Tensor& noise);

/// A gate of ours on one rank, and the same in plain PyTorch with the same weights, noise, inputs and output gradients.
class GatePair {
 public:
  GatePair(std::string_view gate, const LayerCase& shape);
  /// Run one phase; a backward comes after its forward.
  void run_ours(Phase phase);
  void run_plain(Phase phase);
  /// Returns the largest difference after both phases of both, relative to the largest value: of weights, of slots'
  /// fills and of the hidden states' gradient. Infinite if a different number of pairs has a row.
  double worst_error() const;

 private:
  LayerCase shape_;
  std::unique_ptr<measure::ModuleRun> ours_;
  at::Tensor hidden_, noise_;
  GraphWeights weights_;
  std::vector<at::Tensor> output_gradients_;  // of the weights, of softmoe's fills
  PlainGate plain_;
};

}  // namespace moe
