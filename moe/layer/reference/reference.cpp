#include "moe/layer/reference/reference.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <cmath>

#include "moe/layer/reference/detail/ends_graph.h"
#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/layer/reference/detail/layer_graph.h"
#include "moe/layer/reference/stack_reference.h"

namespace moe {
namespace {

at::Tensor matrix_of(std::span<const double> values, int64_t cols) {
  const at::Tensor t = at::empty({static_cast<int64_t>(values.size()) / cols, cols}, at::kDouble);
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<double>());
  return t;
}

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor t = tensor.detach().contiguous();
  const double* data = t.const_data_ptr<double>();
  return {data, data + t.numel()};
}

// Returns a weight's gradient; zeros if the loss does not depend on the weight.
std::vector<double> gradient_of(const at::Tensor& leaf) {
  return leaf.grad().defined() ? values_of(leaf.grad()) : std::vector<double>(static_cast<size_t>(leaf.numel()));
}

// A tensor whose gradient is wanted, and the destinations of the gradient and of the size of its terms.
struct Wanted {
  at::Tensor leaf;
  std::vector<double>& gradient;
  double& size;
};

void want(const GraphWeights& weights, std::map<std::string, std::vector<double>>& gradients, TermSizesByTensor& sizes,
          std::vector<Wanted>& all) {
  for (const auto& [name, weight] : weights) all.push_back({weight, gradients[name], sizes[name]});
}

// `longest`: the number of terms of the longest sum.
void backward(const at::Tensor& loss, const std::vector<Wanted>& all, int64_t longest) {
  loss.backward({}, true);
  for (const Wanted& wanted : all) wanted.gradient = gradient_of(wanted.leaf);
  for (const Wanted& wanted : all) wanted.leaf.mutable_grad() = at::Tensor();
  const TermSizes instead_of_gradients;
  loss.backward();
  for (const auto& [leaf, gradient, size] : all)
    if (leaf.grad().defined() && leaf.numel() > 0)
      size = leaf.grad().abs().max().item<double>() * (1 + std::sqrt(static_cast<double>(longest)) / 32);
}

using ChoicesOf = std::function<LayerChoices(int layer, int micro_batch)>;

struct Stack {
  const LayerCases& cases;
  int layers = 1, micro_batches = 1;
  const LayerSeed& seed;
  int parts() const { return static_cast<int>(cases.moe().layer.parts); }
};

// Returns the number of terms of the longest sum of a forward or a backward.
int64_t longest_sum(const Stack& stack, int64_t tokens) {
  int64_t longest = tokens * stack.micro_batches;
  for (int i = 0; i < stack.layers; ++i) {
    const LayerShape& l = stack.cases.at(i).layer;
    longest = std::max({longest, l.model_dim, attention_width(l), l.hidden, l.shared_hidden});
  }
  return longest;
}

LayerSeed seed_of(const Stack& stack, size_t layer, int micro_batch) {
  LayerSeed seed = stack.seed;
  seed.layer += layer;
  seed.micro_batch += static_cast<uint64_t>(micro_batch);
  return seed;
}

