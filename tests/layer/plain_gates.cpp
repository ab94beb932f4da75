#include "tests/layer/plain_gates.h"

#include <ATen/ATen.h>
#include <limits>
#include <torch/csrc/autograd/autograd.h>

#include "moe/base/check.h"
#include "moe/layer/reference/detail/gate_graph.h"
#include "moe/layer/reference/detail/layer_graph.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

struct PlainInputs {
  const LayerCase& shape;
  const at::Tensor& hidden;
  const GraphWeights& weights;
  const at::Tensor& weight(std::string_view name) const { return weights.at(std::string(name)); }
  at::Tensor logits() const { return at::matmul(hidden, weight(kGateWeight).t()); }
};

// Lepikhin et al. (GShard), Algorithm 1, for any k: first choices take an expert's rows before second ones, each in the
// order of the tokens. A choice's one-hot mask is summed down the tokens.
void take_rows(const PlainInputs& in, const at::Tensor& logits, PlainGate& gate) {
  const int64_t experts = in.shape.layer.experts;
  gate.expert = std::get<1>(at::topk(logits.detach(), in.shape.layer.top_k, 1));
  at::Tensor taken = at::zeros({experts}, gate.expert.options());
  std::vector<at::Tensor> rows;
  for (const at::Tensor& choice : gate.expert.unbind(1)) {
    const at::Tensor mask = at::one_hot(choice, experts), place = at::cumsum(mask, 0) - 1 + taken;
    rows.push_back((place * mask).sum(1));
    taken = taken + mask.sum(0);
  }
  gate.row = at::stack(rows, 1);
  gate.kept = gate.row < capacity_rows(in.shape);
}

// GShard's gate with the noise of Shazeer et al. (2017), equations 3 to 5.
PlainGate plain_gshard(const PlainInputs& in, const at::Tensor& noise) {
  const at::Tensor spread = at::softplus(at::matmul(in.hidden, in.weight(kGateNoise).t()));
  const at::Tensor logits = in.logits() + noise * spread;
  PlainGate gate;
  take_rows(in, logits, gate);
  gate.weight = at::softmax(logits.gather(1, gate.expert), 1);
  return gate;
}

// Fedus et al. (Switch), section 2.1: the chosen experts' probabilities.
PlainGate plain_probabilities(const PlainInputs& in, const at::Tensor& logits) {
  PlainGate gate;
  take_rows(in, logits, gate);
  gate.weight = at::softmax(logits, 1).gather(1, gate.expert);
  return gate;
}

// Jiang et al. (Mixtral), section 2.1, as Transformers computes it: the chosen experts' probabilities over their sum,
// here by their logarithms, so that the gradient of a single choice is exactly 0.
PlainGate plain_normalized(const PlainInputs& in) {
  const at::Tensor logits = in.logits();
  PlainGate gate;
  take_rows(in, logits, gate);
  const at::Tensor chosen = at::log_softmax(logits, 1).gather(1, gate.expert);
  gate.weight = at::exp(chosen - at::logsumexp(chosen, 1, true));
  return gate;
}

// Lewis et al. (BASE), section 3: the expert's output times sigmoid(x w_e).
PlainGate plain_sigmoid(const PlainInputs& in) {
  const at::Tensor logits = in.logits();
  PlainGate gate;
  take_rows(in, logits, gate);
  gate.weight = at::sigmoid(logits.gather(1, gate.expert));
  return gate;
}

// Chi et al. (X-MoE), section 3: cosines in few dimensions over a learned temperature.
PlainGate plain_xmoe(const PlainInputs& in) {
  const auto unit = [](const at::Tensor& rows) { return rows / rows.norm(2, 1, true).clamp_min(1e-12); };
  const at::Tensor low = at::matmul(in.hidden, in.weight(kGateProjection).t());
  const at::Tensor cosines = at::matmul(unit(low), unit(in.weight(kGateWeight)).t());
  return plain_probabilities(in, cosines / in.weight(kGateTemperature));
}

