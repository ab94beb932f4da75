#include "moe/layer/reference/reference.h"

#include "moe/layer/reference/layer_graph.h"

namespace moe {
namespace {

std::vector<double> values_of(const at::Tensor& tensor) {
  const at::Tensor t = tensor.detach().contiguous();
  const double* data = t.const_data_ptr<double>();
  return {data, data + t.numel()};
}

// A weight that the loss does not reach has no gradient: zeros.
std::vector<double> gradient_of(const at::Tensor& leaf) {
  return leaf.grad().defined() ? values_of(leaf.grad()) : std::vector<double>(static_cast<size_t>(leaf.numel()));
}

}  // namespace

LayerReference reference_layer(const Case& shape, const LayerSeed& seed, const LayerChoices& choices) {
  const GraphInputs inputs = graph_inputs(shape, seed);
  inputs.input.set_requires_grad(true);
  for (const auto& [name, weight] : inputs.weights) weight.set_requires_grad(true);
  GraphOutputs outputs = run_graph(shape, inputs, choices);
  outputs.loss.backward();
  LayerReference reference;
  reference.output = values_of(outputs.output);
  reference.input_gradient = gradient_of(inputs.input);
  for (const auto& [name, weight] : inputs.weights) reference.gradients[name] = gradient_of(weight);
  reference.choices = std::move(outputs.choices);
  reference.auxiliary = outputs.auxiliary;
  return reference;
}

}  // namespace moe
