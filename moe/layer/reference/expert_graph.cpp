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

// Computes the activation of the GEMMs' products, biases included.
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

std::vector<GraphWeight> whole_expert_weights(const LayerShape& l, std::string_view prefix) {
  if (l.shared_hidden == 0) return {};
  const int64_t m = l.model_dim, s = l.shared_hidden;
  std::vector<GraphWeight> weights{{prefix, {m, s}, m, 0, kW1}, {prefix, {s, m}, s, 0, kW2}};
  if (l.ffn == Ffn::mixtral) weights.push_back({prefix, {m, s}, m, 0, kW3});
  if (!l.bias) return weights;
  weights.push_back({prefix, {s}, m, 0, kB1});
  weights.push_back({prefix, {m}, m, 0, kB2});
  if (l.ffn == Ffn::mixtral) weights.push_back({prefix, {s}, m, 0, kB3});
  return weights;
}

at::Tensor whole_expert_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w,
                              std::string_view prefix) {
  const auto of = [&](std::string_view name) { return w.at(std::string(prefix) + std::string(name)); };
  const auto product = [&](const at::Tensor& in, std::string_view weight, std::string_view bias) {
    const at::Tensor out = at::matmul(in, of(weight));
    return l.bias ? out + of(bias) : out;
  };
  const at::Tensor in = product(rows, kW1, kB1);
  const at::Tensor hidden = l.ffn == Ffn::gpt        ? at::gelu(in)
                            : l.ffn == Ffn::gpt_tanh ? at::gelu(in, "tanh")
                                                     : at::silu(in) * product(rows, kW3, kB3);
  return product(hidden, kW2, kB2);
}

}  // namespace moe