// Puigcerver et al. (Soft MoE), Algorithm 1: slots are mixes of tokens, outputs mixes of slots.
PlainGate plain_softmoe(const PlainInputs& in) {
  const at::Tensor logits = in.logits();
  PlainGate gate;
  gate.fill = at::softmax(logits, 0);
  gate.weight = at::softmax(logits, 1);
  gate.kept = at::ones_like(logits, at::kBool);
  return gate;
}

// Zhou et al. (Expert Choice), section 3.2: each expert takes the tokens that like it most.
PlainGate plain_expert_choice(const PlainInputs& in) {
  PlainGate gate;
  gate.weight = at::softmax(in.logits(), 1);
  const int64_t rows = std::min(in.hidden.size(0), capacity_rows(in.shape));
  gate.row = std::get<1>(at::topk(gate.weight.detach().t(), rows, 1));
  gate.kept = at::zeros_like(gate.weight.detach().t(), at::kBool).scatter(1, gate.row, true).t();
  return gate;
}

}  // namespace

PlainGate plain_gate(const LayerCase& shape, const at::Tensor& hidden, const GraphWeights& weights,
                     const at::Tensor& noise) {
  const PlainInputs in{shape, hidden, weights};
  const std::string_view name = shape.layer.gate;
  if (name == "gshard") return plain_gshard(in, noise);
  if (name == "switch") return plain_probabilities(in, in.logits());
  if (name == "topk") return plain_normalized(in);
  if (name == "sigmoid") return plain_sigmoid(in);
  if (name == "xmoe") return plain_xmoe(in);
  if (name == "softmoe") return plain_softmoe(in);
  require<BadInput>(name == "expert-choice", "plain gates: found {}, expected one of the registry's", name);
  return plain_expert_choice(in);
}

namespace {

// Returns the values of a tensor of ours, not a copy.
at::Tensor values_of(TensorView t) {
  const at::ScalarType type = t.dtype() == DType::float64 ? at::kDouble : at::kFloat;
  return at::from_blob(t.data(), {t.size(0), t.elements() / t.size(0)}, type);
}

double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found - expected).abs().max().item<double>() / std::max(expected.abs().max().item<double>(), 1e-6);
}

}  // namespace

GatePair::GatePair(std::string_view gate, const LayerCase& shape)
    : shape_(with_module(shape, module_of(fmt::format("gate:{}", gate)).value())),
      ours_(measure::make_module_run(fmt::format("gate:{}", gate), shape_)) {
  const auto leaf = [&](const at::Tensor& t) {
    return t.to(values_of(ours_->input()).scalar_type()).clone().set_requires_grad(true);
  };
  hidden_ = leaf(values_of(ours_->input()));
  noise_ = graph_gate_noise(shape_, {}).to(hidden_.scalar_type());
  for (const auto& [name, weight] : graph_weights(gate_weights(shape_), shape_.layer.dtype, {}))
    weights_[name] = leaf(weight);
  for (const auto& [output, gradient] : ours_->outputs()) output_gradients_.push_back(values_of(gradient).clone());
}

void GatePair::run_ours(Phase phase) { ours_->run(phase); }

void GatePair::run_plain(Phase phase) {
  if (phase == Phase::forward) {
    plain_ = plain_gate(shape_, hidden_, weights_, noise_);
    return;
  }
  std::vector<at::Tensor> outputs{plain_.weight};
  if (plain_.fill.defined()) outputs.push_back(plain_.fill);
  torch::autograd::backward(outputs, output_gradients_);
}

double GatePair::worst_error() const {
  const auto outputs = ours_->outputs();
  const at::Tensor kept = output_gradients_[0] != 0;  // random, and 0 where a pair has no row
  if (!kept.equal(plain_.kept)) return std::numeric_limits<double>::infinity();
  double worst = relative_error(values_of(outputs[0].first) * kept, plain_.weight.detach() * kept);
  if (plain_.fill.defined()) worst = std::max(worst, relative_error(values_of(outputs[1].first), plain_.fill.detach()));
  return std::max(worst, relative_error(values_of(ours_->input_gradient()), hidden_.grad()));
}

}  // namespace moe
