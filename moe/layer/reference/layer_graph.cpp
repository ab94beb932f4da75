#include "moe/layer/reference/layer_graph.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/plan/volumes.h"

namespace moe {
namespace {

using at::Tensor;

// A zeroed tensor of the case's element type and a view of it, to be filled; then widened.
struct Typed {
  Tensor tensor;
  TensorView view;
};

Typed typed(std::array<int64_t, 3> extents, DType dtype) {
  const auto type = dtype == DType::float32 ? at::kFloat : at::kDouble;
  Tensor t = at::zeros({extents[0], extents[1], extents[2]}, type);
  return {t, TensorView(t.data_ptr(), {extents[0], extents[1], extents[2]}, dtype)};
}

template <class Fill>
Tensor filled_rows(int64_t tokens, int64_t width, DType dtype, Fill fill) {
  const Typed t = typed({1, tokens, width}, dtype);
  fill(t.view.part(0, {tokens, width}), Share{0, tokens, tokens});
  return t.tensor.squeeze(0).to(at::kDouble);
}

Tensor full_weight(std::string_view name, std::array<int64_t, 3> extents, int64_t fan_in, const Case& c,
                   const LayerSeed& seed) {
  const Typed t = typed(extents, c.layer.dtype);
  Parameter whole{std::string(name), {}, t.view, {}, SummedOver::stage};
  for (size_t i = 0; i < 3; ++i) whole.axes[i] = {0, extents[i], extents[i]};
  fill_weight(whole, fan_in, seed);
  const Tensor wide = t.tensor.to(at::kDouble);
  return extents[0] == 1 && name != kW1 && name != kW2 ? wide.squeeze(0) : wide;
}

Tensor attention(const LayerShape& l, const Tensor& x, const std::map<std::string, Tensor>& w) {
  const int64_t d = l.model_dim / l.heads, sequences = x.size(0) / l.seq;
  const auto split = [&](std::string_view name) {  // (sequences, heads, L, d)
    return at::matmul(x, w.at(std::string(name))).view({sequences, l.seq, l.heads, d}).transpose(1, 2);
  };
  const Tensor scores = at::matmul(split(kWq), split(kWk).transpose(2, 3)) / std::sqrt(static_cast<double>(d));
  const Tensor later = at::ones({l.seq, l.seq}, at::kBool).triu(1);
  const Tensor mixed = at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), split(kWv));
  return at::matmul(mixed.transpose(1, 2).reshape({x.size(0), l.model_dim}), w.at(std::string(kWo)));
}

// The top_k experts of one token, the best first; of equal logits the lower expert.
std::vector<int32_t> choose(const double* logits, int64_t experts, int64_t top_k) {
  std::vector<int32_t> order(static_cast<size_t>(experts));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  order.resize(static_cast<size_t>(top_k));
  return order;
}

bool as_good(std::span<const int32_t> other, std::span<const int32_t> own, const double* logits, int64_t experts,
             double margin) {
  for (size_t c = 0; c < own.size(); ++c) {
    if (other[c] < 0 || other[c] >= experts || std::count(other.begin(), other.end(), other[c]) != 1) return false;
    if (logits[other[c]] < logits[own[c]] - margin) return false;
  }
  return true;
}

