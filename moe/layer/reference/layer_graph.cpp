#include "moe/layer/reference/detail/layer_graph.h"

#include <ATen/ATen.h>

#include "moe/base/check.h"
#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/shape/dense_layers.h"
#include "moe/tensor/cpu/aten.h"

namespace moe {
namespace {

using at::Tensor;
using cpu::scalar_type;

// Makes a tensor that is filled as the layer's is: 16-bit numbers as float32, which are then rounded.
Tensor unfilled(at::IntArrayRef extents, DType dtype) {
  return at::zeros(extents, scalar_type(accumulation_type(dtype)));
}
Tensor rounded(const Tensor& t, DType dtype) { return t.to(scalar_type(dtype)).to(t.scalar_type()); }

template <class Fill>
Tensor filled_rows(int64_t tokens, int64_t width, DType dtype, Fill fill) {
  const Tensor t = unfilled({tokens, width}, dtype);
  fill(TensorView(t.data_ptr(), {tokens, width}, accumulation_type(dtype)), ShardRange{0, tokens, tokens});
  return rounded(t, dtype).to(at::kDouble);
}

std::string name_of(const GraphWeight& weight) { return std::string(weight.name) + std::string(weight.suffix); }

Tensor full_weight(const GraphWeight& weight, DType dtype, const LayerSeed& seed) {
  const Tensor t = unfilled(weight.extents, dtype);
  Parameter whole{name_of(weight), {ShardRange{0, 1, 1}, {0, 1, 1}, {0, 1, 1}}, {}, {}};
  for (size_t i = 0, axis = 3 - weight.extents.size(); axis < 3; ++i, ++axis)
    whole.axes[axis] = {0, weight.extents[i], weight.extents[i]};
  whole.value = TensorView(t.data_ptr(), {t.numel()}, accumulation_type(dtype));
  fill_weight(whole, weight.fan_in, seed);
  return rounded(rounded(t, dtype) + weight.offset, dtype).to(at::kDouble);
}

// Computes the sum over a token's kept pairs of weight * expert(the row of the pair).
Tensor experts(const LayerCase& c, const Tensor& hidden, const GateGraph& gate, const GraphWeights& w) {
  const int64_t group = mp_tokens(c) / c.parallel.mp;
  Tensor out = at::zeros_like(hidden);
  for (int64_t e = 0; e < c.layer.experts; ++e) {
    std::vector<int32_t> tokens, pairs, rows;
    std::map<std::pair<int64_t, int32_t>, int32_t> row_of;  // place of a row, by group and row in the group
    for (size_t p = 0; p < gate.expert.size(); ++p) {
      if (gate.row[p] < 0 || gate.expert[p] != e) continue;
      const int64_t token = static_cast<int64_t>(p) / gate.choices;
      pairs.push_back(static_cast<int32_t>(p));
      tokens.push_back(static_cast<int32_t>(token));
      rows.push_back(
          row_of.try_emplace({token / group, gate.row[p]}, static_cast<int32_t>(row_of.size())).first->second);
    }
    if (pairs.empty()) continue;
    const auto of_pairs = [&](const Tensor& t) { return t.flatten().index_select(0, indices(pairs)).unsqueeze(1); };
    Tensor x = hidden.index_select(0, indices(tokens));
    if (gate.fill.defined()) x = use(x) * use(of_pairs(gate.fill));
    const Tensor in = at::zeros({static_cast<int64_t>(row_of.size()), hidden.size(1)}, at::kDouble);
    const Tensor y = expert_graph(c.layer, in.index_add(0, indices(rows), x), w, e).index_select(0, indices(rows));
    out = out.index_add(0, indices(tokens), use(y) * use(of_pairs(gate.weight)));
  }
  return out;
}

// Reorders rows from the order of ranks, which all other code uses, to the order of samples, and back.
class SampleOrder {
 public:
  explicit SampleOrder(const LayerCase& c) {
    if (c.parallel.cp == 1) return;
    std::vector<int32_t> samples(c.parallel.replicas() * mp_tokens(c)), ranks(samples.size());
    for (size_t token = 0; token < samples.size(); ++token) {
      samples[token] = static_cast<int32_t>(sample_order_index(c, static_cast<int64_t>(token)));
      ranks[samples[token]] = static_cast<int32_t>(token);
    }
    of_token_ = indices(samples);
    token_of_ = indices(ranks);
  }
  Tensor to_sample_order(const Tensor& rows) const {
    return token_of_.defined() ? rows.index_select(0, token_of_) : rows;
  }
  Tensor to_rank_order(const Tensor& rows) const {
    return of_token_.defined() ? rows.index_select(0, of_token_) : rows;
  }