// Runs the layers. `ends`: the ends of a model; null: the last output's loss is <output, dY>. `all`: tensors other than
// the layers' whose gradients are wanted.
StackReference run_layers(const Stack& stack, const ChoicesOf& choices, EndsGraph* ends, std::vector<Wanted> all = {}) {
  StackReference reference(static_cast<size_t>(stack.layers));
  std::vector<std::vector<at::Tensor>> inputs(reference.size());
  std::vector<GraphWeights> weights(reference.size());
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int micro_batch = 0; micro_batch < stack.micro_batches; ++micro_batch) {
    at::Tensor flowing;
    for (size_t l = 0; l < reference.size(); ++l) {
      const LayerCase shape = part_case(stack.cases.at(static_cast<int>(l)), micro_batch % stack.parts());
      GraphInputs in = graph_inputs(shape, seed_of(stack, l, micro_batch));
      if (micro_batch == 0) {
        weights[l] = in.weights;
        for (const auto& [name, weight] : weights[l]) weight.set_requires_grad(true);
      }
      in.weights = weights[l];
      if (l > 0)
        in.input = flowing;
      else if (ends != nullptr)
        in.input = ends->embed(micro_batch);
      else
        in.input.set_requires_grad(true);
      in.input.retain_grad();
      in.earlier_parts.assign(inputs[l].end() - shape.part, inputs[l].end());
      inputs[l].push_back(in.input);
      if (l + 1 < reference.size() || ends != nullptr) in.output_gradient = at::Tensor();
      GraphOutputs out = run_graph(shape, in, choices ? choices(static_cast<int>(l), micro_batch) : LayerChoices());
      if (out.loss.defined()) loss = loss + out.loss;
      flowing = out.output;
      reference[l].push_back({values_of(out.output), {}, {}, std::move(out.choices), out.auxiliary});
    }
    if (ends != nullptr) loss = loss + ends->add_loss(flowing, micro_batch);
  }
  for (size_t l = 0; l < reference.size(); ++l)
    for (size_t m = 0; m < reference[l].size(); ++m) {
      LayerReference& r = reference[l][m];
      all.push_back({inputs[l][m], r.input_gradient, r.sizes[kInputGradient]});
      want(weights[l], r.gradients, r.sizes, all);
    }
  backward(loss, all, longest_sum(stack, inputs.front().front().size(0)));
  return reference;
}

}  // namespace

LayerReference reference_layer(const LayerCase& shape, const LayerSeed& seed, const LayerChoices& choices) {
  const LayerCases alone(shape, {}, {});
  return std::move(reference_stack(alone, 1, 1, seed, [&](int, int) { return choices; }).front().front());
}

StackReference reference_stack(const LayerCases& cases, int layers, int micro_batches, const LayerSeed& seed,
                               const std::function<LayerChoices(int layer, int micro_batch)>& choices) {
  return run_layers({cases, layers, micro_batches, seed}, choices, nullptr);
}

ModelReference reference_model(const LayerCases& cases, int layers, const LayerSeed& seed, const ReferenceEnds& ends,
                               const std::function<LayerChoices(int layer, int micro_batch)>& choices) {
  EndsGraph graph(cases.moe(), seed, ends);
  const auto micro_batches = static_cast<int>(ends.inputs.size());
  ModelReference reference;
  std::vector<Wanted> of_ends;
  want(graph.weights(), reference.gradients, reference.sizes, of_ends);
  reference.layers = run_layers({cases, layers, micro_batches, seed}, choices, &graph, std::move(of_ends));
  reference.loss = graph.loss();
  return reference;
}

GateReference reference_gate(const LayerCase& shape, const LayerSeed& seed, const GateInputs& inputs,
                             const LayerChoices& choices) {
  const at::Tensor hidden = matrix_of(inputs.hidden, shape.layer.model_dim).set_requires_grad(true);
  const GraphWeights weights = graph_weights(gate_weights(shape), accumulation_type(shape.layer.dtype), seed);
  for (const auto& [name, weight] : weights) weight.set_requires_grad(true);
  const GateGraph gate = gate_graph(
      {shape, hidden, graph_gate_noise(shape, seed), weights, choices.preferred, choices.tie, choices.preset});
  const at::Tensor kept = (indices(gate.row) >= 0).view(gate.weight.sizes());
  at::Tensor loss = (use(gate.weight) * kept * matrix_of(inputs.d_weight, gate.choices)).sum();
  if (gate.fill.defined()) loss = loss + (use(gate.fill) * kept * matrix_of(inputs.d_fill, gate.choices)).sum();
  if (gate.auxiliary.defined()) loss = loss + gate.auxiliary;
  GateReference reference{gate.expert, gate.row, values_of(gate.weight), {}, {}, {}};
  if (gate.fill.defined()) reference.fill = values_of(gate.fill);
  std::vector<Wanted> all{{hidden, reference.d_hidden, reference.sizes[kInputGradient]}};
  want(weights, reference.gradients, reference.sizes, all);
  backward(loss, all, std::max(hidden.size(0), hidden.size(1)));
  return reference;
}

}  // namespace moe
