#include <ATen/ATen.h>
#include <cmath>

#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/layer/reference/detail/graph_terms.h"

namespace moe {

static void require_reference(const LayerShape& l) {
  require<WrongResult>(static_cast<size_t>(l.ffn) < kFfnParts.size(), "expert {} has no reference", name_of(l.ffn));
}

std::vector<GraphWeight> expert_weights(const LayerShape& l) {
  require_reference(l);
  std::vector<GraphWeight> weights{{kW1, {l.experts, l.model_dim, l.hidden}, l.model_dim},
                                   {kW2, {l.experts, l.hidden, l.model_dim}, l.hidden}};
  if (is_gated(l.ffn)) weights.push_back({kW3, {l.experts, l.model_dim, l.hidden}, l.model_dim});
  if (!l.bias) return weights;
  for (const auto& [name, width] : {std::pair{kB1, l.hidden}, {kB2, l.model_dim}, {kB3, l.hidden}})
    if (name != kB3 || is_gated(l.ffn)) weights.push_back({name, {l.experts, 1, width}, l.model_dim});
  return weights;
}

namespace {

// Rounds numbers to FP8 in blocks of the last two dimensions, each scaled by the least power of two that brings it to
// 448 or below, and returns the values of the results.
at::Tensor fp8_rounded(const at::Tensor& t, int64_t height) {
  const auto blocks = t.reshape({-1, t.size(-2) / height, height, t.size(-1) / kFp8Block, kFp8Block});
  const at::Tensor most = blocks.abs().amax({-3, -1}, true);
  const at::Tensor scale = at::exp2(at::ceil(at::log2(most / 448).clamp_min(-100))), in_reach = blocks / scale;
  // Steps are an eighth of the power of two below; LibTorch's own conversion goes through float32, and rounds twice.
  const at::Tensor step = at::exp2(at::floor(at::log2(in_reach.abs())).clamp_min(-6) - 3);
  return (at::round(in_reach / step) * step * scale).reshape(t.sizes());
}

// Multiplies rows (rows, K) by a weight (K, N) as FP8 numbers. The rows' gradient is also a product of rounded numbers;
// the weight's gradient is one of numbers as they are.
at::Tensor fp8_product(const at::Tensor& rows, const at::Tensor& weight) {
  const at::Tensor rounded = rows + (fp8_rounded(rows.detach(), 1) - rows.detach());
  const at::Tensor out = product(rounded, fp8_rounded(weight.detach(), kFp8Block));
  if (out.requires_grad()) out.register_hook([](const at::Tensor& d) { return fp8_rounded(d, 1); });
  const at::Tensor of_weight = product(rows.detach(), weight);
  return out + (of_weight - of_weight.detach());
}

at::Tensor product_of(const LayerShape& l, const at::Tensor& rows, const at::Tensor& weight) {
  return in_fp8(l.ffn) && rows.size(0) > 0 ? fp8_product(rows, weight) : product(rows, weight);
}

}  // namespace

// Computes the activation from the GEMMs' products, biases included.
static at::Tensor activated(const LayerShape& l, const at::Tensor& a, const at::Tensor& b) {
  if (l.ffn == Ffn::gpt_tanh)
    return 0.5 * use(a) * use(1 + at::tanh(std::sqrt(2 / M_PI) * (use(a) + 0.044715 * at::pow(use(a), 3))));
  return l.ffn == Ffn::gpt ? 0.5 * use(a) * use(1 + at::erf(use(a) / std::sqrt(2.0)))
                           : use(a) / use(1 + at::exp(-use(a))) * b;
}

at::Tensor expert_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w, int64_t e) {
  const auto product = [&](const at::Tensor& in, std::string_view weight, std::string_view bias) {
    const at::Tensor out = product_of(l, in, w.at(std::string(weight))[e]);
    return l.bias ? out + repeated(w.at(std::string(bias))[e], out.size(0)) : out;
  };
  const at::Tensor b = is_gated(l.ffn) ? product(rows, kW3, kB3) : at::Tensor();
  return product(activated(l, product(rows, kW1, kB1), b), kW2, kB2);
}

std::vector<GraphWeight> whole_expert_weights(const LayerShape& l, std::string_view prefix) {
  require_reference(l);
  if (l.shared_hidden == 0) return {};
  const int64_t m = l.model_dim, s = l.shared_hidden;
  std::vector<GraphWeight> weights{{prefix, {m, s}, m, 0, kW1}, {prefix, {s, m}, s, 0, kW2}};
  if (is_gated(l.ffn)) weights.push_back({prefix, {m, s}, m, 0, kW3});
  if (!l.bias) return weights;
  weights.push_back({prefix, {s}, m, 0, kB1});
  weights.push_back({prefix, {m}, m, 0, kB2});
  if (is_gated(l.ffn)) weights.push_back({prefix, {s}, m, 0, kB3});
  return weights;
}

at::Tensor whole_expert_graph(const LayerShape& l, const at::Tensor& rows, const GraphWeights& w,
                              std::string_view prefix) {
  const auto of = [&](std::string_view name) { return w.at(std::string(prefix) + std::string(name)); };
  const auto product = [&](const at::Tensor& in, std::string_view weight, std::string_view bias) {
    const at::Tensor out = product_of(l, in, of(weight));
    return l.bias ? out + repeated(of(bias), out.size(0)) : out;
  };
  const at::Tensor in = product(rows, kW1, kB1);
  const at::Tensor hidden = l.ffn == Ffn::gpt        ? at::gelu(in)
                            : l.ffn == Ffn::gpt_tanh ? at::gelu(in, "tanh")
                                                     : at::silu(in) * product(rows, kW3, kB3);
  return product(hidden, kW2, kB2);
}

}  // namespace moe