 private:
  Tensor of_token_, token_of_;  // undefined: both orders are equal
};

// Computes attention of the last of these parts of samples, as that of the samples up to its end.
Tensor attention_of_part(LayerShape l, const std::vector<Tensor>& parts, const GraphWeights& w) {
  const int64_t tokens = l.seq / l.parts, samples = parts.front().size(0) / tokens, m = l.model_dim;
  std::vector<Tensor> of_samples;
  for (const Tensor& part : parts) of_samples.push_back(part.view({samples, tokens, m}));
  l.seq = tokens * std::ssize(parts);
  const Tensor all = attention_graph(l, at::cat(of_samples, 1).reshape({samples * l.seq, m}), w);
  return all.view({samples, l.seq, m}).slice(1, l.seq - tokens).reshape({samples * tokens, m});
}

}  // namespace

GraphInputs graph_inputs(const LayerCase& c, const LayerSeed& seed) {
  const LayerShape& l = c.layer;
  const int64_t tokens = c.parallel.replicas() * mp_tokens(c), m = l.model_dim;
  GraphInputs in;
  in.input = filled_rows(tokens, m, l.dtype, [&](auto rows, ShardRange all) { fill_input(rows, all, seed); });
  in.output_gradient =
      filled_rows(tokens, m, l.dtype, [&](auto rows, ShardRange all) { fill_output_gradient(rows, all, seed); });
  if (is_dense(c)) {
    for (const auto& weights : {attention_weights(l), norm_weights(l), whole_expert_weights(l, kFfn)})
      in.weights.merge(graph_weights(weights, l.dtype, seed));
    return in;
  }
  in.gate_noise = graph_gate_noise(c, seed);
  in.weights = graph_weights(gate_weights(c), accumulation_type(l.dtype), seed);
  for (const auto& weights :
       {attention_weights(l), norm_weights(l), expert_weights(l), whole_expert_weights(l, kShared)})
    in.weights.merge(graph_weights(weights, l.dtype, seed));
  return in;
}

GraphWeights graph_weights(const std::vector<GraphWeight>& weights, DType dtype, const LayerSeed& seed) {
  GraphWeights made;
  for (const GraphWeight& weight : weights) made[name_of(weight)] = full_weight(weight, dtype, seed);
  return made;
}

Tensor graph_gate_noise(const LayerCase& c, const LayerSeed& seed) {
  return filled_rows(c.parallel.replicas() * mp_tokens(c), c.layer.experts, accumulation_type(c.layer.dtype),
                     [&](auto rows, ShardRange all) { fill_gate_noise(rows, all, c, seed); });
}

GraphOutputs run_graph(const LayerCase& c, const GraphInputs& in, const LayerChoices& choices) {
  const LayerShape& l = c.layer;
  const auto& w = in.weights;
  const bool post = l.norm == Norm::post_layernorm;
  const SampleOrder order(c);
  std::vector<Tensor> read = in.earlier_parts;
  read.push_back(in.input);
  for (Tensor& part : read) part = order.to_sample_order(post ? part : norm_graph(l, part, w, kNormGain1));
  Tensor hidden = order.to_rank_order(attention_of_part(l, read, w));
  if (l.residual) hidden = hidden + in.input;
  if (post) hidden = norm_graph(l, hidden, w, kNormGain1);
  const Tensor normed = post ? hidden : norm_graph(l, hidden, w, kNormGain2);
  if (is_dense(c)) {
    GraphOutputs out;
    out.output = whole_expert_graph(l, normed, w, kFfn);
    if (l.residual) out.output = out.output + hidden;
    if (in.output_gradient.defined()) out.loss = (use(out.output) * in.output_gradient).sum();
    return out;
  }
  const GateGraph gate = gate_graph({c, normed, in.gate_noise, w, choices.preferred, choices.tie, choices.preset});
  GraphOutputs out;
  out.choices = gate.expert;
  out.output = experts(c, normed, gate, w);
  if (l.shared_hidden > 0) out.output = out.output + whole_expert_graph(l, normed, w, kShared);
  if (l.residual) out.output = out.output + hidden;
  if (post) out.output = norm_graph(l, out.output, w, kNormGain2);
  if (in.output_gradient.defined()) out.loss = (use(out.output) * in.output_gradient).sum();
  if (gate.auxiliary.defined()) {
    out.loss = out.loss.defined() ? out.loss + gate.auxiliary : gate.auxiliary;
    out.auxiliary = gate.auxiliary.item<double>();
  }
  return out;
}

}  // namespace moe
