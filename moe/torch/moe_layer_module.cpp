#include "moe/torch/moe_layer_module.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "moe/layer/binding.h"

namespace moe {
namespace {

torch::Tensor tensor_of(TensorView view) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < view.rank(); ++axis) sizes.push_back(view.size(axis));
  return torch::from_blob(view.data(), sizes, view.dtype() == DType::float64 ? torch::kFloat64 : torch::kFloat32);
}

}  // namespace

// What forward and backward share; a graph that is still to be run backward keeps it.
struct MoeLayerModule::Runner {
  Runner(std::shared_ptr<MoeLayer> of, const Plan& plan)
      : layer(std::move(of)),
        binding(*layer, plan),
        device(make_cpu_device()),
        executor(*device, plan.structure),
        finish(device->make_stream("gradients")) {}

  std::shared_ptr<MoeLayer> layer;
  LayerBinding binding;
  std::unique_ptr<Device> device;
  Executor executor;
  std::unique_ptr<Stream> finish;
  int64_t forwards = 0;
};

class MoeLayerModule::Backward : public torch::autograd::Node {
 public:
  explicit Backward(std::shared_ptr<Runner> runner) : runner_(std::move(runner)), forward_(runner_->forwards) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& d_output) override {
    require_equal(forward_, runner_->forwards, "a backward's forward, of those that the layer ran");
    const torch::NoGradGuard no_graph;
    MoeLayer& layer = *runner_->layer;
    tensor_of(layer.output_gradient()).copy_(d_output.at(0));
    runner_->executor.run(runner_->binding, {}, Phase::backward);
    layer.finish_step(*runner_->finish);
    runner_->finish->synchronize();
    ++runner_->forwards;  // its activations are used up
    torch::autograd::variable_list gradients{tensor_of(layer.input_gradient()).clone()};
    for (const Parameter& p : layer.parameters()) gradients.push_back(tensor_of(p.gradient).clone());
    return gradients;
  }

 private:
  std::shared_ptr<Runner> runner_;
  int64_t forward_;
};

MoeLayerModule::MoeLayerModule(std::shared_ptr<MoeLayer> layer, const Plan& plan)
    : layer_(std::move(layer)), runner_(std::make_shared<Runner>(layer_, plan)) {
  for (const Parameter& p : layer_->parameters()) weights_.push_back(register_parameter(p.name, tensor_of(p.value)));
}

torch::Tensor MoeLayerModule::forward(const torch::Tensor& x) {
  const auto parameters = layer_->parameters();
  torch::autograd::variable_list inputs{x};
  torch::Tensor y;
  {
    const torch::NoGradGuard no_graph;
    for (size_t i = 0; i < weights_.size(); ++i) {  // load() and to() give a weight other memory
      const torch::Tensor own = tensor_of(parameters[i].value);
      if (weights_[i].data_ptr() != own.data_ptr()) {
        own.copy_(weights_[i]);
        weights_[i].set_data(own);
      }
    }
    const torch::Tensor input = tensor_of(layer_->input());
    require<BadInput>(x.sizes() == input.sizes(), "input: found {} elements in {} axes, expected {} tokens of {}",
                      x.numel(), x.dim(), input.size(0), input.size(1));
    input.copy_(x);
    ++runner_->forwards;
    runner_->executor.run(runner_->binding, {}, Phase::forward);
    y = tensor_of(layer_->output()).clone();
  }
  inputs.insert(inputs.end(), weights_.begin(), weights_.end());
  if (!torch::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad(inputs)) return y;
  const auto node = std::make_shared<Backward>(runner_);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace moe