std::vector<int32_t> choices_of(const Tensor& logits, int64_t top_k, std::span<const int32_t> preferred, double tie) {
  const Tensor values = logits.detach().contiguous();
  const int64_t experts = values.size(1);
  const double margin = tie * values.abs().max().item<double>();
  std::vector<int32_t> all;
  for (int64_t t = 0; t < values.size(0); ++t) {
    const double* row = values.const_data_ptr<double>() + t * experts;
    std::vector<int32_t> own = choose(row, experts, top_k);
    if (!preferred.empty()) {
      const auto other = preferred.subspan(static_cast<size_t>(t * top_k), static_cast<size_t>(top_k));
      if (as_good(other, own, row, experts, margin)) own.assign(other.begin(), other.end());
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

// Whether each pair found a free row: in every group of tokens, first choices in token order, then second ones.
std::vector<bool> kept_pairs(const std::vector<int32_t>& choices, const Case& c) {
  const int64_t group = c.layer.batch * c.layer.seq / c.parallel.mp, k = c.layer.top_k;
  const int64_t tokens = static_cast<int64_t>(choices.size()) / k, capacity = capacity_rows(c);
  std::vector<bool> kept(choices.size());
  for (int64_t first = 0; first < tokens; first += group) {
    std::map<int32_t, int64_t> used;
    for (int64_t choice = 0; choice < k; ++choice)
      for (int64_t t = first; t < first + group; ++t) {
        const auto pair = static_cast<size_t>(t * k + choice);
        kept[pair] = used[choices[pair]]++ < capacity;
      }
  }
  return kept;
}

Tensor indices(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong).clone();
}

// Sum over a token's kept choices of weight * expert(hidden).
Tensor experts(const Case& c, const Tensor& hidden, const Tensor& weight, const std::vector<int32_t>& choices,
               const std::map<std::string, Tensor>& w) {
  const std::vector<bool> kept = kept_pairs(choices, c);
  Tensor out = at::zeros_like(hidden);
  for (int64_t e = 0; e < c.layer.experts; ++e) {
    std::vector<int64_t> tokens, pairs;
    for (size_t pair = 0; pair < choices.size(); ++pair) {
      if (!kept[pair] || choices[pair] != e) continue;
      pairs.push_back(static_cast<int64_t>(pair));
      tokens.push_back(static_cast<int64_t>(pair) / c.layer.top_k);
    }
    if (pairs.empty()) continue;
    const Tensor a = at::matmul(hidden.index_select(0, indices(tokens)), w.at(std::string(kW1))[e]);
    const Tensor y = at::matmul(0.5 * a * (1 + at::erf(a / std::sqrt(2.0))), w.at(std::string(kW2))[e]);
    out = out.index_add(0, indices(tokens), y * weight.flatten().index_select(0, indices(pairs)).unsqueeze(1));
  }
  return out;
}

}  // namespace

GraphInputs graph_inputs(const Case& c, const LayerSeed& seed) {
  const LayerShape& l = c.layer;
  const int64_t tokens = c.parallel.dp * l.batch * l.seq, m = l.model_dim;
  GraphInputs in;
  in.input = filled_rows(tokens, m, l.dtype, [&](auto rows, Share all) { fill_input(rows, all, seed); });
  in.output_gradient =
      filled_rows(tokens, m, l.dtype, [&](auto rows, Share all) { fill_output_gradient(rows, all, seed); });
  in.gate_noise =
      filled_rows(tokens, l.experts, l.dtype, [&](auto rows, Share all) { fill_gate_noise(rows, all, seed); });
  for (const auto name : {kWq, kWk, kWv, kWo}) in.weights[std::string(name)] = full_weight(name, {1, m, m}, m, c, seed);
  for (const auto name : {kGateWeight, kGateNoise})
    in.weights[std::string(name)] = full_weight(name, {1, l.experts, m}, m, c, seed);
  in.weights[std::string(kW1)] = full_weight(kW1, {l.experts, m, l.hidden}, m, c, seed);
  in.weights[std::string(kW2)] = full_weight(kW2, {l.experts, l.hidden, m}, l.hidden, c, seed);
  return in;
}

GraphOutputs run_graph(const Case& c, const GraphInputs& in, std::span<const int32_t> preferred, double tie) {
  const auto& w = in.weights;
  const Tensor hidden = attention(c.layer, in.input, w);
  const Tensor spread = at::matmul(hidden, w.at(std::string(kGateNoise)).t());
  const Tensor logits = at::matmul(hidden, w.at(std::string(kGateWeight)).t()) +
                        in.gate_noise * at::log1p(at::exp(-at::abs(spread))) +
                        in.gate_noise * at::relu(spread);  // softplus(s) = max(s, 0) + log(1 + exp(-|s|))
  GraphOutputs out;
  out.choices = choices_of(logits, c.layer.top_k, preferred, tie);
  const std::vector<int64_t> chosen(out.choices.begin(), out.choices.end());
  const Tensor kept = logits.gather(1, indices(chosen).view({logits.size(0), c.layer.top_k}));
  out.output = experts(c, hidden, at::softmax(kept, 1), out.choices, w);
  out.loss = (out.output * in.output_gradient).sum();
  return out;
}

}  // namespace moe
