#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/graph_parts.h"

namespace moe {

std::vector<GraphWeight> expert_weights(const LayerShape& l) {
  std::vector<GraphWeight> weights{{kW1, {l.experts, l.model_dim, l.hidden}, l.model_dim},
                                   {kW2, {l.experts, l.hidden, l.model_dim}, l.hidden}};
  if (l.ffn == Ffn::mixtral) weights.push_back({kW3, {l.experts, l.model_dim, l.hidden}, l.model_dim});
  if (!l.bias) return weights;
  for (const auto& [name, width] : {std::pair{kB1, l.hidden}, {kB2, l.model_dim}, {kB3, l.hidden}})
    if (name != kB3 || l.ffn == Ffn::mixtral) weights.push_back({name, {l.experts, 1, width}, l.model_dim});
  return weights;
}

// Of the GEMMs' products, biases included.
static at::Tensor activated(const LayerShape& l, const at::Tensor& a, const at::Tensor& b) {
  if (l.ffn == Ffn::gpt_tanh) return 0.5 * a * (1 + at::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * at::pow(a, 3))));
  return l.ffn == Ffn::gpt ? 0.5 * a * (1 + at::erf(a / std::sqrt(2.0))) : a / (1 + at::exp(-a)) * b;
}

at::Tensor expert_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w, int64_t e) {
  const auto product = [&](const at::Tensor& in, std::string_view weight, std::string_view bias) {
    const at::Tensor out = at::matmul(in, w.at(std::string(weight))[e]);
    return l.bias ? out + w.at(std::string(bias))[e] : out;
  };
  const at::Tensor b = l.ffn == Ffn::mixtral ? product(rows, kW3, kB3) : at::Tensor();
  return product(activated(l, product(rows, kW1, kB1), b), kW2, kB2);
}

std::vector<GraphWeight> shared_weights(const LayerShape& l) {
  if (l.shared_hidden == 0) return {};
  std::vector<GraphWeight> weights{{"shared_w1", {l.model_dim, l.shared_hidden}, l.model_dim},
                                   {"shared_w2", {l.shared_hidden, l.model_dim}, l.shared_hidden}};
  if (l.ffn == Ffn::mixtral) weights.push_back({"shared_w3", {l.model_dim, l.shared_hidden}, l.model_dim});
  if (!l.bias) return weights;
  weights.push_back({"shared_b1", {l.shared_hidden}, l.model_dim});
  weights.push_back({"shared_b2", {l.model_dim}, l.model_dim});
  if (l.ffn == Ffn::mixtral) weights.push_back({"shared_b3", {l.shared_hidden}, l.model_dim});
  return weights;
}

at::Tensor shared_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w) {
  const auto product = [&](const at::Tensor& in, const std::string& number) {
    const at::Tensor out = at::matmul(in, w.at("shared_w" + number));
    return l.bias ? out + w.at("shared_b" + number) : out;
  };
  const at::Tensor in = product(rows, "1");
  const at::Tensor hidden = l.ffn == Ffn::gpt        ? at::gelu(in)
                            : l.ffn == Ffn::gpt_tanh ? at::gelu(in, "tanh")
                                                     : at::silu(in) * product(rows, "3");
  return product(hidden, "2");
}

}  // namespace moe
