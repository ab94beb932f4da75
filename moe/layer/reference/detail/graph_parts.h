#pragma once
// The differentiable parts of layer_graph.h, one function each, by LibTorch's operations, and their weights. Includes
// LibTorch.
#include <ATen/core/Tensor.h>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"

namespace moe {

using GraphWeights = std::map<std::string, at::Tensor>;  // by name (parameter.h)

/// A weight as fill_weight makes it, plus `offset`. Axes of extent 1 in front are dropped.
struct GraphWeight {
  std::string_view name;
  std::vector<int64_t> extents;
  int64_t fan_in = 1;
  double offset = 0;
  std::string_view suffix = {};  // suffix of the name
};

std::vector<GraphWeight> attention_weights(const LayerShape& layer);
/// Computes (tokens, M) from x (tokens, M).
at::Tensor attention_graph(const LayerShape& layer, const at::Tensor& x, const GraphWeights& weights);

std::vector<GraphWeight> norm_weights(const LayerShape& layer);
/// Returns the weights of the norm whose gain has that name.
std::vector<GraphWeight> norm_weights(const LayerShape& layer, std::string_view gain);
at::Tensor norm_graph(const LayerShape& layer, const at::Tensor& x, const GraphWeights& weights, std::string_view gain);

std::vector<GraphWeight> expert_weights(const LayerShape& layer);
/// Computes expert e for rows (any, M).
at::Tensor expert_graph(const LayerShape& layer, const at::Tensor& rows, const GraphWeights& weights, int64_t e);

/// For an expert that computes all rows (any, M); the names of its weights begin with `prefix`: kShared or, in a dense
/// layer, kFfn.
std::vector<GraphWeight> whole_expert_weights(const LayerShape& layer, std::string_view prefix);
at::Tensor whole_expert_graph(const LayerShape& layer, const at::Tensor& rows, const GraphWeights& weights,
                              std::string_view prefix);

struct GateGraphInputs {
  const LayerCase& shape;
  at::Tensor hidden;  // (tokens, M), in groups of B L / N_MP
  at::Tensor noise;   // (tokens, E)
  const GraphWeights& weights;
  std::span<const int32_t> preferred;  // (tokens, choices), or empty: followed if at most `tie` worse
  double tie = 0;                      // times the largest score
  bool preset = false;                 // `preferred` is always followed
};

/// The graph's counterpart of Routing: pair p belongs to token p / choices.
struct GateGraph {
  int64_t choices = 0;
  std::vector<int32_t> expert, row;  // of each pair; row in its group, -1: dropped
  at::Tensor weight;                 // (tokens, choices)
  at::Tensor fill;                   // likewise; undefined: 1
  at::Tensor auxiliary;              // the auxiliary losses, coefficients applied; undefined: no losses
};

std::vector<GraphWeight> gate_weights(const LayerCase& shape);
GateGraph gate_graph(const GateGraphInputs& inputs);

/// Chooses, for gates of the top-k kind, the top_k best experts of each token by score (tokens, E), the best first, of
/// equal ones the lower; or the preferred ones.
std::vector<int32_t> top_k_choices(const GateGraphInputs& inputs, const at::Tensor& scores);
/// Returns the row of each pair: in every group of tokens, first choices in token order, then second choices; -1 for
/// pairs beyond capacity.
std::vector<int32_t> rows_of_choices(const LayerCase& shape, const std::vector<int32_t>& choices);
/// Makes an index tensor (n).
at::Tensor indices(const std::vector<int32_t>& values);

}  // namespace moe
