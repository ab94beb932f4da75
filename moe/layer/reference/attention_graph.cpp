#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/graph_parts.h"

namespace moe {

std::vector<GraphWeight> attention_weights(const LayerShape& l) {
  const int64_t m = l.model_dim, kv = m / l.heads * l.kv_heads;
  return {{kWq, {m, m}, m}, {kWk, {m, kv}, m}, {kWv, {m, kv}, m}, {kWo, {m, m}, m}};
}

at::Tensor attention_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w) {
  const int64_t d = l.model_dim / l.heads, sequences = x.size(0) / l.seq;
  const auto split = [&](std::string_view name) {  // (sequences, heads, L, d)
    const at::Tensor t = at::matmul(x, w.at(std::string(name)));
    const int64_t heads = t.size(1) / d;
    return t.view({sequences, l.seq, heads, d}).transpose(1, 2).repeat_interleave(l.heads / heads, 1);
  };
  const at::Tensor scores = at::matmul(split(kWq), split(kWk).transpose(2, 3)) / std::sqrt(static_cast<double>(d));
  const at::Tensor later = at::ones({l.seq, l.seq}, at::kBool).triu(1);
  const at::Tensor mixed = at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), split(kWv));
  return at::matmul(mixed.transpose(1, 2).reshape({x.size(0), l.model_dim}), w.at(std::string(kWo)));
}

std::vector<GraphWeight> norm_weights(const LayerShape& l) {
  if (l.norm == Norm::none) return {};
  return {{kNormGain1, {l.model_dim}, 4, 1}, {kNormGain2, {l.model_dim}, 4, 1}};
}

at::Tensor norm_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w, std::string_view gain) {
  if (l.norm == Norm::none) return x;
  const at::Tensor centred = l.norm == Norm::layernorm ? x - x.mean(1, true) : x;
  return w.at(std::string(gain)) * centred / at::sqrt((centred * centred).mean(1, true) + 1e-5);
}

}  // namespace moe
