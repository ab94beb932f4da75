#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {

static std::vector<GraphWeight> latent_weights(const LayerShape& l) {
  const int64_t m = l.model_dim, r = l.kv_lora_rank, values = l.heads * l.v_head_dim;
  std::vector<GraphWeight> weights{{kWdkv, {m, r}, m},
                                   {kKeyNorm, {r}, 4, 1},
                                   {kWkr, {m, l.qk_rope_head_dim}, m},
                                   {kWuk, {r, l.heads * l.qk_nope_head_dim}, r},
                                   {kWuv, {r, values}, r},
                                   {kWo, {values, m}, values}};
  if (l.q_lora_rank == 0) weights.push_back({kWq, {m, attention_width(l)}, m});
  if (l.q_lora_rank == 0) return weights;
  weights.push_back({kWdq, {m, l.q_lora_rank}, m});
  weights.push_back({kQueryNorm, {l.q_lora_rank}, 4, 1});
  weights.push_back({kWuq, {l.q_lora_rank, attention_width(l)}, l.q_lora_rank});
  return weights;
}

std::vector<GraphWeight> attention_weights(const LayerShape& l) {
  if (is_latent(l)) return latent_weights(l);
  const int64_t m = l.model_dim, q = attention_width(l), kv = head_width(l) * l.kv_heads;
  std::vector<GraphWeight> weights{{kWq, {m, q}, m}, {kWk, {m, kv}, m}, {kWv, {m, kv}, m}, {kWo, {q, m}, q}};
  if (l.bias)
    for (const GraphWeight& bias :
         {GraphWeight{kBq, {q}, m}, GraphWeight{kBk, {kv}, m}, GraphWeight{kBv, {kv}, m}, GraphWeight{kBo, {m}, q}})
      weights.push_back(bias);
  return weights;
}

// Pairs (j, j + d / 2) are complex numbers, which are rotated by their place.
static at::Tensor rotary_graph(const LayerShape& l, const at::Tensor& x) {
  if (l.rope_theta == 0) return x;
  const int64_t half = x.size(3) / 2;
  const at::Tensor places = at::arange(l.seq, x.options());
  const at::Tensor speeds = at::pow(l.rope_theta, at::arange(half, x.options()) / static_cast<double>(-half));
  const at::Tensor angles = at::outer(places, speeds);
  const at::Tensor real = x.slice(3, 0, half), imaginary = x.slice(3, half);
  const at::Tensor cosines = at::cos(angles), sines = at::sin(angles);
  return at::cat({use(real) * cosines - use(imaginary) * sines, use(real) * sines + use(imaginary) * cosines}, 3);
}

static at::Tensor masked(const LayerShape& l, at::Tensor scores) {
  if (l.causal) scores = scores.masked_fill(at::ones({l.seq, l.seq}, at::kBool).triu(1), -INFINITY);
  if (l.window > 0) scores = scores.masked_fill(at::ones({l.seq, l.seq}, at::kBool).tril(-l.window), -INFINITY);
  return scores;
}

static at::Tensor rms_graph(const at::Tensor& x, const at::Tensor& gain) {
  const at::Tensor deviation = at::sqrt((use(x) * use(x)).mean(1, true) + 1e-5);
  return repeated(gain, x.size(0)) * use(use(x) / use(deviation));
}

// A score is the sum of two products, of the parts without and with positions; heads share the key of the latter.
static at::Tensor latent_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w) {
  const auto of = [&](std::string_view weight) { return w.at(std::string(weight)); };
  const auto by_heads = [&](const at::Tensor& t, int64_t heads) {  // (sequences, heads, L, width)
    return t.view({x.size(0) / l.seq, l.seq, heads, t.size(1) / heads}).transpose(1, 2);
  };
  const auto latent = [&](std::string_view down, std::string_view gain) {
    return rms_graph(moe::product(x, of(down)), of(gain));
  };
  const at::Tensor q = by_heads(
      l.q_lora_rank > 0 ? moe::product(latent(kWdq, kQueryNorm), of(kWuq)) : moe::product(x, of(kWq)), l.heads);
  const at::Tensor compressed = latent(kWdkv, kKeyNorm);
  const at::Tensor k = by_heads(moe::product(compressed, of(kWuk)), l.heads);
  const at::Tensor shared = rotary_graph(l, by_heads(moe::product(x, of(kWkr)), 1)).repeat_interleave(l.heads, 1);
  const at::Tensor scores = moe::product(q.slice(3, 0, l.qk_nope_head_dim), k.transpose(2, 3)) +
                            moe::product(rotary_graph(l, q.slice(3, l.qk_nope_head_dim)), shared.transpose(2, 3));
  const double width = static_cast<double>(l.qk_nope_head_dim + l.qk_rope_head_dim);
  const at::Tensor mixed = moe::product(softmax_of(masked(l, scores / std::sqrt(width)), -1),
                                        by_heads(moe::product(compressed, of(kWuv)), l.heads));
  return moe::product(mixed.transpose(1, 2).reshape({x.size(0), attention_output_width(l)}), of(kWo));
}

at::Tensor attention_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w) {
  if (is_latent(l)) return latent_graph(l, x, w);
  const int64_t d = head_width(l), sequences = x.size(0) / l.seq;
  const auto product = [&](const at::Tensor& rows, std::string_view weight, std::string_view bias) {
    const at::Tensor t = moe::product(rows, w.at(std::string(weight)));
    return l.bias ? t + repeated(w.at(std::string(bias)), t.size(0)) : t;
  };
  const auto split = [&](std::string_view weight, std::string_view bias) {  // (sequences, heads, L, d)
    const at::Tensor t = product(x, weight, bias);
    const int64_t heads = t.size(1) / d;
    return t.view({sequences, l.seq, heads, d}).transpose(1, 2).repeat_interleave(l.heads / heads, 1);
  };
  const at::Tensor q = rotary_graph(l, split(kWq, kBq)), k = rotary_graph(l, split(kWk, kBk));
  const at::Tensor scores = moe::product(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(d));
  const at::Tensor mixed = moe::product(softmax_of(masked(l, scores), -1), split(kWv, kBv));
  return product(mixed.transpose(1, 2).reshape({x.size(0), attention_width(l)}), kWo, kBo);
}

std::vector<GraphWeight> norm_weights(const LayerShape& l) {
  if (l.norm == Norm::none) return {};
  std::vector<GraphWeight> weights = norm_weights(l, kNormGain1);
  for (const GraphWeight& weight : norm_weights(l, kNormGain2)) weights.push_back(weight);
  return weights;
}

std::vector<GraphWeight> norm_weights(const LayerShape& l, std::string_view gain) {
  if (l.norm == Norm::none) return {};
  std::vector<GraphWeight> weights{{gain, {l.model_dim}, 4, 1}};
  if (l.bias && l.norm != Norm::rmsnorm) weights.push_back({gain, {l.model_dim}, l.model_dim, 0, "_bias"});
  return weights;
}

at::Tensor norm_graph(const LayerShape& l, const at::Tensor& x, const GraphWeights& w, std::string_view gain) {
  if (l.norm == Norm::none) return x;
  const at::Tensor centred = l.norm != Norm::rmsnorm ? use(x) - use(use(x).mean(1, true)) : use(x);
  const at::Tensor normed = rms_graph(centred, w.at(std::string(gain)));
  const auto bias = w.find(std::string(gain) + "_bias");
  return bias == w.end() ? normed : normed + repeated(bias->second, x.size(0));
}

}  // namespace moe
