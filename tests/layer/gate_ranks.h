#pragma once
// The gates of all ranks of a layer, without the layer: for tests against the reference graph.
#include <ATen/core/Tensor.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moe/layer/gates/gate.h"

namespace moe {

/// What a gate makes of all tokens, by global token, float64; gradients summed over the ranks as the layer does.
struct GateResult {
  std::vector<int32_t> expert, row;  // of each pair, as every rank that gates it has it
  at::Tensor weight, fill;           // (tokens, choices); fill undefined: 1
  at::Tensor d_hidden;
  std::map<std::string, at::Tensor> d_weights;  // flat
  double auxiliary = 0;                         // as every rank has it
};

/// The loss whose gradients are asked for: <weight, d_weight> over the kept pairs, <fill, d_fill>, the
/// auxiliary losses.
struct GateLoss {
  at::Tensor d_weight, d_fill;  // (tokens, choices)
};

class GateRanks {
 public:
  GateRanks(const LayerCase& shape, Flow flow, const LayerSeed& seed);
  /// Sets a weight to the same values on every rank; `values` are flat.
  void set_weight(const std::string& name, const at::Tensor& values);
  at::Tensor weight(const std::string& name) const;
  /// Makes the gates choose these experts, (tokens, choices).
  void preset(const std::vector<int32_t>& experts);
  /// Runs forward and backward of hidden (tokens, M), float64. Fails the test where ranks disagree.
  GateResult run(const at::Tensor& hidden, const GateLoss& loss);
  const Routing& routing(size_t rank) const { return ranks_[rank].routing; }

 private:
  struct Rank {
    RankShape shape;
    Routing routing;
    std::unique_ptr<Gate> gate;
  };
  void forward(Rank& rank, const at::Tensor& hidden, GateResult& all);
  void backward(Rank& rank, const at::Tensor& hidden, const GateLoss& loss, GateResult& all);
  void sum_statistics();

  std::vector<Rank> ranks_;
};

}  // namespace moe
