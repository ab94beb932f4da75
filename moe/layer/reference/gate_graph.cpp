#include "moe/layer/reference/detail/gate_graph.h"

#include <ATen/ATen.h>
#include <algorithm>

#include "moe/layer/gates/gate.h"
#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

const AutogradGate& reference_of(const LayerCase& shape) {
  const AutogradGate* found = find_gate(shape.layer.gate).reference;
  require<WrongResult>(found != nullptr, "gate {} has no reference", shape.layer.gate);
  return *found;
}

// Returns the top_k experts of one token, the best first; of equal logits the lower expert.
std::vector<int32_t> choose(const double* logits, int64_t experts, int64_t top_k) {
  std::vector<int32_t> order(experts);
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  order.resize(top_k);
  return order;
}

bool is_as_good(std::span<const int32_t> other, std::span<const int32_t> own, const double* logits, int64_t experts,
                double margin) {
  for (size_t c = 0; c < own.size(); ++c) {
    if (other[c] < 0 || other[c] >= experts || std::count(other.begin(), other.end(), other[c]) != 1) return false;
    if (logits[other[c]] < logits[own[c]] - margin) return false;
  }
  return true;
}

}  // namespace

std::vector<GraphWeight> gate_weights(const LayerCase& shape) { return reference_of(shape).weights(shape); }
GateGraph gate_graph(const GateGraphInputs& inputs) { return reference_of(inputs.shape).graph(inputs); }

std::vector<int32_t> top_k_choices(const GateGraphInputs& in, const at::Tensor& scores) {
  if (in.preset) return {in.preferred.begin(), in.preferred.end()};
  const at::Tensor values = scores.detach().contiguous();
  const int64_t experts = values.size(1), top_k = in.shape.layer.top_k;
  const double margin = in.tie * values.abs().max().item<double>();
  std::vector<int32_t> all;
  for (int64_t t = 0; t < values.size(0); ++t) {
    const double* row = values.const_data_ptr<double>() + t * experts;
    std::vector<int32_t> own = choose(row, experts, top_k);
    if (!in.preferred.empty()) {
      const auto other = in.preferred.subspan(static_cast<size_t>(t * top_k), static_cast<size_t>(top_k));
      if (is_as_good(other, own, row, experts, margin)) own.assign(other.begin(), other.end());
    }
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<int32_t> rows_of_choices(const LayerCase& c, const std::vector<int32_t>& choices) {
  const int64_t group = tokens_of_group(c), k = c.layer.top_k;
  const int64_t tokens = static_cast<int64_t>(choices.size()) / k;
  const int64_t capacity = c.layer.capacity_factor ? capacity_rows(c) : group;
  std::vector<int32_t> rows(choices.size());
  for (int64_t first = 0; first < tokens; first += group) {
    std::map<int32_t, int64_t> used;
    for (int64_t choice = 0; choice < k; ++choice)
      for (int64_t t = first; t < first + group; ++t) {
        const auto pair = static_cast<size_t>(t * k + choice);
        const int64_t row = used[choices[pair]]++;
        rows[pair] = row < capacity ? static_cast<int32_t>(row) : -1;
      }
  }
  return rows;
}

int64_t tokens_of_group(const LayerCase& c) { return mp_tokens(c) / c.parallel.mp; }

std::vector<GraphWeight> logit_weights(const LayerCase& c) {
  return {{kGateWeight, {c.layer.experts, c.layer.model_dim}, c.layer.model_dim}};
}

at::Tensor logits_of(const GateGraphInputs& in) {
  return product(in.hidden, in.weights.at(std::string(kGateWeight)).t());
}

GateGraph top_k_gate(const GateGraphInputs& in, const at::Tensor& logits) {
  GateGraph out;
  out.choices = in.shape.layer.top_k;
  out.expert = top_k_choices(in, logits);
  out.row = rows_of_choices(in.shape, out.expert);
  return out;
}

at::Tensor chosen(const GateGraph& gate, const at::Tensor& values) {
  return values.gather(1, indices(gate.expert).view({values.size(0), gate.choices}));
}

GateGraph chosen_softmax_gate(const GateGraphInputs& in, const at::Tensor& logits) {
  GateGraph out = top_k_gate(in, logits);
  out.weight = softmax_of(chosen(out, logits), 1);
  out.auxiliary = auxiliary_losses(in, out, logits);
  return out;
}

GateGraph probability_gate(const GateGraphInputs& in, const at::Tensor& logits) {
  GateGraph out = top_k_gate(in, logits);
  out.weight = chosen(out, softmax_of(logits, 1));
  out.auxiliary = auxiliary_losses(in, out, logits);
  return out;
}

at::Tensor z_loss(const GateGraphInputs& in, const at::Tensor& logits) {
  return in.shape.layer.z_loss * use(at::logsumexp(logits, {1})).square().mean();
}

at::Tensor auxiliary_losses(const GateGraphInputs& in, const GateGraph& gate, const at::Tensor& logits) {
  const LayerShape& l = in.shape.layer;
  if (l.aux_loss == 0 && l.z_loss == 0) return {};
  const at::Tensor first = indices(gate.expert).view({logits.size(0), gate.choices}).select(1, 0);
  const at::Tensor shares = at::one_hot(first, l.experts).to(at::kDouble).mean(0);
  const at::Tensor balance = static_cast<double>(l.experts) * (shares * softmax_of(logits, 1).mean(0)).sum();
  return l.aux_loss * balance + z_loss(in, logits);
}

at::Tensor indices(const std::vector<int32_t>& values) {
  const std::vector<int64_t> wide(values.begin(), values.end());
  return at::tensor(wide, at::kLong);
}

}  // namespace moe
