#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/graph_parts.h"

namespace moe {

std::vector<GraphWeight> attention_weights(const LayerShape& l) {
  const int64_t m = l.model_dim, kv = m / l.heads * l.kv_heads;
  return {{kWq, {m, m}, m}, {kWk, {m, kv}, m}, {kWv, {m, kv}, m}, {kWo, {m, m}, m}};
}

// Pairs (j, j + d / 2) are complex numbers that their place turns.
static at::Tensor rotary_graph(const LayerShape& l, const at::Tensor& x) {
  if (l.rope_theta == 0) return x;
  const int64_t half = x.size(3) / 2;
  const at::Tensor places = at::arange(l.seq, x.options());
  const at::Tensor speeds = at::pow(l.rope_theta, at::arange(half, x.options()) / static_cast<double>(-half));
  const at::Tensor angles = at::outer(places, speeds);
  const at::Tensor turned =
      at::complex(x.slice(3, 0, half), x.slice(3, half)) * at::polar(at::ones_like(angles), angles);
  return at::cat({at::real(turned), at::imag(turned)}, 3);
}

at::Tensor attention_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w) {
  const int64_t d = l.model_dim / l.heads, sequences = x.size(0) / l.seq;
  const auto split = [&](std::string_view name) {  // (sequences, heads, L, d)
    const at::Tensor t = at::matmul(x, w.at(std::string(name)));
    const int64_t heads = t.size(1) / d;
    return t.view({sequences, l.seq, heads, d}).transpose(1, 2).repeat_interleave(l.heads / heads, 1);
  };
  const at::Tensor q = rotary_graph(l, split(kWq)), k = rotary_graph(l, split(kWk));
  const at::Tensor scores = at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(d));
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
