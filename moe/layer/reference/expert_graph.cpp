#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/graph_parts.h"

namespace moe {

std::vector<GraphWeight> expert_weights(const LayerShape& l) {
  std::vector<GraphWeight> weights{{kW1, {l.experts, l.model_dim, l.hidden}, l.model_dim},
                                   {kW2, {l.experts, l.hidden, l.model_dim}, l.hidden}};
  if (l.ffn == Ffn::mixtral) weights.push_back({kW3, {l.experts, l.model_dim, l.hidden}, l.model_dim});
  return weights;
}

at::Tensor expert_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w, int64_t e) {
  const at::Tensor a = at::matmul(rows, w.at(std::string(kW1))[e]);
  const at::Tensor hidden = l.ffn == Ffn::gpt ? 0.5 * a * (1 + at::erf(a / std::sqrt(2.0)))
                                              : a / (1 + at::exp(-a)) * at::matmul(rows, w.at(std::string(kW3))[e]);
  return at::matmul(hidden, w.at(std::string(kW2))[e]);
}

std::vector<GraphWeight> shared_weights(const LayerShape& l) {
  if (l.shared_hidden == 0) return {};
  std::vector<GraphWeight> weights{{"shared_w1", {l.model_dim, l.shared_hidden}, l.model_dim},
                                   {"shared_w2", {l.shared_hidden, l.model_dim}, l.shared_hidden}};
  if (l.ffn == Ffn::mixtral) weights.push_back({"shared_w3", {l.model_dim, l.shared_hidden}, l.model_dim});
  return weights;
}

at::Tensor shared_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w) {
  const at::Tensor in = at::matmul(rows, w.at("shared_w1"));
  const at::Tensor hidden = l.ffn == Ffn::gpt ? at::gelu(in) : at::silu(in) * at::matmul(rows, w.at("shared_w3"));
  return at::matmul(hidden, w.at("shared_w2"));
}

std::vector<GraphWeight> ffn_weights(const LayerShape& l) {
  std::vector<GraphWeight> weights{{"ffn_w1", {l.model_dim, l.shared_hidden}, l.model_dim},
                                   {"ffn_w2", {l.shared_hidden, l.model_dim}, l.shared_hidden}};
  if (l.ffn == Ffn::mixtral) weights.push_back({"ffn_w3", {l.model_dim, l.shared_hidden}, l.model_dim});
  return weights;
}

at::Tensor ffn_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w) {
  const at::Tensor in = at::matmul(rows, w.at("ffn_w1"));
  const at::Tensor between = l.ffn == Ffn::gpt ? at::gelu(in) : at::silu(in) * at::matmul(rows, w.at("ffn_w3"));
  return at::matmul(between, w.at("ffn_w2"));
}

}  // namespace moe
